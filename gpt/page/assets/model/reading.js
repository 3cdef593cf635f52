// @ts-check
// Reads a text with a GPT, and keeps all stages of the computation for all positions. When the text
// changes, only the positions from the first change on are computed again. Stages are float32; sums are
// in double precision. T is the number of positions, C n_embd, D head_size, V vocab_size.

import { multiply } from "./linear.js";

/** @import { Gpt } from "./gpt.js" */
/** @import { Head } from "./protocol.js" */
/** @typedef {Float32Array<ArrayBuffer>} Numbers */

/**
 * The stages of a layer. q, k, v, context: (T, C), all heads of a position side by side. mid: (T, C), the
 * residual stream between attention and feed-forward. weights: by head, the lower triangle, whose row i
 * begins at i(i + 1)/2. Heads that are switched off have weights, too.
 * @typedef {{q: Numbers, k: Numbers, v: Numbers, context: Numbers, mid: Numbers, weights: Numbers[]}} Stages
 */

const AT_ONCE = 16; // positions that are computed together: their numbers fit in a core's cache

/** A text that a model has read. */
export class Reading {
  /**
   * @param {Gpt} gpt
   * @param {readonly Head[]} off heads that are switched off: they give their average output
   */
  constructor(gpt, off = []) {
    const { n_layer, n_head, head_size } = gpt.config;
    this.gpt = gpt;
    this.off = new Set(off.map(({ layer, head }) => layer * n_head + head));
    /** @type {number[]} The text. */
    this.ids = [];
    const empty = () => new Float32Array(0);
    /** The residual stream before every layer and after the last one; (T, C) each. */
    this.streams = Array.from({ length: n_layer + 1 }, empty);
    /** @type {Stages[]} */
    this.layers = gpt.layers.map(() => ({
      q: empty(),
      k: empty(),
      v: empty(),
      context: empty(),
      mid: empty(),
      weights: Array.from({ length: n_head }, empty),
    }));
    /** @type {Float32Array[]} The logits (V,) that `logits` has computed, by position. */
    this.predictions = [];
    this.row = empty(); // scores of one query
    this.sums = new Float64Array(head_size);
  }

  get length() {
    return this.ids.length;
  }

  /**
   * Reads a text. Only the positions from the first changed id on are computed. Throws a RangeError for
   * unknown ids, and for a text that is longer than the model's context.
   * @param {readonly number[]} ids
   */
  read(ids) {
    const { vocab_size, block_size } = this.gpt.config;
    if (ids.length > block_size) {
      throw new RangeError(`The model reads at most ${block_size} characters at once.`);
    }
    if (ids.some((id) => !Number.isInteger(id) || id < 0 || id >= vocab_size)) {
      throw new RangeError("The text has a character that the model does not know.");
    }
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    this.ids.length = Math.min(same, this.length);
    this.predictions.length = Math.min(same, this.predictions.length);
    while (this.length < ids.length) {
      this.#extend(ids.slice(this.length, this.length + AT_ONCE));
    }
  }

  /** Computes the positions of new ids at the end of the text. @param {readonly number[]} ids */
  #extend(ids) {
    const { gpt, streams } = this;
    const { n_embd } = gpt.config;
    const first = this.length;
    streams.forEach((stream, n) => streams[n] = withRoom(stream, (first + ids.length) * n_embd));
    ids.forEach((id, n) => {
      const at = (first + n) * n_embd;
      streams[0].set(gpt.embedding.subarray(id * n_embd, (id + 1) * n_embd), at);
      gpt.position.embed?.(streams[0], at, first + n);
    });
    gpt.layers.forEach((_, layer) => this.#block(layer, first, ids.length));
    this.ids.push(...ids);
  }

  /**
   * Computes a layer for `count` new positions: from the stream before it to the stream after it.
   * @param {number} number of the layer
   * @param {number} first
   * @param {number} count
   */
  #block(number, first, count) {
    const { n_embd } = this.gpt.config;
    const { proj, feedForward } = this.gpt.layers[number];
    const [stream, next] = this.streams.slice(number);
    const [start, end] = [first * n_embd, (first + count) * n_embd];
    this.#attend(number, first, count);
    const { context, mid } = this.layers[number];
    const attended = proj.apply(context.subarray(start, end), count);
    for (let i = start; i < end; i++) mid[i] = stream[i] + attended[i - start];
    next.set(mid.subarray(start, end), start);
    if (!feedForward) return;
    const { norm2, up, down } = feedForward;
    const hidden = up.apply(norm2(mid, first, count), count);
    for (let i = 0; i < hidden.length; i++) hidden[i] = this.gpt.activation(hidden[i]);
    const added = down.apply(hidden, count);
    for (let i = start; i < end; i++) next[i] += added[i - start];
  }

  /** Computes the attention of a layer, up to the outputs of its heads.
   * @param {number} number @param {number} first @param {number} count */
  #attend(number, first, count) {
    const { position, layers, means, config: { n_embd, n_head, head_size } } = this.gpt;
    const { norm1, qkv } = layers[number];
    const stages = this.layers[number];
    const end = first + count;
    for (const name of /** @type {const} */ (["q", "k", "v", "context", "mid"])) {
      stages[name] = withRoom(stages[name], end * n_embd);
    }
    stages.weights = stages.weights.map((rows) => withRoom(rows, rowStart(end)));
    this.row = withRoom(this.row, end);
    const { q, k, v, context } = stages;
    const packed = qkv.apply(norm1(this.streams[number], first, count), count);
    for (let n = 0, from = 0; n < count; n++) {
      const at = (first + n) * n_embd;
      for (const part of [q, k, v]) part.set(packed.subarray(from, from += n_embd), at);
      for (const part of [q, k]) position.rotate?.(part, at, first + n);
    }
    for (let query = first; query < end; query++) {
      for (let head = 0; head < n_head; head++) {
        this.#weigh(stages, head, query);
        const index = number * n_head + head;
        if (this.off.has(index)) {
          const mean = means.subarray(index * head_size, (index + 1) * head_size);
          context.set(mean, query * n_embd + head * head_size);
        } else this.#mix(stages, head, query);
      }
    }
  }

  /** Computes a head's weights for a query. @param {Stages} stages @param {number} head @param {number} query */
  #weigh({ q, k, weights }, head, query) {
    const { n_embd, head_size } = this.gpt.config;
    const scores = this.row;
    const [keys, at, to] = [query + 1, head * head_size, rowStart(query)];
    const scale = Math.fround(head_size ** -0.5);
    multiply(k, at, n_embd, head_size, keys, q, query * n_embd + at, scores, 0);
    let [largest, total] = [-Infinity, 0];
    for (let key = 0; key < keys; key++) {
      scores[key] *= scale;
      largest = Math.max(largest, scores[key]);
    }
    for (let key = 0; key < keys; key++) {
      scores[key] = Math.exp(scores[key] - largest);
      total += scores[key];
    }
    for (let key = 0; key < keys; key++) weights[head][to + key] = scores[key] / total;
  }

  /** Computes the output of a head for a query: the weighted sum of the values.
   * @param {Stages} stages @param {number} head @param {number} query */
  #mix({ v, weights, context }, head, query) {
    const { n_embd, head_size } = this.gpt.config;
    const sums = this.sums.fill(0);
    const at = head * head_size;
    const row = rowStart(query);
    for (let key = 0; key <= query; key++) {
      const weight = weights[head][row + key];
      for (let d = 0, i = key * n_embd + at; d < head_size; d++) sums[d] += weight * v[i++];
    }
    context.set(sums, query * n_embd + at);
  }

  /**
   * The logits (V,) of the character after a position, from the stream at a depth: 0 is the embedding;
   * n_layer gives the model's prediction, an array that must not be changed.
   * @param {number} position
   * @param {number} depth
   * @returns {Float32Array}
   */
  logits(position, depth = this.gpt.config.n_layer) {
    const { norm, output, config } = this.gpt;
    const logits = () => output.apply(norm(this.streams[depth], position, 1), 1);
    return depth === config.n_layer ? this.predictions[position] ??= logits() : logits();
  }

  /** The weights of a head for a query: one for every key. @param {Head} head @param {number} query */
  weights({ layer, head }, query) {
    return this.layers[layer].weights[head].subarray(rowStart(query), rowStart(query + 1));
  }

  /** The products q⊙k (D,) of a head for a query and a key; they sum to the score.
   * @param {Head} head @param {number} query @param {number} key */
  products({ layer, head }, query, key) {
    const { n_embd, head_size } = this.gpt.config;
    const { q, k } = this.layers[layer];
    const [from, to] = [query, key].map((position) => position * n_embd + head * head_size);
    return Float32Array.from({ length: head_size }, (_, d) => q[from + d] * k[to + d]);
  }

  /** The scores q·k (T, T) of a head, with the keys after the query. @param {Head} head */
  scores({ layer, head }) {
    const { n_embd, head_size } = this.gpt.config;
    const { q, k } = this.layers[layer];
    const [length, at] = [this.length, head * head_size];
    const scores = new Float32Array(length * length);
    for (let query = 0; query < length; query++) {
      const from = query * n_embd + at;
      multiply(k, at, n_embd, head_size, length, q, from, scores, query * length);
    }
    return scores;
  }
}

/** The index at which the row of a query begins in a lower triangle. @param {number} query */
export function rowStart(query) {
  return query * (query + 1) / 2;
}

/** The array, or a longer copy with room for `length` numbers. @param {Numbers} array @param {number} length */
function withRoom(array, length) {
  if (length <= array.length) return array;
  const longer = new Float32Array(Math.max(length, 2 * array.length));
  longer.set(array);
  return longer;
}
