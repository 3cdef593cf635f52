// @ts-check
// One text under one model: everything that the page shows of it. What earlier positions gave is kept
// while the text changes at its end. T positions, V vocab_size, K characters of a list.

import { contributionsOf } from "./contributions.js";
import { logSoftmax } from "./gate.js";
import { common, Reading } from "./reading.js";
import { windowStart } from "./sampler.js";

/** @import { Changes } from "./attention.js" */
/** @import { Expected, Mixture } from "./gate.js" */
/** @import { Gpt } from "./gpt.js" */
/** Ids with their probabilities, the likeliest first. @typedef {{ids: number[], chances: number[]}} Likeliest */
/** Ids with three probabilities each, of a position that `next` follows in the text.
 * @typedef {{next: number | undefined, ids: number[], chances: number[]}} Candidates */
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
 * @property {{most: number, ids: Uint32Array, probabilities: Float32Array,
 *   weights: Float32Array, history: Uint32Array} | null} experts
 * @property {Float32Array} surprisals
 * @property {{gpt: Float64Array, counting: Float64Array | null, both: Float64Array | null}} next
 * @property {import("./contributions.js").Contributions | null} contributions to the asked logit
 * @property {import("./reading.js").Inspected | null} inspected the asked stage
 * @property {Float32Array | null} unit (T,) values of the asked unit
 */

const MOST_SHOWN = 8; // characters of a list

export class Analysis {
  /**
   * @param {Gpt} gpt
   * @param {Mixture | null} mixture
   * @param {Changes | null} changes
   */
  constructor(gpt, mixture, changes) {
    this.gpt = gpt;
    this.mixture = mixture;
    this.reading = new Reading(gpt, changes);
    /** @type {Likeliest[][]} by depth, by position */
    this.lens = Array.from({ length: gpt.config.n_layer + 1 }, () => []);
    /** @type {number[]} The characters before the window that counting looks at. */
    this.before = [];
    /** @type {number[][]} The histories after each position. */
    this.nodes = [];
    /** @type {Expected[]} */
    this.expected = [];
    /** @type {Candidates[]} What the page shows of these. */
    this.candidates = [];
  }

  /** Everything about a text of one or more characters.
   * @param {Pick<import("./worker.js").Ask, "ids" | "logit" | "inspect" | "unit">} ask @returns {Findings} */
  read({ ids, logit, inspect, unit }) {
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
    this.#count(ids, begin, known);
    const last = window.length - 1;
    const stages = reading.stages();
    return {
      begin,
      sums: reading.excess(),
      weights: stages.map(({ weights }) => weights),
      details: Object.fromEntries(stages.map(({ weights: _, ...rest }, layer) => [layer, rest])),
      lens: this.#lens(window.length),
      experts: this.mixture && this.#experts(window),
      surprisals: Float32Array.from(window.slice(1), (id, at) => -this.#together(at)[id]),
      next: this.expected[last] ?? { gpt: this.#together(last), counting: null, both: null },
      contributions: contributionsOf(reading, logit, (at) => this.#together(at)),
      inspected: reading.inspect(inspect),
      unit: reading.unit(unit),
    };
  }

  /**
   * What counting expects after each position from `known` on.
   * @param {number[]} ids
   * @param {number} begin
   * @param {number} known
   */
  #count(ids, begin, known) {
    const { mixture, reading } = this;
    if (!mixture) return;
    const before = ids.slice(Math.max(0, begin - mixture.trie.orders), begin);
    const same = before.length === this.before.length &&
      common(before, this.before) === before.length;
    const kept = same ? known : 0;
    this.before = before;
    this.nodes.length = Math.min(this.nodes.length, kept);
    this.expected.length = this.candidates.length = this.nodes.length;
    for (let at = this.nodes.length; at < reading.length; at++) {
      const earlier = at ? this.nodes[at - 1] : mixture.trie.nodesOf(before);
      const nodes = mixture.trie.followed(earlier, reading.ids[at]);
      this.nodes.push(nodes);
      this.expected.push(mixture.predict(reading.logits(at), nodes));
    }
  }

  /** (V,) log-probabilities after a position. @param {number} at */
  #together(at) {
    return this.mixture ? this.expected[at].both : logSoftmax(this.reading.logits(at));
  }

  /** Only positions that are new, or that another character follows. @param {number[]} ids */
  #experts(ids) {
    const { expected, candidates } = this;
    const most = Math.min(MOST_SHOWN, expected[0].both.length);
    const found = {
      most,
      ids: new Uint32Array(ids.length * most),
      probabilities: new Float32Array(ids.length * most * 3),
      weights: new Float32Array(ids.length * 2),
      history: new Uint32Array(ids.length * 4),
    };
    expected.forEach((each, at) => {
      if (at >= candidates.length || candidates[at].next !== ids[at + 1]) {
        candidates[at] = candidatesOf(each, ids[at + 1], most);
      }
      found.ids.set(candidates[at].ids, at * most);
      found.probabilities.set(candidates[at].chances, 3 * at * most);
      found.weights.set(each.weights, 2 * at);
      found.history.set([each.length, each.total, each.kinds, Number(each.pairs)], 4 * at);
    });
    return found;
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

/**
 * The characters that one of the three expects most and the one that comes next, as `experts_record`
 * of gpt/view/page/page.py.
 * @param {Expected} expected
 * @param {number | undefined} next
 * @param {number} most
 * @returns {Candidates}
 */
function candidatesOf({ gpt, counting, both }, next, most) {
  /** @type {Map<number, number>} */
  const ranks = new Map();
  for (const chances of [gpt, counting, both]) {
    highest(chances, most).forEach((id, rank) => {
      ranks.set(id, Math.min(rank, ranks.get(id) ?? rank));
    });
  }
  if (next !== undefined) ranks.set(next, -1);
  const order = [...ranks].sort(([a, x], [b, y]) => x - y || both[b] - both[a] || a - b);
  const ids = order.slice(0, most).map(([id]) => id).sort((a, b) => both[b] - both[a] || a - b);
  const chances = ids.flatMap((id) => [gpt[id], counting[id], both[id]]).map(Math.exp);
  return { next, ids, chances };
}
