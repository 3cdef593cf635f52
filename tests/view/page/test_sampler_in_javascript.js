// @ts-check
// Functions for test_sampler_in_javascript.py.

import { Uniforms } from "../../../gpt/view/page/assets/model/random.js";
import * as sampler from "../../../gpt/view/page/assets/model/sampler.js";

export { beforeAll, draw, pairwiseSum } from "../../../gpt/view/page/assets/model/sampler.js";

/** @typedef {import("../../../gpt/view/page/assets/model/sampler.js").SampleOptions} Options */

export function shaping() {
  return { filters: Object.keys(sampler.FILTERS), shaping: sampler.SHAPING };
}

/** @param {number} seed @param {number} count */
export function uniforms(seed, count) {
  const numbers = new Uniforms(seed);
  return Float64Array.from({ length: count }, () => numbers.next());
}

/** @param {number[][]} cases */
export function windowStarts(cases) {
  return cases.map(([length, blockSize]) => sampler.windowStart(length, blockSize));
}

/** @param {Float64Array} scores @param {Options} options */
export function filtered(scores, options) {
  const { before, chances, removed } = sampler.probabilities(scores, options);
  return { before, chances, removed: [...removed] };
}

/** Logits from the last three ids and the number of ids, as Toy in the tests. */
class Toy {
  /** @param {number} size @param {number} blockSize */
  constructor(size, blockSize) {
    this.size = size;
    this.blockSize = blockSize;
    this.starts = 0;
    /** @type {number[]} */
    this.ids = [];
  }

  /** @param {number[]} ids */
  start(ids) {
    this.starts++;
    this.ids = [...ids];
    return this.#logits();
  }

  /** @param {number} id */
  step(id) {
    this.ids.push(id);
    return this.#logits();
  }

  #logits() {
    const count = this.ids.length;
    if (count > this.blockSize) throw new Error(`${count} ids are more than ${this.blockSize}`);
    const [c, b, a] = this.ids.slice(-3).reverse();
    const state = 7 * c + 5 * (b ?? 0) + 3 * (a ?? 0) + 11 * count;
    return Float32Array.from({ length: this.size }, (_, v) => (state * (v + 3) + v * v) % 61 / 8);
  }
}

/**
 * The text that a toy writes.
 * @param {number} length
 * @param {number} blockSize
 * @param {Int32Array} prompt
 * @param {Options} options
 * @param {number} size
 */
export function written(length, blockSize, prompt, options, size) {
  const toy = new Toy(size, blockSize);
  const writer = new sampler.Writer(toy, prompt, options);
  const ids = Array.from({ length }, () => writer.next());
  return { ids, starts: toy.starts };
}
