// @ts-check
// From logits to a character: temperature, filters, the draw, and the window, as gpt/reading/sampler.py.

/** @import { SampleOptions } from "./protocol.js" */

/**
 * Name of the option -> how many characters it keeps, of probabilities from the largest down. In order
 * of application. @type {Record<string, (ranked: number[], value: number) => number>}
 */
export const FILTERS = {
  /** Exactly k. */
  top_k: (_, k) => k,
  /** The fewest whose sum reaches p. */
  top_p(ranked, p) {
    let [kept, sum] = [0, 0];
    while (sum < p && kept < ranked.length) sum += ranked[kept++];
    return kept;
  },
  /** Those that have at least p times the largest. */
  min_p: (ranked, p) => ranked.filter((chance) => chance >= p * ranked[0]).length,
};

/**
 * The distribution after temperature and filters, (V,). Temperature 0 gives all to the likeliest (the
 * first of equals). Each filter gets what the one before it kept, scaled to sum 1.
 * @param {ArrayLike<number>} logits
 * @param {SampleOptions} options
 */
export function probabilities(logits, options) {
  let chances = heated(logits, options.temperature);
  const order = [...chances.keys()].sort((a, b) => chances[b] - chances[a]);
  for (const [name, keeps] of Object.entries(FILTERS)) {
    const value = options[/** @type {"top_k" | "top_p" | "min_p"} */ (name)] ?? null;
    if (value === null) continue;
    const kept = keeps(order.map((id) => chances[id]), value);
    for (const id of order.slice(kept)) chances[id] = 0;
    chances = scaled(chances);
  }
  return chances;
}

/** Log-probabilities of (V,) logits. @param {ArrayLike<number>} logits */
export function logSoftmax(logits) {
  const most = largest(logits);
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id] - most);
  const normaliser = most + Math.log(sum);
  return Float64Array.from(logits, (logit) => logit - normaliser);
}

/** @param {ArrayLike<number>} values */
function largest(values) {
  let most = values[0];
  for (let id = 1; id < values.length; id++) if (values[id] > most) most = values[id];
  return most;
}

/** The probabilities at a temperature. @param {ArrayLike<number>} logits @param {number} temperature */
function heated(logits, temperature) {
  const most = largest(logits);
  if (temperature > 0) {
    return scaled(Float64Array.from(logits, (logit) => Math.exp((logit - most) / temperature)));
  }
  const chances = new Float64Array(logits.length);
  chances[Array.prototype.indexOf.call(logits, most)] = 1;
  return chances;
}

/** Divides by the sum. @param {Float64Array} weights */
function scaled(weights) {
  const sum = weights.reduce((total, weight) => total + weight);
  return weights.map((weight) => weight / sum);
}

/** The id that a number in [0, 1) draws, by inversion.
 * @param {Float64Array} chances @param {number} uniform */
export function draw(chances, uniform) {
  let rest = uniform;
  const id = chances.findIndex((chance) => (rest -= chance) < 0);
  return id < 0 ? chances.findLastIndex((chance) => chance > 0) : id; // rounding
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
