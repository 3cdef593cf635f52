// @ts-check
// Unpacks the counting tables of the file (gpt/view/page/counted.py describes the format).

import { inflate } from "../numbers.js";

/** @import { Tables } from "./counting.js" */
/** levels: the number of n-grams of each order.
 * @typedef {{vocabSize: number, levels: number[]}} CountingRecord */

const MOST_DENSE = 32; // candidates of a history that has one bit for each

/**
 * Throws an Error if the tables are damaged.
 * @param {string} base64
 * @param {CountingRecord} record
 * @returns {Promise<Tables>}
 */
export async function unpackCounting(base64, record) {
  try {
    return tablesOf(await inflate(base64), record);
  } catch (error) { // of base64, of gzip with its CRC-32, or of lengths that no array has
    const damaged = "The counting tables in this file are damaged; write the file again.";
    throw new Error(damaged, { cause: error });
  }
}

/**
 * Throws an Error if the data and the record do not match.
 * @param {Uint8Array} data
 * @param {CountingRecord} record
 * @returns {Tables}
 */
function tablesOf(data, { vocabSize, levels }) {
  const reading = new TableReader(data, vocabSize, levels);
  const known = reading.unigrams(levels[0], vocabSize) &&
    levels.slice(1).every((level) => reading.longer(level));
  reading.lastCounts(levels[levels.length - 1]);
  if (!known || reading.at !== data.length) throw new Error("the data do not match the record");
  const { symbols, counts, children } = reading;
  return { symbols, counts, children };
}

/** Reads the n-grams of one order after the other. */
class TableReader {
  /** @param {Uint8Array} data @param {number} vocabSize @param {number[]} levels */
  constructor(data, vocabSize, levels) {
    const grams = levels.reduce((sum, level) => sum + level, 0);
    const histories = grams - levels[levels.length - 1] + 1;
    this.data = data;
    this.at = 0; // the next byte
    this.gram = 0; // the next n-gram
    this.node = 0; // the next history
    this.symbols = wholes(vocabSize - 1, grams);
    this.counts = new Uint32Array(grams);
    this.children = wholes(vocabSize, histories);
    this.starts = new Uint32Array(histories + 1); // as in Trie
    this.shorter = new Uint32Array(grams + 1); // node -> the node without its first character
  }

  /** @param {number} count @param {number} vocabSize @returns {boolean} whether all are known */
  unigrams(count, vocabSize) {
    let symbol = -1;
    while (this.gram < count) this.symbols[this.gram++] = symbol += 1 + this.#gap();
    this.#finishNode(0);
    return symbol < vocabSize;
  }

  /** The n-grams of the next order. @param {number} count @returns {boolean} whether there are so many */
  longer(count) {
    const [{ children, starts, shorter }, first, end] = [this, this.node, this.gram + 1];
    const bits = this.#beginsOfBits(first, end);
    while (this.node < end) {
      const [before, candidates] = [this.gram, starts[shorter[this.node]]];
      const kinds = children[shorter[this.node]];
      if (kinds <= MOST_DENSE) {
        this.#dense(bits[kinds], candidates, kinds);
        bits[kinds] += kinds;
      } else this.#sparse(candidates, kinds);
      this.#finishNode(before);
    }
    return this.gram === end - 1 + count;
  }

  /** The counts of the last n-grams, which do not follow from others. @param {number} count */
  lastCounts(count) {
    const first = this.counts.length - count;
    for (let plane = 0; plane < 4; plane++) {
      const begin = this.at + plane * count;
      for (let i = 0; i < count; i++) this.counts[first + i] |= this.data[begin + i] << 8 * plane;
    }
    this.at += 4 * count;
  }

  /**
   * Where the bits of the histories with k candidates begin, for each k. Moves on to the gaps.
   * @param {number} first
   * @param {number} end
   */
  #beginsOfBits(first, end) {
    const begins = new Float64Array(MOST_DENSE + 2);
    for (let node = first; node < end; node++) {
      const kinds = this.children[this.shorter[node]];
      if (kinds <= MOST_DENSE) begins[kinds + 1] += kinds;
    }
    begins[0] = 8 * this.at;
    for (let k = 0; k <= MOST_DENSE; k++) begins[k + 1] += begins[k];
    this.at = Math.ceil(begins[MOST_DENSE + 1] / 8);
    return begins;
  }

  /** @param {number} bit @param {number} candidates @param {number} kinds */
  #dense(bit, candidates, kinds) {
    for (let place = 0; place < kinds; place++, bit++) {
      if (this.data[bit >> 3] & 128 >> (bit & 7)) this.#add(candidates + place);
    }
  }

  /** @param {number} candidates @param {number} kinds */
  #sparse(candidates, kinds) {
    for (let place = this.#gap(); place < kinds; place += 1 + this.#gap()) {
      this.#add(candidates + place);
    }
  }

  #gap() {
    let gap = 0;
    for (; this.data[this.at] === 255; this.at++) gap += 255;
    return gap + this.data[this.at++];
  }

  /** @param {number} candidate the new n-gram without its first character */
  #add(candidate) {
    this.symbols[this.gram] = this.symbols[candidate];
    this.counts[candidate]++;
    this.shorter[++this.gram] = candidate + 1;
  }

  /** @param {number} before n-grams before those with this history */
  #finishNode(before) {
    this.children[this.node] = this.gram - before;
    this.starts[++this.node] = this.gram;
  }
}

/** An array of the smallest type that holds numbers up to `most`. @param {number} most @param {number} length */
function wholes(most, length) {
  if (most < 2 ** 8) return new Uint8Array(length);
  return most < 2 ** 16 ? new Uint16Array(length) : new Uint32Array(length);
}
