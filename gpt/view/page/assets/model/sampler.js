// @ts-check
// From logits to characters: temperature, filters, the draw and the window, as gpt/reading/sampler.py.
// The same options and logits give the same characters.

import { Uniforms } from "./random.js";

/**
 * Continues one text. start: forgets everything, reads the ids, and returns the (V,) logits of what
 * follows; step: reads one more id.
 * @typedef {object} Decoder
 * @property {number} blockSize
 * @property {(ids: number[]) => ArrayLike<number>} start
 * @property {(id: number) => ArrayLike<number>} step
 */
/**
 * The options of `gptx sample`.
 * @typedef {object} SampleOptions
 * @property {number} temperature
 * @property {number | null} [top_k]
 * @property {number | null} [top_p]
 * @property {number | null} [min_p]
 * @property {number} seed
 */
/**
 * The distribution of the next character, (V,). before: after temperature; chances: after the filters
 * too; removed: what removed each character, as an index into SHAPING, −1 if nothing did.
 * @typedef {{before: Float64Array, chances: Float64Array, removed: Int8Array}} Filtered
 */
/** @typedef {(ranked: Float64Array, value: number) => ArrayLike<boolean>} Filter */

/**
 * Name of the option -> which characters it keeps: (V,) probabilities from the largest down (equal
 * ones by id), and the option's value -> (V,) true for those kept. In order of application.
 */
export const FILTERS = { top_k: topK, top_p: topP, min_p: minP };
/** What changes the model's distribution, in the order of application. */
export const SHAPING = ["temperature", ...Object.keys(FILTERS)];

/** Exactly k. @type {Filter} */
function topK(ranked, k) {
  return Array.from(ranked, (_, n) => n < k);
}

/** The fewest whose sum reaches p. @type {Filter} */
function topP(ranked, p) {
  let sum = 0;
  return Array.from(ranked, (chance) => (sum += chance) - chance < p);
}

/** At least p times the largest. @type {Filter} */
function minP(ranked, p) {
  const least = p * largest(ranked);
  return Array.from(ranked, (chance) => chance >= least);
}

/**
 * The distribution after temperature, and after the filters. Temperature 0 gives all to the likeliest
 * (the first of equals). Each filter gets what the one before it kept, scaled to sum 1.
 * @param {ArrayLike<number>} scores (V,) logits
 * @param {SampleOptions} options
 * @returns {Filtered}
 */
export function probabilities(scores, options) {
  const before = heated(scores, options.temperature);
  const removed = Int8Array.from(before, (chance) => chance > 0 ? -1 : 0);
  const named = Object.entries(FILTERS).map(([name, filter], n) => {
    return { filter, value: options[/** @type {keyof FILTERS} */ (name)], number: n + 1 };
  });
  const given = named.filter(({ value }) => value !== null && value !== undefined);
  if (!given.length) return { before, chances: before, removed };
  const order = sortedBy(before.map((chance) => -chance));
  let ranked = Float64Array.from(order, (id) => before[id]);
  for (const { filter, value, number } of given) {
    const kept = filter(ranked, /** @type {number} */ (value));
    ranked = scaled(ranked.map((chance, n) => kept[n] ? chance : 0));
    order.forEach((id, n) => {
      if (!(ranked[n] > 0) && removed[id] < 0) removed[id] = number;
    });
  }
  const chances = new Float64Array(before.length);
  order.forEach((id, n) => chances[id] = ranked[n]);
  return { before, chances, removed };
}

/** Log-probabilities of (V,) logits. @param {ArrayLike<number>} logits */
export function logSoftmax(logits) {
  const most = largest(logits);
  const below = Float64Array.from(logits);
  let sum = 0;
  for (let w = 0; w < below.length; w++) sum += Math.exp(below[w] -= most);
  const normaliser = Math.log(sum);
  return below.map((score) => score - normaliser);
}

/** @param {ArrayLike<number>} values */
function largest(values) {
  let most = values[0];
  for (let w = 1; w < values.length; w++) if (values[w] > most) most = values[w];
  return most;
}

/** The probabilities at a temperature. @param {ArrayLike<number>} scores @param {number} temperature */
function heated(scores, temperature) {
  const most = largest(scores);
  if (temperature === 0) {
    const chosen = new Float64Array(scores.length);
    chosen[Array.prototype.indexOf.call(scores, most)] = 1;
    return chosen;
  }
  return scaled(Float64Array.from(scores, (score) => Math.exp((score - most) / temperature)));
}

/** Divides the weights by their sum. @param {Float64Array} weights */
function scaled(weights) {
  const sum = pairwiseSum(weights);
  return weights.map((weight) => weight / sum);
}

/** Indices from the smallest value up, equal ones in their order. @param {Float64Array} values */
function sortedBy(values) {
  return [...values.keys()].sort((a, b) => {
    return values[a] < values[b] ? -1 : values[a] > values[b] ? 1 : 0;
  });
}

/**
 * The sum as numpy rounds it: eight sums side by side, and halves of more than 128 numbers.
 * @param {Float64Array} values
 * @returns {number}
 */
export function pairwiseSum(values) {
  const count = values.length;
  if (count > 128) {
    const half = (count >> 1) & ~7;
    return pairwiseSum(values.subarray(0, half)) + pairwiseSum(values.subarray(half));
  }
  const whole = count < 8 ? 0 : count - count % 8;
  const sums = [0, 0, 0, 0, 0, 0, 0, 0];
  for (let n = 0; n < whole; n++) sums[n % 8] += values[n];
  let sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
    ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (let n = whole; n < count; n++) sum += values[n];
  return sum;
}

/**
 * The id that a number in [0, 1) draws, by inversion.
 * @param {Float64Array} chances
 * @param {number} uniform
 */
export function draw(chances, uniform) {
  const total = chances.reduce((sum, chance) => sum + chance, 0);
  let [id, sum] = [0, chances[0]];
  while (sum <= uniform * total && id < chances.length - 1) sum += chances[++id];
  return id;
}

/**
 * Where the context of a text of `length` characters begins: at its start while it fits, after that
 * at the next multiple of half of blockSize.
 * @param {number} length
 * @param {number} blockSize
 */
export function windowStart(length, blockSize) {
  const hop = Math.max(1, Math.floor(blockSize / 2));
  return Math.max(0, Math.ceil((length - blockSize) / hop) * hop);
}

/**
 * The id of the character before an empty prompt, which is not part of the sample: a newline, or the
 * first character. @param {readonly string[]} characters
 */
export function beforeAll(characters) {
  return Math.max(0, characters.indexOf("\n"));
}

/** Writes one sample, character by character. */
export class Writer {
  /**
   * @param {Decoder} decoder used by nothing else until the sample ends
   * @param {ArrayLike<number>} ids of the prompt, at least one
   * @param {SampleOptions} options
   */
  constructor(decoder, ids, options) {
    this.decoder = decoder;
    this.options = options;
    this.uniforms = new Uniforms(options.seed);
    this.window = Array.from(ids).slice(windowStart(ids.length, decoder.blockSize));
    this.moved = true;
  }

  /** Draws a character. @returns {number} its id */
  next() {
    const { decoder, window, uniforms } = this;
    const move = windowStart(window.length, decoder.blockSize);
    if (move) {
      window.splice(0, move);
      this.moved = true;
    }
    const logits = this.moved
      ? decoder.start([...window])
      : decoder.step(window[window.length - 1]);
    const { chances } = probabilities(logits, this.options);
    const id = draw(chances, uniforms.next());
    window.push(id);
    this.moved = false;
    return id;
  }
}
