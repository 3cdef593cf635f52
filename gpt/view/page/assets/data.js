// @ts-check
// The page's data as objects: a subject is a text with all stages of the model. It does not depend on
// the view.

import { Guesses } from "./guesses.js";
import { recall, unpack } from "./numbers.js";

/** @import { SubjectPayload, Text } from "./payload.js" */
/** @import { Packed } from "./numbers.js" */
/** @import { Part } from "./model/contributions.js" */
/**
 * A stage's numbers, row by row. `causal`: columns after the row are masked, and empty.
 * @typedef {object} Matrix
 * @property {number} rows
 * @property {number} columns
 * @property {Float64Array} values
 * @property {boolean} causal
 * @property {boolean} keys whether columns are characters, else dimensions
 * @property {"share" | "signed" | "difference" | "nats"} kind
 */

/** Stages in the order of the computation, the labels of their tabs, and what they mean. */
export const STAGES = /** @type {const} */ ([
  ["scores", "q·k", "queries times keys"],
  ["scaled", "/√d", "the same, divided by √ of the head's size"],
  ["masked", "mask", "no later character"],
  ["weights", "softmax", "shares that sum to 1"],
  ["context", "context", "the values, mixed by the weights: what the head writes"],
  ["concat", "concat", "all heads side by side"],
  ["proj", "projection", "what attention adds to the stream"],
  ["resid_mid", "stream", "the stream after attention"],
]);

/** Those before and after them, which a page may not have: a live one computes them when it shows them. */
export const BEFORE = /** @type {const} */ ([
  ["resid_pre", "stream", "what enters the layer"],
  ["norm1", "norm", "the stream, normalised for attention"],
  ["q", "q", "queries"],
  ["k", "k", "keys"],
  ["v", "v", "values"],
]);
export const AFTER = /** @type {const} */ ([
  ["norm2", "norm", "the stream, normalised for the feed-forward layer"],
  ["ffn_hidden", "hidden", "the feed-forward layer's numbers after its activation function"],
  ["ffn", "feed-forward", "what the feed-forward layer adds"],
  ["resid_post", "stream", "what leaves the layer"],
]);
/** @type {string[]} */
export const ASKED = ["norm1", "norm2", "ffn_hidden", "ffn", "resid_post"];

/** Those of feed-forward layers. @type {string[]} */
export const OF_FEED_FORWARD = ["norm2", "ffn_hidden", "ffn"];

/** Stages that all heads of a layer share. */
export const LAYER_STAGES = ["concat", "proj", "resid_mid", "resid_pre", ...ASKED];
const OF_HEAD = ["context", "q", "k", "v"];
/** Those whose columns are keys. */
export const SQUARE = ["scores", "scaled", "masked", "weights"];
const KEPT = 24; // matrices in memory

/** Numbers of the characters of a text, as a matrix of one row. @param {Float64Array} values
 * @param {Matrix["kind"]} kind @returns {Matrix} */
export function oneRow(values, kind) {
  return { rows: 1, columns: values.length, values, causal: false, keys: true, kind };
}

export class Subject {
  /**
   * @param {SubjectPayload} payload
   * @param {Text} text
   */
  constructor(payload, text) {
    this.payload = payload;
    this.name = payload.name;
    this.characters = text.characters;
    this.labels = text.labels;
    this.length = text.characters.length;
    this.layers = payload.layers;
    this.heads = payload.heads;
    this.headSize = payload.headSize;
    this.attentionOnly = Boolean(payload.attentionOnly);
    this.width = payload.heads * payload.headSize;
    this.measures = payload.measures;
    /** @type {Map<string, Float32Array>} */
    this.arrays = new Map();
    /** @type {Map<string, Matrix>} */
    this.matrices = new Map();
    this.lens = new Guesses(payload.lens, this.length);
    this.surprisals = unpack(payload.surprisals);
  }

  /** Mean nats of the characters after the first; NaN if there are none. */
  get loss() {
    return this.surprisals.reduce((sum, nats) => sum + nats, 0) / this.surprisals.length;
  }

  /** @param {number} layer */
  detailed(layer) {
    return String(layer) in this.payload.details;
  }

  /** Whether the page has a stage of a layer. @param {string} stage @param {number} layer */
  knows(stage, layer) {
    if (stage === "weights") return true;
    return ASKED.includes(stage) ? this.#further(stage, layer) !== null : this.detailed(layer);
  }

  /** The columns of a stage's matrix. @param {string} stage @param {number} layer */
  columnsOf(stage, layer) {
    if (SQUARE.includes(stage)) return this.length;
    if (OF_HEAD.includes(stage)) return this.headSize;
    const further = stage === "ffn_hidden" ? this.#further(stage, layer) : null;
    return further ? further.length / this.length : this.width;
  }

  /** A stage that a page may not have. @param {string} stage @param {number} layer */
  #further(stage, layer) {
    const { more, inspected } = this.payload;
    if (inspected?.layer === layer && inspected.stage === stage) return inspected.values;
    const packed = more?.[layer]?.[stage];
    return packed ? this.#array(`${stage} ${layer}`, packed) : null;
  }

  /**
   * What each part of the model adds to the logit of a character after a position; null if the page
   * does not know. character: "" for the likeliest one. against: the one whose logit is taken away, or "".
   * @param {number} position
   * @param {string} character
   * @param {string} [against]
   * @returns {{label: string, less: string, logit: number, parts: Part[]} | null}
   */
  contributions(position, character, against = "") {
    const { contributions: found, lens: { labels } } = this.payload;
    if (!found) return null;
    if ("id" in found) {
      const less = found.against === null ? "" : labels[found.against];
      return found.position === position ? { ...found, label: labels[found.id], less } : null;
    }
    const listed = this.lens.at(this.layers, position, Infinity);
    const placeOf = (/** @type {string} */ sought) =>
      listed.findIndex((each) => each.character === sought);
    const [at, other] = [character ? placeOf(character) : 0, placeOf(against)];
    if (at < 0) return null;
    const less = other < 0 || other === at ? "" : listed[other].label;
    const values = this.#array("contributions", found.values);
    const first = (/** @type {number} */ of) =>
      (position * listed.length + of) * found.parts.length;
    const parts = found.parts.map((each, n) => {
      const value = values[first(at) + n] - (less ? values[first(other) + n] : 0);
      return { ...each, value };
    });
    const logit = parts.reduce((sum, { value }) => sum + value, 0);
    return { label: listed[at].label, less, logit, parts };
  }

  /**
   * One of a head's arrays q, k, v, (T, D), or a layer's resid_pre, proj, (T, C). Use `head` 0 for a
   * layer's arrays.
   * @param {string} name
   * @param {number} layer
   * @param {number} head
   */
  detail(name, layer, head = 0) {
    const array = this.#array(`${name} ${layer}`, this.payload.details[layer][name]);
    if (name === "resid_pre" || name === "proj") return array;
    const size = this.length * this.headSize;
    return array.subarray(head * size, (head + 1) * size);
  }

  /** Where a row begins in `weights`. @param {number} row */
  begin(row) {
    return row * (row + 1) / 2;
  }

  /**
   * A head's weights of the keys that each row may read: row i begins at `begin(i)`.
   * @param {number} layer
   * @param {number} head
   */
  weights(layer, head) {
    const size = this.begin(this.length);
    const array = this.#array(`weights ${layer}`, this.payload.weights[layer]);
    return array.subarray(head * size, (head + 1) * size);
  }

  /** What replaces a head's output, if anything does. @param {number} layer @param {number} head */
  replacement(layer, head) {
    return this.payload.replaced?.find((each) => each.layer === layer && each.head === head);
  }

  /**
   * A stage of one head, or of the layer if its heads share the stage.
   * @param {string} stage
   * @param {number} layer
   * @param {number} head
   * @returns {Matrix}
   */
  matrix(stage, layer, head) {
    return this.remember(
      `${stage} ${layer} ${LAYER_STAGES.includes(stage) ? "" : head}`,
      () => this.#computed(stage, layer, head),
    );
  }

  /**
   * @param {string} name
   * @param {() => Matrix} make
   */
  remember(name, make) {
    return recall(this.matrices, KEPT, name, make);
  }

  /** @param {string} name @param {Packed} packed */
  #array(name, packed) {
    let array = this.arrays.get(name);
    if (!array) this.arrays.set(name, array = unpack(packed));
    return array;
  }

  /**
   * @param {string} stage
   * @param {number} layer
   * @param {number} head
   * @returns {Matrix}
   */
  #computed(stage, layer, head) {
    const rows = this.length;
    const keys = SQUARE.includes(stage);
    const columns = this.columnsOf(stage, layer);
    const matrix = {
      rows,
      columns,
      values: new Float64Array(rows * columns),
      causal: stage === "weights" || stage === "masked",
      keys,
      kind: /** @type {Matrix["kind"]} */ (stage === "weights" ? "share" : "signed"),
    };
    const { values } = matrix;
    if (stage === "weights") {
      const weights = this.weights(layer, head);
      for (let i = 0; i < rows; i++) {
        values.set(weights.subarray(this.begin(i), this.begin(i + 1)), i * columns);
      }
    } else if (keys) this.#products(stage, layer, head, values);
    else if (stage === "context") this.#context(layer, head, values, columns, 0);
    else if (stage === "concat") {
      for (let h = 0; h < this.heads; h++) {
        this.#context(layer, h, values, columns, h * this.headSize);
      }
    } else if (ASKED.includes(stage)) values.set(this.#further(stage, layer) ?? []);
    else if (stage !== "resid_mid") values.set(this.detail(stage, layer, head));
    else {
      const [entered, proj] = [this.detail("resid_pre", layer), this.detail("proj", layer)];
      values.forEach((_, i) => values[i] = Math.fround(entered[i] + proj[i]));
    }
    return matrix;
  }

  /**
   * scores = q·k, scaled = scores/√D, masked = scaled, −∞ where a key comes after its query.
   * @param {string} stage
   * @param {number} layer
   * @param {number} head
   * @param {Float64Array} values (T, T)
   */
  #products(stage, layer, head, values) {
    const [T, D] = [this.length, this.headSize];
    const [q, k] = [this.detail("q", layer, head), this.detail("k", layer, head)];
    const root = stage === "scores" ? 1 : Math.sqrt(D);
    for (let i = 0; i < T; i++) {
      for (let j = 0; j < T; j++) {
        let sum = 0;
        for (let d = 0; d < D; d++) sum += q[i * D + d] * k[j * D + d];
        const masked = stage === "masked" && j > i;
        values[i * T + j] = masked ? -Infinity : sum / root;
      }
    }
  }

  /**
   * weights·v, into the columns from `first`.
   * @param {number} layer
   * @param {number} head
   * @param {Float64Array} values (T, columns)
   * @param {number} columns
   * @param {number} first
   */
  #context(layer, head, values, columns, first) {
    const [T, D] = [this.length, this.headSize];
    const [weights, v] = [this.weights(layer, head), this.detail("v", layer, head)];
    const replaced = this.replacement(layer, head);
    if (replaced) {
      const { value } = replaced;
      for (let i = 0; value && i < T; i++) values.set(value, i * columns + first);
      return;
    }
    for (let i = 0; i < T; i++) {
      for (let j = 0; j <= i; j++) {
        const weight = weights[this.begin(i) + j];
        for (let d = 0; d < D; d++) values[i * columns + first + d] += weight * v[j * D + d];
      }
    }
  }
}
