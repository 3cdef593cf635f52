// @ts-check
// The counting expert for one text, character by character: interpolated modified Kneser–Ney over the
// n-grams of the training text, with the same operations in the same order as gpt/counting/expert.py.

/** @typedef {Uint8Array | Uint16Array | Uint32Array} Whole */
/**
 * The n-grams of the orders 1 to N, by order, then by history, then by last character. symbols: the
 * last character of each. counts: how many distinct characters precede it; at order N, how often it
 * occurs. children: how many n-grams there are with each history of less than N characters.
 * @typedef {{symbols: Whole, counts: Whole, children: Whole}} Tables
 */
/**
 * What counting says about the next character. chances: (V,) the probability of each. Of the longest
 * history that something followed: depth: its order; total: how often it was counted; kinds: how many
 * distinct characters followed it.
 * @typedef {{chances: Float64Array, depth: number, total: number, kinds: number}} Counted
 */

const FALLBACK_DISCOUNTS = [0.5, 1, 1.5]; // if the counts of counts give none

/**
 * Histories and what follows them. Node 0 is the empty history, node 1 + g is n-gram number g as the
 * history of longer ones. The nodes of a text are its histories of 0, 1, 2 … characters, up to the
 * longest that was counted.
 */
export class Trie {
  /** @param {Tables} tables @param {number} vocabSize */
  constructor({ symbols, counts, children }, vocabSize) {
    this.symbols = symbols;
    this.counts = counts;
    this.vocabSize = vocabSize;
    /** The n-grams with history h have the numbers starts[h] to starts[h + 1] − 1. */
    this.starts = new Uint32Array(children.length + 1);
    for (let h = 0; h < children.length; h++) this.starts[h + 1] = this.starts[h] + children[h];
    /** ends[n] n-grams have the orders 1 to n. */
    this.ends = [0];
    while (this.ends[this.ends.length - 1] < symbols.length) {
      const last = this.ends[this.ends.length - 1];
      this.ends.push(this.starts[Math.min(last + 1, children.length)]);
    }
    this.orders = this.ends.length - 1;
    this.discounts = this.ends.slice(1).map((end, n) => discounts(counts, this.ends[n], end));
  }

  /**
   * The nodes of a text -> its nodes after one more character.
   * @param {readonly number[]} nodes
   * @param {number} symbol
   */
  followed(nodes, symbol) {
    const after = [0];
    for (const node of nodes.slice(0, this.orders - 1)) {
      const gram = this.#find(node, symbol);
      if (gram < 0) break; // what is not in the text is in no longer n-gram of it
      after.push(gram + 1);
    }
    return after;
  }

  /**
   * The nodes of a text.
   * @param {ArrayLike<number>} ids
   */
  nodesOf(ids) {
    let nodes = [0];
    for (let i = Math.max(0, ids.length - this.orders + 1); i < ids.length; i++) {
      nodes = this.followed(nodes, ids[i]);
    }
    return nodes;
  }

  /**
   * What counting says about the next character. P_n(w | h) = (c(hw) − D(c(hw)) + Σ_v D(c(hv)) ·
   * P_{n−1}(w | h')) / Σ_v c(hv), where h' is h without its first character; P_0 is uniform.
   * @param {readonly number[]} nodes
   * @returns {Counted}
   */
  predict(nodes) {
    const { symbols, counts, starts } = this;
    const chances = new Float64Array(this.vocabSize).fill(1 / this.vocabSize);
    const found = { chances, depth: 0, total: 0, kinds: 0 };
    for (let n = 0; n < nodes.length; n++) {
      const [first, end] = [starts[nodes[n]], starts[nodes[n] + 1]];
      const seen = [0, 0, 0]; // n-grams with the counts 0, 1 and 2
      let total = 0;
      for (let g = first; g < end; g++) {
        total += counts[g];
        if (counts[g] < 3) seen[counts[g]]++;
      }
      if (!total) continue; // the start or the end of the counted text
      const kinds = end - first;
      const [, one, two, more] = this.discounts[n];
      const left = seen[1] * one + seen[2] * two + (kinds - seen[0] - seen[1] - seen[2]) * more;
      const share = left / total; // of the order below
      for (let w = 0; w < chances.length; w++) chances[w] *= share;
      const few = [0, (1 - one) / total, (2 - two) / total];
      for (let g = first; g < end; g++) {
        chances[symbols[g]] += counts[g] < 3 ? few[counts[g]] : (counts[g] - more) / total;
      }
      Object.assign(found, { depth: n + 1, total, kinds });
    }
    return found;
  }

  /** The number of the n-gram; −1: there is none. @param {number} node @param {number} symbol */
  #find(node, symbol) {
    let [low, high] = [this.starts[node], this.starts[node + 1]];
    const end = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.symbols[middle] < symbol) low = middle + 1;
      else high = middle;
    }
    return low < end && this.symbols[low] === symbol ? low : -1;
  }
}

/**
 * What is subtracted from a count of 0, 1, 2, and 3 or more (Chen & Goodman 1999).
 * @param {Whole} counts of the n-grams of an order, from `first` on
 * @param {number} first
 * @param {number} end
 */
function discounts(counts, first, end) {
  const seen = [0, 0, 0, 0, 0, 0]; // n-grams with the counts 0, 1, … 4, more
  for (let g = first; g < end; g++) seen[Math.min(counts[g], 5)]++;
  const [, n1, n2, n3, n4] = seen;
  let found = FALLBACK_DISCOUNTS;
  if (n1 && n2 && n3 && n4) {
    const y = n1 / (n1 + 2 * n2);
    const estimated = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3];
    if (Math.min(...estimated) > 0) found = estimated;
  }
  return [0, ...found];
}
