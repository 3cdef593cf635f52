// @ts-check
// One text under one model: everything that the page shows of it. T positions, D head_size.

import { contributionsOf } from "./contributions.js";
import { Reading, rowStart } from "./reading.js";
import { logSoftmax } from "./sampler.js";

/** @import { Gpt } from "./gpt.js" */
/** @import { Answer, Ask, Head, Lens, Seen } from "./protocol.js" */

const KEPT = 4; // readings, with different heads off

/** Answers questions about texts; what it read before, it keeps. */
export class Analysis {
  /** @param {Gpt} gpt */
  constructor(gpt) {
    this.gpt = gpt;
    /** @type {Map<string, Reading>} */
    this.readings = new Map();
  }

  /** @param {Ask} ask @returns {Answer} */
  answer({ ids, off, row, scores, lens, ...asked }) {
    const reading = this.#read(ids, off);
    const trained = off.length ? this.#read(ids, []) : reading;
    const id = asked.id ?? indexOfLargest(trained.logits(row));
    const now = seen(reading, row, id);
    const look = asked.look ?? strongest(now.parts.heads);
    const key = asked.key ?? indexOfLargest(reading.weights(look, row));
    return {
      look,
      key,
      now,
      before: off.length ? seen(trained, row, id) : null,
      products: reading.products(look, row, key),
      scores: scores ? reading.scores(look) : null,
      lens: lens ? lensOf(reading) : null,
    };
  }

  /** A reading of a text with heads off. @param {number[]} ids @param {Head[]} off */
  #read(ids, off) {
    const name = JSON.stringify(off);
    const reading = this.readings.get(name) ?? new Reading(this.gpt, off);
    this.readings.delete(name); // last used, last in the map
    this.readings.set(name, reading);
    const [oldest] = this.readings.keys();
    if (this.readings.size > KEPT) this.readings.delete(oldest);
    reading.read(ids);
    return reading;
  }
}

/** @param {Reading} reading @param {number} row @param {number} id whose logit is taken apart
 * @returns {Seen} */
function seen(reading, row, id) {
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

/** The place of the largest value, of equal ones the first. @param {ArrayLike<number>} values */
function indexOfLargest(values) {
  let best = 0;
  for (let n = 1; n < values.length; n++) if (values[n] > values[best]) best = n;
  return best;
}

/** The head that adds most. @param {number[][]} heads what they add, by layer @returns {Head} */
function strongest(heads) {
  const place = indexOfLargest(heads.flat());
  const count = heads[0].length;
  return { layer: Math.floor(place / count), head: place % count };
}

/** The logit lens (nostalgebraist 2020): the likeliest id at each depth and position.
 * @param {Reading} reading @returns {Lens} */
function lensOf(reading) {
  const depths = reading.streams.map((_, depth) => depth);
  const logits = depths.flatMap((depth) => reading.ids.map((_, at) => reading.logits(at, depth)));
  const ids = Uint32Array.from(logits, indexOfLargest);
  const chances = Float32Array.from(ids, (id, n) => Math.exp(logSoftmax(logits[n])[id]));
  return { ids, chances };
}
