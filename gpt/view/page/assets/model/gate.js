// @ts-check
// How the GPT and counting predict together: a product of experts, ln p(w) = a·ln p_GPT(w) +
// b·ln p_counting(w) − ln Z. The weights a and b are linear in features of the position
// (gpt/counting/gate.py).

/** @import { Trie } from "./counting.js" */
/**
 * Log-probabilities (V,) of the GPT, of counting and of both together; and the weights a and b of the
 * first two. Of the longest history that counting knows, length: its characters; total: how often it
 * was counted, or if `pairs`, how many distinct pairs of a character before and one after it there
 * are; kinds: how many distinct characters followed it.
 * @typedef {object} Expected
 * @property {Float64Array} gpt
 * @property {Float64Array} counting
 * @property {Float64Array} both
 * @property {number[]} weights
 * @property {number} length
 * @property {number} total
 * @property {number} kinds
 * @property {boolean} pairs
 */

/** The number of features, see FEATURES of gpt/counting/gate.py. */
const GATE_FEATURES = 3;
const MOST_WEIGHT = 4;

/** The counting expert of a checkpoint, and the gate that mixes it with the GPT. */
export class Mixture {
  /**
   * Throws an Error for a gate that is none.
   * @param {Trie} trie
   * @param {readonly (readonly number[])[]} gate (2, GATE_FEATURES)
   */
  constructor(trie, gate) {
    const whole = gate.length === 2 && gate.every((row) => row.length === GATE_FEATURES);
    if (!whole || !gate.flat().every(Number.isFinite)) {
      throw new Error("The gate in this file is damaged; write the file again.");
    }
    this.trie = trie;
    this.gate = gate;
  }

  /**
   * @param {ArrayLike<number>} logits (V,) of the GPT
   * @param {readonly number[]} nodes of the text
   * @returns {Expected}
   */
  predict(logits, nodes) {
    const { counted, counting, below, normaliser, weights } = this.#weighed(logits, nodes);
    const { depth, total, kinds } = counted;
    return {
      gpt: below.map((score) => score - normaliser),
      counting,
      both: logSoftmax(product(below, counting, weights)),
      weights,
      ...{ length: depth - 1, total, kinds, pairs: depth < this.trie.orders },
    };
  }

  /**
   * The same arguments -> (V,) the logits of both together.
   * @param {ArrayLike<number>} logits
   * @param {readonly number[]} nodes
   */
  scores(logits, nodes) {
    const { counting, below, weights } = this.#weighed(logits, nodes);
    return product(below, counting, weights);
  }

  /**
   * What each of the two says, and their weights.
   * @param {ArrayLike<number>} logits
   * @param {readonly number[]} nodes
   */
  #weighed(logits, nodes) {
    const counted = this.trie.predict(nodes);
    const counting = counted.chances.map(Math.log);
    const { below, normaliser } = shifted(logits);
    const entropy = -expectation(counted.chances, counting);
    const features = [1, entropy, expectation(counted.chances, below) - normaliser];
    const weights = this.gate.map((row) => {
      const share = row.reduce((sum, weight, f) => sum + weight * features[f], 0);
      return Math.min(Math.max(share, 0), MOST_WEIGHT);
    });
    return { counted, counting, below, normaliser, weights };
  }
}

/**
 * Log-probabilities in float64.
 * @param {ArrayLike<number>} logits
 */
export function logSoftmax(logits) {
  const { below, normaliser } = shifted(logits);
  return below.map((score) => score - normaliser);
}

/**
 * below: the logits less the largest; normaliser: the logarithm of the sum of their powers of e.
 * @param {ArrayLike<number>} logits
 */
function shifted(logits) {
  const most = largest(logits);
  const below = Float64Array.from(logits);
  let sum = 0;
  for (let w = 0; w < below.length; w++) sum += Math.exp(below[w] -= most);
  return { below, normaliser: Math.log(sum) };
}

/** Of values with these probabilities. @param {Float64Array} chances @param {Float64Array} values */
function expectation(chances, values) {
  let sum = 0;
  for (let n = 0; n < values.length; n++) sum += chances[n] * values[n];
  return sum;
}

/** @param {ArrayLike<number>} values */
export function largest(values) {
  let most = values[0];
  for (let w = 1; w < values.length; w++) if (values[w] > most) most = values[w];
  return most;
}

/** @param {Float64Array} below @param {Float64Array} counting @param {readonly number[]} weights */
function product(below, counting, [a, b]) {
  return below.map((score, w) => a * score + b * counting[w]);
}
