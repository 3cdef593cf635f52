// @ts-check
// Next characters with their probabilities: those of each depth, and those of the GPT, of counting
// and of both together.

import { bytes } from "./numbers.js";

/** @typedef {{character: string, label: string, probability: number}} Guess */
/**
 * @typedef {object} GuessesPayload
 * @property {number} most characters of a place
 * @property {string[]} characters that occur
 * @property {string[]} labels of the same
 * @property {string | Uint32Array} ids indices of these, by place
 * @property {string | Float32Array} probabilities
 */
/** @typedef {GuessesPayload & {weights: string | Float32Array, history: string | Uint32Array}}
 * ExpertsPayload */
/**
 * A next character with its three probabilities.
 * @typedef {object} Candidate
 * @property {string} character
 * @property {string} label
 * @property {number} gpt
 * @property {number} counting
 * @property {number} both
 */
/**
 * What the gate and counting used at a position. weights: the powers to which the GPT's and
 * counting's probabilities enter their product. length: characters of the longest history that
 * counting knows. total: how often it was counted; if `pairs`, the different pairs of a character
 * before and one after it. kinds: different characters that followed it.
 * @typedef {{weights: number[], length: number, total: number, kinds: number, pairs: boolean}} Used
 */

/** The likeliest characters of each depth and position. Depth 0 is the embedding alone. */
export class Guesses {
  /** @param {GuessesPayload} payload @param {number} length of the text */
  constructor(payload, length) {
    this.payload = payload;
    this.length = length;
    this.ids = asNumbers(Uint32Array, payload.ids);
    this.chances = asNumbers(Float32Array, payload.probabilities);
  }

  /** @param {number} depth @param {number} position @param {number} count @returns {Guess[]} */
  at(depth, position, count) {
    const { most, characters, labels } = this.payload;
    const first = (depth * this.length + position) * most;
    return Array.from({ length: Math.min(count, most) }, (_, n) => {
      const id = this.ids[first + n];
      return { character: characters[id], label: labels[id], probability: this.chances[first + n] };
    });
  }
}

/** What the GPT, counting and both expect at each position. */
export class Experts {
  /** @param {ExpertsPayload} payload */
  constructor(payload) {
    this.payload = payload;
    this.ids = asNumbers(Uint32Array, payload.ids);
    this.chances = asNumbers(Float32Array, payload.probabilities);
    this.weights = asNumbers(Float32Array, payload.weights);
    this.history = asNumbers(Uint32Array, payload.history);
  }

  /** The likeliest together first. @param {number} position @returns {Candidate[]} */
  at(position) {
    const { most, characters, labels } = this.payload;
    return Array.from({ length: most }, (_, n) => {
      const place = position * most + n;
      const id = this.ids[place];
      const [gpt, counting, both] = this.chances.subarray(3 * place, 3 * place + 3);
      return { character: characters[id], label: labels[id], gpt, counting, both };
    });
  }

  /** @param {number} position @returns {Used} */
  used(position) {
    const [length, total, kinds, pairs] = this.history.subarray(4 * position, 4 * position + 4);
    const weights = Array.from(this.weights.subarray(2 * position, 2 * position + 2));
    return { weights, length, total, kinds, pairs: pairs > 0 };
  }

  /**
   * The two characters that one of the three finds likeliest.
   * @param {number} position
   * @param {"gpt" | "counting" | "both"} expert
   * @returns {Guess[]}
   */
  likeliest(position, expert) {
    const all = this.at(position).sort((a, b) => b[expert] - a[expert]);
    return all.slice(0, 2).map(({ character, label, [expert]: probability }) => {
      return { character, label, probability };
    });
  }
}

/**
 * @template T
 * @param {new (buffer: ArrayBuffer) => T} Numbers
 * @param {string | T} given base64, or the numbers
 */
function asNumbers(Numbers, given) {
  return typeof given === "string" ? new Numbers(bytes(given).buffer) : given;
}
