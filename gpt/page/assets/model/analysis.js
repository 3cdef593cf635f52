// @ts-check
// Computes everything that the page shows of one text and one model.

import { contributionsOf } from "./contributions.js";
import { Reading, rowStart } from "./reading.js";
import { logSoftmax } from "./sampler.js";

/** @import { Gpt } from "./gpt.js" */
/** @import { Answer, Head, Lens, Outputs, Question } from "./protocol.js" */

const MOST_READINGS = 4; // the most that are kept; each has other heads switched off

/** Answers questions about texts. It keeps the last readings, so that a longer text is read quickly. */
export class Analysis {
  /** @param {Gpt} gpt */
  constructor(gpt) {
    this.gpt = gpt;
    /** @type {Map<string, Reading>} */
    this.readings = new Map();
  }

  /** @param {Question} question @returns {Answer} */
  answer({ ids, off, row, scores, lens, ...question }) {
    const reading = this.#read(ids, off);
    const trained = off.length ? this.#read(ids, []) : reading;
    const id = question.id ?? indexOfLargest(trained.logits(row));
    const now = outputsOf(reading, row, id);
    const look = question.look ?? strongest(now.parts.heads);
    const key = question.key ?? indexOfLargest(reading.weights(look, row));
    return {
      look,
      key,
      now,
      before: off.length ? outputsOf(trained, row, id) : null,
      products: reading.products(look, row, key),
      scores: scores ? reading.scores(look) : null,
      lens: lens ? lensOf(reading) : null,
    };
  }

  /** Reads a text with some heads switched off. @param {number[]} ids @param {Head[]} off */
  #read(ids, off) {
    const name = JSON.stringify(off);
    const reading = this.readings.get(name) ?? new Reading(this.gpt, off);
    this.readings.delete(name); // so that `set` makes it the last one of the map
    this.readings.set(name, reading);
    const [oldest] = this.readings.keys();
    if (this.readings.size > MOST_READINGS) this.readings.delete(oldest);
    reading.read(ids);
    return reading;
  }
}

/** What the model computes for a row. @param {Reading} reading @param {number} row
 * @param {number} id whose logit is split into parts @returns {Outputs} */
function outputsOf(reading, row, id) {
  const { ids, layers } = reading;
  const size = rowStart(ids.length);
  const surprisals = ids.slice(1).map((next, at) => -logSoftmax(reading.logits(at))[next]);
  return {
    weights: layers.map(({ weights }) => weights.map((rows) => rows.slice(0, size))),
    surprisals: Float32Array.from(surprisals),
    logits: reading.logits(row),
    parts: contributionsOf(reading, row, id),
  };
}

/** The index of the largest value; of equal values, the first. @param {ArrayLike<number>} values */
function indexOfLargest(values) {
  let best = 0;
  for (let n = 1; n < values.length; n++) if (values[n] > values[best]) best = n;
  return best;
}

/** The head that adds most to the logit. @param {number[][]} heads what the heads add, by layer @returns {Head} */
function strongest(heads) {
  const index = indexOfLargest(heads.flat());
  const count = heads[0].length;
  return { layer: Math.floor(index / count), head: index % count };
}

/** The logit lens (nostalgebraist 2020): the likeliest id at every depth and position.
 * @param {Reading} reading @returns {Lens} */
function lensOf(reading) {
  const depths = reading.streams.map((_, depth) => depth);
  const logits = depths.flatMap((depth) => reading.ids.map((_, at) => reading.logits(at, depth)));
  const ids = Uint32Array.from(logits, indexOfLargest);
  const chances = Float32Array.from(ids, (id, n) => Math.exp(logSoftmax(logits[n])[id]));
  return { ids, chances };
}
