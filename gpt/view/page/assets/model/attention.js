// @ts-check
// The attention of one layer for a text that grows: q, k, v and weights of earlier positions are
// kept, so that a new position is computed alone. T positions, C n_embd, H heads, D head_size.

import { multiplyOne } from "./linear.js";

/** @import { Gpt } from "./gpt.js" */
/** @typedef {Float32Array<ArrayBuffer>} Numbers */
/**
 * Replacements while the model computes, as patches of gpt/heads/activations.py. heads: their output
 * is 0 (value null) or `value`, D numbers, at every position. rows: the weights of one query, of
 * the keys that it may read.
 * @typedef {object} Changes
 * @property {{layer: number, head: number, value: Float32Array | null}[]} heads
 * @property {{layer: number, head: number, query: number, weights: Float32Array}[]} rows
 */

/**
 * The stages of one layer's attention, copied. q, k, v: (H, T, D). weights: (H, T(T + 1)/2), the row of
 * query i begins at i(i + 1)/2. resid_pre, what enters, and proj: (T, C). A head whose output `Changes`
 * replaces keeps its q, k, v and weights here.
 * @typedef {object} Stages
 * @property {Float32Array} q
 * @property {Float32Array} k
 * @property {Float32Array} v
 * @property {Float32Array} weights
 * @property {Float32Array} resid_pre
 * @property {Float32Array} proj
 */

export class Attention {
  /**
   * @param {Gpt} gpt
   * @param {number} layer
   * @param {Changes | null} changes
   */
  constructor(gpt, layer, changes) {
    this.gpt = gpt;
    this.layer = gpt.layers[layer];
    // (T, C) each: all heads of a position side by side.
    this.q = new Float32Array(0);
    this.k = new Float32Array(0);
    this.v = new Float32Array(0);
    this.resid_pre = new Float32Array(0); // what enters
    this.proj = new Float32Array(0);
    this.weights = new Float32Array(0); // of each query: (H, keys)
    this.scores = new Float32Array(0);
    this.sums = new Float64Array(gpt.config.head_size);
    /** @type {Map<number, Float32Array>} What replaces the outputs of heads. */
    this.outputs = new Map();
    /** @type {Map<string, Float32Array>} What replaces weights, by head and query. */
    this.rows = new Map();
    const { head_size } = gpt.config;
    for (const { head, value, ...at } of changes?.heads ?? []) {
      if (at.layer !== layer) continue;
      this.outputs.set(head, value ?? new Float32Array(head_size));
    }
    for (const { head, query, weights, ...at } of changes?.rows ?? []) {
      if (at.layer !== layer) continue;
      this.rows.set(`${head} ${query}`, weights);
    }
  }

  /** Where the rows of a query begin in `weights`. @param {number} query */
  begin(query) {
    return this.gpt.config.n_head * query * (query + 1) / 2;
  }

  /**
   * Computes new positions, and returns (count, C) resid_pre + proj.
   * @param {Numbers} resid_pre (T, C), what enters; it is kept
   * @param {number} first of the new positions
   * @param {number} count of the new positions
   */
  extend(resid_pre, first, count) {
    const { n_embd, n_head } = this.gpt.config;
    const end = first + count;
    this.q = withRoom(this.q, end * n_embd);
    this.k = withRoom(this.k, end * n_embd);
    this.v = withRoom(this.v, end * n_embd);
    this.proj = withRoom(this.proj, end * n_embd);
    this.weights = withRoom(this.weights, this.begin(end));
    const context = new Float32Array(count * n_embd);
    this.#project(resid_pre, first, count);
    for (let n = 0; n < count; n++) {
      for (let head = 0; head < n_head; head++) {
        const row = this.#attend(head, first + n);
        this.mix(head, first + n, row, context, n * n_embd);
      }
    }
    this.layer.proj.apply(context, 0, count, this.proj, first * n_embd);
    this.resid_pre = resid_pre;
    return this.result(first, count);
  }

  /** (count, C) resid_pre + proj. @param {number} first @param {number} count */
  result(first, count) {
    const { n_embd } = this.gpt.config;
    const { resid_pre, proj } = this;
    const resid_mid = new Float32Array(count * n_embd);
    for (let i = 0, from = first * n_embd; i < resid_mid.length; i++, from++) {
      resid_mid[i] = resid_pre[from] + proj[from];
    }
    return resid_mid;
  }

  /** (count, C) what queries, keys and values are computed from.
   * @param {Float32Array} resid_pre @param {number} first @param {number} count */
  normed(resid_pre, first, count) {
    const { n_embd } = this.gpt.config;
    const normed = new Float32Array(count * n_embd);
    for (let at = 0; at < normed.length; at += n_embd) {
      this.layer.norm1(resid_pre, first * n_embd + at, normed, at);
    }
    return normed;
  }

  /**
   * The queries, keys and values of new positions.
   * @param {Float32Array} resid_pre
   * @param {number} first
   * @param {number} count
   */
  #project(resid_pre, first, count) {
    const { gpt } = this;
    const { n_embd } = gpt.config;
    const packed = new Float32Array(count * 3 * n_embd);
    this.layer.qkv.apply(this.normed(resid_pre, first, count), 0, count, packed, 0);
    for (let n = 0; n < count; n++) {
      const to = (first + n) * n_embd;
      const part = (/** @type {number} */ number) =>
        packed.subarray((3 * n + number) * n_embd, (3 * n + number + 1) * n_embd);
      this.q.set(part(0), to);
      this.k.set(part(1), to);
      this.v.set(part(2), to);
      for (const heads of [this.q, this.k]) gpt.position.rotate?.(heads, to, first + n);
    }
  }

  /**
   * The weights of one head for a query; returns where they begin in `weights`.
   * @param {number} head
   * @param {number} query
   */
  #attend(head, query) {
    const { n_embd, head_size } = this.gpt.config;
    const { q, k, weights } = this;
    const keys = query + 1;
    const row = this.begin(query) + head * keys;
    const given = this.rows.get(`${head} ${query}`);
    if (given) {
      weights.set(given, row);
      return row;
    }
    if (this.scores.length < keys) this.scores = new Float32Array(2 * keys);
    const { scores } = this;
    const scale = Math.fround(head_size ** -0.5);
    const at = head * head_size;
    multiplyOne(k, at, n_embd, head_size, keys, q, query * n_embd + at, scores, 0);
    let largest = -Infinity;
    for (let key = 0; key < keys; key++) {
      scores[key] *= scale;
      largest = Math.max(largest, scores[key]);
    }
    let total = 0;
    for (let key = 0; key < keys; key++) {
      scores[key] = Math.exp(scores[key] - largest);
      total += scores[key];
    }
    for (let key = 0; key < keys; key++) weights[row + key] = scores[key] / total;
    return row;
  }

  /**
   * The output of one head for a query: the values, mixed by the weights that begin at `row`.
   * @param {number} head
   * @param {number} query
   * @param {number} row
   * @param {Float32Array} context
   * @param {number} from where the query's row of `context` begins
   */
  mix(head, query, row, context, from) {
    const { n_embd, head_size } = this.gpt.config;
    const { v, weights } = this;
    const at = head * head_size;
    const output = this.outputs.get(head);
    if (output) return context.set(output, from + at);
    const sums = this.sums.fill(0);
    const last = row + query;
    let value = at;
    for (; row < last; row += 2, value += 2 * n_embd) { // two keys at once
      const [weight, next] = [weights[row], weights[row + 1]];
      for (let d = 0, a = value, b = value + n_embd; d < head_size; d++) {
        sums[d] += weight * v[a++] + next * v[b++];
      }
    }
    if (row === last) {
      for (let d = 0; d < head_size; d++) sums[d] += weights[row] * v[value + d];
    }
    context.set(sums, from + at);
  }

  /** The largest difference of a row's sum from 1. @param {number} length how many queries */
  excess(length) {
    let [most, at] = [0, 0];
    for (let query = 0; query < length; query++) {
      for (let head = 0; head < this.gpt.config.n_head; head++) {
        let sum = 0;
        for (const end = at + query + 1; at < end; at++) sum += this.weights[at];
        most = Math.max(most, Math.abs(sum - 1));
      }
    }
    return most;
  }

  /** Copies of the stages of T positions. @param {number} length @returns {Stages} */
  stages(length) {
    const { n_embd, n_head, head_size } = this.gpt.config;
    const byHead = (/** @type {Float32Array} */ rows) => {
      const result = new Float32Array(length * n_embd);
      for (let head = 0, to = 0; head < n_head; head++) {
        for (let position = 0; position < length; position++) {
          const from = position * n_embd + head * head_size;
          for (let d = 0; d < head_size; d++) result[to++] = rows[from + d];
        }
      }
      return result;
    };
    return {
      q: byHead(this.q),
      k: byHead(this.k),
      v: byHead(this.v),
      weights: this.#headAfterHead(length),
      resid_pre: this.resid_pre.slice(0, length * n_embd),
      proj: this.proj.slice(0, length * n_embd),
    };
  }

  /** The weights of T queries, in the order of Stages. @param {number} length */
  #headAfterHead(length) {
    const { n_head } = this.gpt.config;
    const result = new Float32Array(this.begin(length));
    let to = 0;
    for (let head = 0; head < n_head; head++) {
      for (let query = 0; query < length; query++) {
        const keys = query + 1;
        const from = this.begin(query) + head * keys;
        result.set(this.weights.subarray(from, from + keys), to);
        to += keys;
      }
    }
    return result;
  }
}

/** The array, or a longer copy of it. @param {Numbers} array @param {number} length */
export function withRoom(array, length) {
  if (length <= array.length) return array;
  const longer = new Float32Array(Math.max(length, 2 * array.length));
  longer.set(array);
  return longer;
}
