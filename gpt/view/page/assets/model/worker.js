// @ts-check
// The thread that computes with a model without an encoder: it reads texts, and writes. While it writes,
// it reads between two pieces.

import { Analysis } from "./analysis.js";
import { Computation, keyOf, reply } from "./computation.js";
import { Gpt } from "./gpt.js";
import { largestError, LOGITS_PROVEN } from "./proof.js";
import { Reading } from "./reading.js";
import { Writer } from "./sampler.js";

/** @import { Findings } from "./analysis.js" */
/** @import { Changes } from "./attention.js" */
/** @import { Proof } from "./computation.js" */
/** @import { SampleOptions } from "./sampler.js" */
/**
 * A text for one of the file's models. logit: whose contributions are wanted, after a position of the
 * window. inspect, unit: a stage, and a unit's values, that are wanted, too.
 * @typedef {{ids: number[], step: number, changes: Changes | null,
 *   logit?: import("./contributions.js").AskedLogit | null,
 *   inspect?: import("./reading.js").Inspect | null,
 *   unit?: import("./attention.js").Unit | null}} Ask
 */
/** @typedef {Findings & {proof: Proof}} Answer */
/** `more`: continues the writing before, if the text, the model and the options are still the same.
 * @typedef {{kind: "write", ids: number[], step: number, changes: Changes | null,
 *   options: SampleOptions, length: number}} WriteRequest */
/** @typedef {WriteRequest | {kind: "stop"}} Writing */

const PIECE = 12; // milliseconds of writing between two messages

/** A decoder of sampler.js: a reading that starts again where the window moves. */
class ReadingDecoder {
  /** @param {import("./gpt.js").Gpt} gpt @param {Changes | null} changes */
  constructor(gpt, changes) {
    this.gpt = gpt;
    this.changes = changes;
    this.blockSize = gpt.config.block_size;
    this.reading = new Reading(gpt, changes);
  }

  /** @param {number[]} ids */
  start(ids) {
    if (this.reading.length) { // rows of weights set by hand belong to the first window
      const heads = this.changes && { ...this.changes, rows: [] };
      this.reading = new Reading(this.gpt, heads);
    }
    this.reading.append(ids);
    return this.reading.logits(ids.length - 1);
  }

  /** @param {number} id */
  step(id) {
    this.reading.append([id]);
    return this.reading.logits(this.reading.length - 1);
  }
}

class TextComputation extends Computation {
  constructor() {
    super({
      make: (config, tensors) => new Gpt(config, tensors),
      prove: (gpt, proof) => [{
        name: LOGITS_PROVEN,
        error: largestError(gpt, proof),
        bound: proof.tolerance,
      }],
      analyse: ({ gpt, mixture }, changes) => new Analysis(gpt, mixture, changes),
    });
    /** @type {{key: string, ids: number[], writer: Writer} | null} */
    this.written = null;
    this.stopped = false;
  }

  /** @override @param {Writing} request */
  async more(request) {
    if (request.kind === "stop") this.stopped = true;
    else await this.write(request);
  }

  /** @param {WriteRequest} request */
  async write({ ids, step, changes, options, length }) {
    this.stopped = false;
    const { gpt, mixture } = await this.opened(step);
    const key = keyOf(step, changes) + JSON.stringify(options);
    const before = this.written;
    const goesOn = before?.key === key && before.ids.join() === ids.join();
    const writer = goesOn
      ? before.writer
      : new Writer(new ReadingDecoder(gpt, changes), ids, options, mixture);
    const written = { key, ids: [...ids], writer };
    this.written = written;
    for (let left = length; left > 0 && !this.stopped;) {
      /** @type {number[]} */
      const piece = [];
      const end = performance.now() + PIECE;
      do piece.push(writer.next()); while (piece.length < left && performance.now() < end);
      left -= piece.length;
      written.ids.push(...piece);
      reply({ kind: "wrote", ids: piece });
      await pause();
    }
    reply({ kind: "stopped" });
  }
}

/** Lets messages arrive. setTimeout would wait longer. @returns {Promise<void>} */
function pause() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

new TextComputation().serve();
