// @ts-check
// The thread that computes: it opens and proves the model of the file, reads texts, and writes. It
// answers one message after the other; while it writes, it reads between two pieces.

import { recall } from "../numbers.js";
import { Analysis } from "./analysis.js";
import { Gpt } from "./gpt.js";
import { largestError } from "./proof.js";
import { Reading } from "./reading.js";
import { Writer } from "./sampler.js";
import { unpackTensors } from "./weights.js";

/** @import { Findings } from "./analysis.js" */
/** @import { Changes } from "./attention.js" */
/** @import { SampleOptions } from "./sampler.js" */
/**
 * @typedef {object} StoredModel
 * @property {import("./gpt.js").Config} config
 * @property {import("./weights.js").TensorShape[]} manifest
 * @property {number} bits
 * @property {string} base64
 * @property {import("./proof.js").ProofRecord} proof
 */
/** proof: the check that the model passed.
 * @typedef {{gpt: Gpt, proof: import("../payload.js").Check}} Opened */
/**
 * A text. logit: whose contributions are wanted, after a position of the window. inspect: a stage that
 * is wanted, too.
 * @typedef {{ids: number[], changes: Changes | null,
 *   logit?: import("./contributions.js").AskedLogit | null,
 *   inspect?: import("./reading.js").Inspect | null}} Ask
 */
/** @typedef {Findings & {proof: Opened["proof"]}} Answer */
/** Continues the writing before, if the text, the model and the options are still the same.
 * @typedef {{kind: "write", ids: number[], changes: Changes | null,
 *   options: SampleOptions, length: number}} WriteRequest */
/** @typedef {{kind: "open", model: StoredModel} | {kind: "read", asks: Ask[]} | WriteRequest |
 *   {kind: "stop"}} Request */
/** @typedef {{kind: "opened"} | {kind: "read", answers: Answer[]} |
 *   {kind: "wrote", ids: number[]} | {kind: "stopped"} | {kind: "failed", reason: string}} Reply */

const KEPT = 4; // analyses of texts, of different changes
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

/**
 * The model of the file, and what reads and continues texts with it. Throws an Error with the reason if
 * the model is damaged or if this browser computes other numbers.
 */
class Computation {
  constructor() {
    /** @type {Promise<Opened>} */
    this.opened = new Promise(() => {}); // until the page sends the model
    /** @type {Map<string, Analysis>} */
    this.analyses = new Map();
    /** @type {{key: string, ids: number[], writer: Writer} | null} */
    this.written = null;
    this.stopped = false;
  }

  /** @param {Request} request */
  async answer(request) {
    if (request.kind === "open") {
      this.opened = opened(request.model);
      await this.opened;
      reply({ kind: "opened" });
    } else if (request.kind === "read") {
      const answers = [];
      for (const ask of request.asks) answers.push(await this.#read(ask));
      reply({ kind: "read", answers }, buffersOf(answers));
    } else if (request.kind === "stop") this.stopped = true;
    else await this.#write(request);
  }

  /** @param {Ask} ask @returns {Promise<Answer>} */
  async #read(ask) {
    const { gpt, proof } = await this.opened;
    const make = () => new Analysis(gpt, ask.changes);
    const analysis = recall(this.analyses, KEPT, keyOf(ask.changes), make);
    return { ...analysis.read(ask), proof };
  }

  /** @param {WriteRequest} request */
  async #write({ ids, changes, options, length }) {
    this.stopped = false;
    const { gpt } = await this.opened;
    const key = keyOf(changes) + JSON.stringify(options);
    const before = this.written;
    const goesOn = before?.key === key && before.ids.join() === ids.join();
    const writer = goesOn
      ? before.writer
      : new Writer(new ReadingDecoder(gpt, changes), ids, options);
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

/** The model, proven. @param {StoredModel} stored @returns {Promise<Opened>} */
async function opened({ config, manifest, bits, base64, proof }) {
  const gpt = new Gpt(config, await unpackTensors(base64, manifest, bits));
  const error = largestError(gpt, proof);
  const bound = proof.tolerance;
  if (!(error <= bound)) { // also if it is NaN
    throw new Error(
      "This browser computes other numbers than the model gave when the file was written: they " +
        `differ by ${error.toExponential(1)}, at most ${bound.toExponential(1)} is allowed.`,
    );
  }
  const name = "logits = numpy's, on the texts in this file";
  return { gpt, proof: { name, error, bound, passed: true } };
}

/** @param {Changes | null} changes */
function keyOf(changes) {
  const plain = (/** @type {string} */ _, /** @type {any} */ value) =>
    value instanceof Float32Array ? [...value] : value;
  return JSON.stringify(changes, plain);
}

/** @param {Reply} message @param {Transferable[]} moved what the worker does not need any more */
function reply(message, moved = []) {
  /** @type {any} */ (self).postMessage(message, moved);
}

/** The buffers of the arrays of all stages, and of what a page lists by position. @param {Answer[]} answers */
function buffersOf(answers) {
  return answers.flatMap(({ weights, details, lens, inspected }) => {
    const arrays = [...weights, ...Object.values(details).flatMap((layer) => Object.values(layer))];
    arrays.push(lens.ids, lens.probabilities);
    if (inspected) arrays.push(inspected.values);
    return arrays.map(({ buffer }) => buffer);
  });
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

const computation = new Computation();
self.addEventListener("message", ({ data }) => {
  computation.answer(data).catch((error) => reply({ kind: "failed", reason: error.message }));
});
