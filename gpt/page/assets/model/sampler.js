// @ts-check
// Samples a character from logits, with temperature and filters, as gpt/reading/sampler.py does.

/** @import { SampleOptions } from "./protocol.js" */

/**
 * Option -> the number of characters that it keeps of `ranked` probabilities, the largest first. The
 * filters are applied in this order. @type {Record<string, (ranked: number[], value: number) => number>}
 */
export const FILTERS = {
  /** Keeps k characters. */
  top_k: (_, k) => k,
  /** Keeps the fewest characters whose probabilities sum to at least p. */
  top_p(ranked, p) {
    let [kept, sum] = [0, 0];
    while (sum < p && kept < ranked.length) sum += ranked[kept++];
    return kept;
  },
  /** Keeps the characters with at least p times the largest probability. */
  min_p: (ranked, p) => ranked.filter((chance) => chance >= p * ranked[0]).length,
};

/**
 * The probabilities (vocab_size,) after temperature and filters. Temperature 0 gives 1 to the likeliest
 * character. After every filter, the probabilities are scaled to sum 1.
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

/** The log-probabilities of logits. @param {ArrayLike<number>} logits */
export function logSoftmax(logits) {
  const most = largest(logits);
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id] - most);
  const normaliser = most + Math.log(sum);
  return Float64Array.from(logits, (logit) => logit - normaliser);
}

/** The largest value. @param {ArrayLike<number>} values */
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

/** The weights divided by their sum. @param {Float64Array} weights */
function scaled(weights) {
  const sum = weights.reduce((total, weight) => total + weight);
  return weights.map((weight) => weight / sum);
}

/** Draws an id. uniform: a random number in [0, 1), which the cumulative probabilities turn into an id.
 * @param {Float64Array} chances @param {number} uniform */
export function draw(chances, uniform) {
  let rest = uniform;
  const id = chances.findIndex((chance) => (rest -= chance) < 0);
  return id < 0 ? chances.findLastIndex((chance) => chance > 0) : id; // rounded sums may stay below 1
}

/**
 * The position at which the window of a text begins: 0 if the text fits into blockSize, otherwise the
 * first multiple of half of blockSize from which the text fits.
 * @param {number} length
 * @param {number} blockSize
 */
export function windowStart(length, blockSize) {
  const hop = Math.max(1, Math.floor(blockSize / 2));
  return Math.max(0, Math.ceil((length - blockSize) / hop) * hop);
}

/**
 * The id that the model reads before an empty text: the newline's, otherwise that of the first character.
 * @param {readonly string[]} characters
 */
export function beforeAll(characters) {
  return Math.max(0, characters.indexOf("\n"));
}
