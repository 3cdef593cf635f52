// @ts-check
// What the user has changed of the model: heads that are switched off, weights set by hand. Knows no
// elements of the page.

/** @typedef {{layer: number, head: number}} Head */
/** A row of weights that the user has set: of a query of a head, from key 0 on; `key` has the `weight` that
 * the user chose, `computed` is the row before that, `text` the text up to the query.
 * @typedef {Head & {query: number, key: number, weight: number, weights: Float32Array, computed: Float32Array, text: string}} HandSet */
/** What a head's output becomes: zeros, or its mean. @typedef {"zero" | "mean"} How */

export class Model {
  /** @param {Record<string, Float32Array>} means the mean output of each head, by name */
  constructor(means) {
    this.means = means;
    /** @type {Map<string, Head>} By their names. */
    this.off = new Map();
    /** @type {How} */
    this.how = "zero";
    /** @type {HandSet[]} */
    this.rows = [];
  }

  /** Whether it differs from the model in the file. */
  get changed() {
    return this.off.size > 0 || this.rows.length > 0;
  }

  /** Whether the mean outputs of heads are known. */
  get knowsMeans() {
    return Object.keys(this.means).length > 0;
  }

  /** @param {Head} head */
  toggle(head) {
    const name = nameOf(head);
    if (!this.off.delete(name)) this.off.set(name, head);
    // Later rows share out other weights.
    this.rows = this.rows.filter(({ layer }) => layer <= head.layer);
  }

  /** A copy that later changes do not affect. */
  copy() {
    return Object.assign(new Model(this.means), this, { off: new Map(this.off) });
  }

  /** The model without changes. */
  original() {
    return new Model(this.means);
  }

  /** @param {Head} head @param {number} query */
  rowOf(head, query) {
    const name = nameOf(head);
    return this.rows.find((row) => nameOf(row) === name && row.query === query);
  }

  /** @param {Head} head @param {number} query */
  dropRow(head, query) {
    const row = this.rowOf(head, query);
    this.rows = this.rows.filter((other) => other !== row);
  }

  /** @param {HandSet} row */
  setRow(row) {
    this.dropRow(row, row.query);
    this.rows = [...this.rows, row];
  }

  /** What the worker needs. @returns {import("../model/attention.js").Changes | null} */
  changes() {
    if (!this.changed) return null;
    const mean = this.how === "mean" ? this.means : {};
    const heads = [...this.off].map(([name, head]) => ({ ...head, value: mean[name] ?? null }));
    return { heads, rows: this.rows };
  }

  /** The changes in words. */
  get title() {
    const heads = [...this.off.values()].map(titleOf);
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

/** All heads, by layer. @param {{layers: number, heads: number}} model @returns {Head[]} */
export function headsOf({ layers, heads }) {
  return Array.from(
    { length: layers * heads },
    (_, n) => ({ layer: Math.floor(n / heads), head: n % heads }),
  );
}

/** "0.1" @param {Head} head */
export function nameOf({ layer, head }) {
  return `${layer}.${head}`;
}

/** "L0 H1" @param {Head} head */
export function titleOf({ layer, head }) {
  return `L${layer} H${head}`;
}
