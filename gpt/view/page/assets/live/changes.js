// @ts-check
// What the user has changed of the model: heads that are switched off, weights set by hand, the step
// of training. Knows no elements of the page.

/** @typedef {import("../model/attention.js").Changes} Changes */
/** A row of weights that the user has set: of a query of a head, from key 0 on; `computed` is the row
 * before that, `text` the text up to the query.
 * @typedef {{layer: number, head: number, query: number, weights: Float32Array,
 *   computed: Float32Array, text: string}} HandSet */
/** What a head's output becomes: zeros, or its mean. @typedef {"zero" | "mean"} How */

export class Model {
  /** @param {Float32Array[][][]} means the mean output of each head, by step, layer and head */
  constructor(means) {
    this.means = means;
    /** @type {Set<string>} "layer.head" */
    this.off = new Set();
    /** @type {How} */
    this.how = "zero";
    /** @type {HandSet[]} */
    this.rows = [];
    this.step = 0; // which of the models in the file
  }

  /** Whether it differs from the model in the file. */
  get changed() {
    return this.off.size > 0 || this.rows.length > 0;
  }

  /** @param {number} layer @param {number} head */
  toggle(layer, head) {
    const name = `${layer}.${head}`;
    if (!this.off.delete(name)) this.off.add(name);
    this.rows = this.rows.filter((row) => row.layer <= layer); // later ones share out other weights
  }

  /** A copy that later changes do not affect. */
  copy() {
    const other = new Model(this.means);
    other.off = new Set(this.off);
    other.how = this.how;
    other.rows = [...this.rows];
    other.step = this.step;
    return other;
  }

  /** The same step without changes. */
  original() {
    const other = new Model(this.means);
    other.step = this.step;
    return other;
  }

  /** Forgets rows that belong to another text. @param {string[]} characters */
  keepRowsOf(characters) {
    this.rows = this.rows.filter(({ query, text }) =>
      characters.slice(0, query + 1).join("") === text
    );
  }

  /** @param {number} layer @param {number} head @param {number} query */
  rowOf(layer, head, query) {
    return this.rows.find((row) => row.layer === layer && row.head === head && row.query === query);
  }

  /** @param {number} layer @param {number} head @param {number} query */
  dropRow(layer, head, query) {
    const row = this.rowOf(layer, head, query);
    this.rows = this.rows.filter((other) => other !== row);
  }

  /** @param {HandSet} row */
  setRow(row) {
    this.dropRow(row.layer, row.head, row.query);
    this.rows = [...this.rows, row];
  }

  /** What the worker needs. @returns {Changes | null} */
  changes() {
    if (!this.changed) return null;
    const heads = [...this.off].map((name) => {
      const [layer, head] = name.split(".").map(Number);
      return {
        layer,
        head,
        value: this.how === "mean" ? this.means[this.step][layer][head] : null,
      };
    });
    return { heads, rows: this.rows };
  }

  /** The changes in words. */
  get title() {
    const heads = [...this.off].map((name) => `L${name.replace(".", " H")}`);
    const few = heads.length > 4 ? [`${heads.length} heads`] : heads;
    const parts = few.length ? [`${few.join(", ")} ${this.how === "mean" ? "= mean" : "off"}`] : [];
    if (this.rows.length) parts.push("weights set by hand");
    return parts.join(", ");
  }
}

/**
 * A row of weights in which one key has `weight`, and the others share the rest as before; evenly if
 * they had nothing.
 * @param {Float32Array} row
 * @param {number} key
 * @param {number} weight 0 … 1
 */
export function withWeight(row, key, weight) {
  const others = row.reduce((sum, value, n) => n === key ? sum : sum + value, 0);
  const rest = 1 - weight;
  return row.map((value, n) => {
    if (n === key) return row.length === 1 ? 1 : weight;
    return others > 0 ? value * rest / others : rest / (row.length - 1);
  });
}
