// @ts-check
// Next characters with their probabilities, those of each depth.

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

/**
 * @template T
 * @param {new (buffer: ArrayBuffer) => T} Numbers
 * @param {string | T} given base64, or the numbers
 */
function asNumbers(Numbers, given) {
  return typeof given === "string" ? new Numbers(bytes(given).buffer) : given;
}
