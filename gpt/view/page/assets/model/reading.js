// @ts-check
// One text under a GPT: all stages of each position. The text grows and shrinks at its end, and so do
// the arrays. Numbers are kept as float32; sums are in double precision.
// T positions, C n_embd, H heads, D head_size, V vocab_size.

import { Attention, withRoom } from "./attention.js";

/** @import { Gpt } from "./gpt.js" */
/** @import { Changes } from "./attention.js" */
/**
 * resid_pre: what enters a layer; norm1: what its q, k, v are computed from; norm2: what enters its
 * feed-forward; ffn_hidden: that after the activation; ffn: its result; resid_post: what leaves the layer.
 * @typedef {"resid_pre" | "norm1" | "norm2" | "ffn_hidden" | "ffn" | "resid_post"} MoreStage
 */
/** @typedef {{layer: number, stage: MoreStage}} Inspect */
/** values: (T, columns). @typedef {Inspect & {columns: number, values: Float32Array}} Inspected */

const AT_ONCE = 16; // positions whose activations fit in a core's cache

export class Reading {
  /**
   * @param {Gpt} gpt
   * @param {Changes | null} changes
   */
  constructor(gpt, changes = null) {
    const { n_layer, n_embd } = gpt.config;
    this.gpt = gpt;
    /** @type {number[]} The text. */
    this.ids = [];
    /** The input of each layer, and the output of the last one; (T, C) each. */
    this.streams = Array.from({ length: n_layer + 1 }, () => new Float32Array(0));
    this.attention = gpt.layers.map((_, layer) => new Attention(gpt, layer, changes));
    /** @type {Float32Array[]} (V,) logits of the positions that were asked for. */
    this.predictions = [];
    this.normed = new Float32Array(n_embd);
  }

  get length() {
    return this.ids.length;
  }

  /** Forgets the positions from `length` on. @param {number} length */
  truncate(length) {
    this.ids.length = Math.min(this.ids.length, length);
    this.predictions.length = Math.min(this.predictions.length, length);
  }

  /**
   * Adds characters at the end, and computes their stages. Throws a RangeError for unknown ids, and
   * if the text becomes longer than the model's context.
   * @param {ArrayLike<number>} ids
   */
  append(ids) {
    const { vocab_size, block_size } = this.gpt.config;
    const added = Array.from(ids);
    if (this.length + added.length > block_size) {
      throw new RangeError(`The model reads at most ${block_size} characters at once.`);
    }
    if (added.some((id) => !Number.isInteger(id) || id < 0 || id >= vocab_size)) {
      throw new RangeError("The text has a character that the model does not know.");
    }
    for (let at = 0; at < added.length; at += AT_ONCE) {
      this.#extend(added.slice(at, at + AT_ONCE));
    }
  }

  /** Computes new positions together. @param {number[]} ids */
  #extend(ids) {
    const { gpt } = this;
    const { n_embd } = gpt.config;
    const first = this.length;
    this.streams = this.streams.map((each) => withRoom(each, (first + ids.length) * n_embd));
    const [embedded] = this.streams;
    ids.forEach((id, n) => {
      const at = (first + n) * n_embd;
      embedded.set(gpt.embedding.subarray(id * n_embd, (id + 1) * n_embd), at);
      gpt.position.embed?.(embedded, at, first + n);
    });
    gpt.layers.forEach((_, layer) => this.#block(layer, first, ids.length));
    this.ids.push(...ids);
  }

  /**
   * One layer for `count` new positions: from its stream to the next one.
   * @param {number} layer
   * @param {number} first
   * @param {number} count
   */
  #block(layer, first, count) {
    const next = this.streams[layer + 1];
    const start = first * this.gpt.config.n_embd;
    const resid_mid = this.attention[layer].extend(this.streams[layer], first, count);
    next.set(resid_mid, start);
    const found = this.feedForward(layer, resid_mid, count);
    if (!found) return;
    for (let i = 0; i < resid_mid.length; i++) next[start + i] += found.ffn[i];
  }

  /**
   * What the feed-forward of a layer computes: norm2, what enters; ffn_hidden, after the activation;
   * ffn, its result. (count, columns) each. null: the model has none.
   * @param {number} layer
   * @param {Float32Array} resid_mid (count, C)
   * @param {number} count
   */
  feedForward(layer, resid_mid, count) {
    const { n_embd, ffn_hidden: width } = this.gpt.config;
    const { norm2: norm, up, down } = this.gpt.layers[layer];
    const { activation } = this.gpt;
    if (!up || !down) return null;
    const norm2 = new Float32Array(count * n_embd);
    const ffn_hidden = new Float32Array(count * width);
    const ffn = new Float32Array(count * n_embd);
    for (let n = 0; n < count; n++) norm(resid_mid, n * n_embd, norm2, n * n_embd);
    up.apply(norm2, 0, count, ffn_hidden, 0);
    for (let i = 0; i < ffn_hidden.length; i++) ffn_hidden[i] = activation(ffn_hidden[i]);
    down.apply(ffn_hidden, 0, count, ffn, 0);
    return { norm2, ffn_hidden, ffn };
  }

  /**
   * One of a layer's stages at all positions; null if none is asked for, or one that there is not.
   * @param {Inspect | null} [asked]
   * @returns {Inspected | null}
   */
  inspect(asked) {
    if (!asked || asked.layer >= this.attention.length) return null;
    const { layer, stage } = asked;
    const { length } = this;
    const end = length * this.gpt.config.n_embd;
    const attention = this.attention[layer];
    let values;
    if (stage === "resid_pre") values = attention.resid_pre.slice(0, end);
    else if (stage === "norm1") values = attention.normed(attention.resid_pre, 0, length);
    else if (stage === "resid_post") values = this.streams[layer + 1].slice(0, end);
    else values = this.feedForward(layer, attention.result(0, length), length)?.[stage];
    if (!values) return null;
    return { layer, stage, columns: values.length / length, values };
  }

  /**
   * (V,) scores of the next character after a position: unembed(norm(stream)) at a depth. 0 is the
   * embedding; n_layer gives the model's prediction, which is kept: it must not be written to.
   * @param {number} position
   * @param {number} depth
   * @returns {Float32Array}
   */
  logits(position, depth = this.gpt.config.n_layer) {
    const { finalNorm, output, config } = this.gpt;
    const last = depth === config.n_layer;
    if (last && this.predictions[position]) return this.predictions[position];
    finalNorm(this.streams[depth], position * config.n_embd, this.normed, 0);
    const logits = new Float32Array(config.vocab_size);
    output.apply(this.normed, 0, 1, logits, 0);
    if (last) this.predictions[position] = logits;
    return logits;
  }

  /** The largest difference of a row of weights' sum from 1. */
  excess() {
    return Math.max(...this.attention.map((each) => each.excess(this.length)));
  }

  /** The stages of the layers. */
  stages() {
    return this.attention.map((each) => each.stages(this.length));
  }
}

/** How many first numbers two lists share. @param {number[]} a @param {number[]} b */
export function common(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}
