// @ts-check
// A pair under one model: the target that the model writes for a source, or one of the user's, and
// everything that the page shows of it. What a source gave is kept while the target changes.
// S characters of the source, T of what the decoder reads (a TAB and the target), V vocab_size.

import { contributionsOf } from "./contributions.js";
import { logSoftmax } from "./gate.js";
import { PairReading, Source } from "./pair.js";
import { Uniforms } from "./random.js";
import { asPayload, common } from "./reading.js";
import { draw, probabilities } from "./sampler.js";

/** @import { AttentionKind, PairChanges, PairGpt } from "./pair.js" */
/** @import { SampleOptions } from "./sampler.js" */
/** first, last: the ids of the characters before a target and after it. never: of those that no target
 * has. @typedef {{first: number, last: number, never: number[]}} Marks */
/**
 * target: null if the model is to write it. kind: whose stages are wanted.
 * @typedef {object} PairAsk
 * @property {number[]} source
 * @property {number[] | null} target
 * @property {AttentionKind} kind
 * @property {SampleOptions} options
 * @property {Marks} marks
 * @property {number} step
 * @property {PairChanges | null} changes
 * @property {import("./contributions.js").AskedLogit | null} [logit] whose contributions are wanted
 * @property {import("./reading.js").Inspect | null} [inspect] a stage of the kind that is wanted, too
 */
/**
 * The arrays of a subject, see SubjectPayload. target: (T − 1,) its ids. ended: whether the model
 * ended it, or the user, or if not, it has the largest length. nats: −ln of the probability of each of
 * its characters, and of its end if it has ended. logits: (T, V) after each position.
 * @typedef {object} PairFindings
 * @property {number[]} target
 * @property {boolean} ended
 * @property {Float32Array} nats
 * @property {Float32Array} logits
 * @property {number} sums
 * @property {Float32Array[]} weights
 * @property {Record<string, any>} details
 * @property {import("./contributions.js").Contributions | null} contributions
 * @property {import("./reading.js").Inspected | null} inspected
 */

export class PairAnalysis {
  /** @param {PairGpt} gpt @param {PairChanges | null} changes */
  constructor(gpt, changes) {
    this.gpt = gpt;
    this.changes = changes;
    /** @type {number[]} */
    this.ids = []; // of the source
    /** @type {Source | null} */
    this.source = null;
    /** @type {PairReading | null} */
    this.reading = null;
  }

  /** @param {PairAsk} ask @returns {PairFindings} */
  read({ source, target, kind, options, marks, logit, inspect }) {
    const { gpt, changes } = this;
    if (!this.source || !this.reading || source.join() !== this.ids.join()) {
      this.source = new Source(gpt, source, changes?.encoder ?? null);
      this.reading = new PairReading(gpt, this.source, changes);
      this.ids = source;
    }
    const { reading } = this;
    const found = target
      ? { target, ended: true }
      : write(reading, options, marks, gpt.config.block_size);
    follow(reading, [marks.first, ...found.target]);
    const expected = found.ended ? [...found.target, marks.last] : found.target;
    const own = kind === "encoder" ? this.source.reading : reading;
    const { vocab_size } = gpt.config;
    const logits = new Float32Array(reading.length * vocab_size);
    for (let at = 0; at < reading.length; at++) logits.set(reading.logits(at), at * vocab_size);
    return {
      ...found,
      nats: Float32Array.from(expected, (id, at) => -logSoftmax(reading.logits(at))[id]),
      logits,
      sums: Math.max(this.source.reading.excess(), reading.excess()),
      ...asPayload(kind === "cross" ? reading.crossStages() : own.stages()),
      contributions: contributionsOf(reading, logit),
      inspected: own.inspect(inspect, kind === "cross" ? 1 : 0),
    };
  }
}

/**
 * Draws a target as `gptx sample` does: at temperature 0 the likeliest characters. It never has the
 * character that begins a target or those that stand only in sources, and has at most block_size − 1 characters.
 * @param {PairReading} reading
 * @param {SampleOptions} options
 * @param {Marks} marks
 * @param {number} blockSize
 */
export function write(reading, options, { first, last, never }, blockSize) {
  const uniforms = new Uniforms(options.seed);
  /** @type {number[]} */
  const target = [];
  for (;;) {
    follow(reading, [first, ...target], true);
    const scores = Float64Array.from(reading.logits(target.length));
    for (const id of [first, ...never]) scores[id] = -Infinity;
    const id = draw(probabilities(scores, options).chances, uniforms.next());
    if (id === last) return { target, ended: true };
    if (target.length === blockSize - 1) return { target, ended: false };
    target.push(id);
  }
}

/**
 * Makes these the ids that the decoder has read. beginning: it may have read more of the same.
 * @param {PairReading} reading
 * @param {number[]} ids
 * @param {boolean} beginning
 */
function follow(reading, ids, beginning = false) {
  const known = common(reading.ids, ids);
  if (!beginning || known < ids.length) reading.truncate(known);
  reading.append(ids.slice(known));
}
