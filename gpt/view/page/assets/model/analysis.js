// @ts-check
// One text under one model: everything that the page shows of it. What earlier positions gave is kept
// while the text changes at its end. T positions, V vocab_size, K characters of a list.

import { contributionsOf } from "./contributions.js";
import { common, Reading } from "./reading.js";
import { logSoftmax, windowStart } from "./sampler.js";

/** @import { Changes } from "./attention.js" */
/** @import { Gpt } from "./gpt.js" */
/** Ids with their probabilities, the likeliest first. @typedef {{ids: number[], chances: number[]}} Likeliest */
/**
 * The arrays of a subject (see SubjectPayload), ids instead of characters; begin: where the window
 * begins in the text; next: (V,) log-probabilities of the next character; sums: the largest
 * difference of a row's sum from 1.
 * @typedef {object} Findings
 * @property {number} begin
 * @property {number} sums
 * @property {Float32Array[]} weights
 * @property {Record<string, any>} details
 * @property {{most: number, ids: Uint32Array, probabilities: Float32Array}} lens
 * @property {Float32Array} surprisals
 * @property {Float64Array} next
 * @property {import("./contributions.js").Contributions | null} contributions to the asked logit
 * @property {import("./reading.js").Inspected | null} inspected the asked stage
 */

const MOST_SHOWN = 8; // characters of a list

export class Analysis {
  /**
   * @param {Gpt} gpt
   * @param {Changes | null} changes
   */
  constructor(gpt, changes) {
    this.gpt = gpt;
    this.reading = new Reading(gpt, changes);
    /** @type {Likeliest[][]} by depth, by position */
    this.lens = Array.from({ length: gpt.config.n_layer + 1 }, () => []);
  }

  /** Everything about a text of one or more characters.
   * @param {Pick<import("./worker.js").Ask, "ids" | "logit" | "inspect">} ask @returns {Findings} */
  read({ ids, logit, inspect }) {
    const { reading, gpt, lens } = this;
    const begin = windowStart(ids.length, gpt.config.block_size);
    const window = ids.slice(begin);
    const known = common(reading.ids, window);
    reading.truncate(known);
    reading.append(window.slice(known));
    lens.forEach((row, depth) => {
      row.length = Math.min(row.length, known);
      for (let at = row.length; at < window.length; at++) {
        row.push(likeliest(reading.logits(at, depth)));
      }
    });
    const last = window.length - 1;
    const stages = reading.stages();
    return {
      begin,
      sums: reading.excess(),
      weights: stages.map(({ weights }) => weights),
      details: Object.fromEntries(stages.map(({ weights: _, ...rest }, layer) => [layer, rest])),
      lens: this.#lens(window.length),
      surprisals: Float32Array.from(
        window.slice(1),
        (id, at) => -logSoftmax(reading.logits(at))[id],
      ),
      next: logSoftmax(reading.logits(last)),
      contributions: contributionsOf(reading, logit),
      inspected: reading.inspect(inspect),
    };
  }

  /** (depths, T, K) @param {number} length */
  #lens(length) {
    const most = Math.min(MOST_SHOWN, this.gpt.config.vocab_size);
    const ids = new Uint32Array(this.lens.length * length * most);
    const probabilities = new Float32Array(ids.length);
    this.lens.flat().forEach((found, place) => {
      ids.set(found.ids, place * most);
      probabilities.set(found.chances, place * most);
    });
    return { most, ids, probabilities };
  }
}

/** The likeliest characters of (V,) logits. @param {ArrayLike<number>} logits @returns {Likeliest} */
function likeliest(logits) {
  const ids = highest(logits, MOST_SHOWN);
  const logs = logSoftmax(logits);
  return { ids, chances: ids.map((id) => Math.exp(logs[id])) };
}

/**
 * The indices of the largest values, the largest first, of equal ones the first.
 * @param {ArrayLike<number>} values
 * @param {number} count
 */
function highest(values, count) {
  /** @type {number[]} */
  const best = [];
  for (let id = 0; id < values.length; id++) {
    if (best.length === count && !(values[id] > values[best[count - 1]])) continue;
    let place = Math.min(best.length, count - 1);
    for (; place > 0 && values[id] > values[best[place - 1]]; place--) {
      best[place] = best[place - 1];
    }
    best[place] = id;
  }
  return best;
}
