// @ts-check
// The thread that computes: it opens and proves the models of the file, reads texts, and writes. It
// answers one message after the other; while it writes, it reads between two pieces.

import { Analysis } from "./analysis.js";
import { Models } from "./models.js";
import { Reading } from "./reading.js";
import { Writer } from "./sampler.js";

/** @typedef {import("./analysis.js").Findings} Findings */
/** @typedef {import("./attention.js").Changes} Changes */
/** @typedef {import("./models.js").Proof} Proof */
/** @typedef {import("./models.js").ModelsPayload} ModelsPayload */
/** @typedef {import("./sampler.js").SampleOptions} SampleOptions */
/** A text for one of the file's models. @typedef {{ids: number[], step: number, changes: Changes | null}} Ask */
/** @typedef {Findings & {proof: Proof}} Answer */
/** `more`: continues the writing before, if the text, the model and the options are still the same.
 * @typedef {{kind: "write", ids: number[], step: number, changes: Changes | null,
 *   options: SampleOptions, length: number}} WriteRequest */
/** @typedef {{kind: "open", model: ModelsPayload} | {kind: "read", asks: Ask[]} | WriteRequest |
 *   {kind: "stop"}} Request */
/** @typedef {{kind: "opened", proof: Proof}} Opened */
/** @typedef {Opened | {kind: "read", answers: Answer[]} | {kind: "wrote", ids: number[]} |
 *   {kind: "stopped"} | {kind: "failed", reason: string}} Reply */

const PIECE = 12; // milliseconds of writing between two messages
const KEPT = 4; // analyses of texts, of different changes or steps

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

class Computation {
  constructor() {
    /** @type {Models | null} */
    this.models = null;
    /** @type {Map<string, Analysis>} */
    this.analyses = new Map();
    /** @type {{key: string, ids: number[], writer: Writer} | null} */
    this.written = null;
    this.stopped = false;
  }

  /** @param {Request} request */
  async answer(request) {
    if (request.kind === "open") {
      this.models = new Models(request.model);
      const { proof } = await this.models.open(this.models.last);
      reply({ kind: "opened", proof });
    } else if (request.kind === "read") {
      const answers = [];
      for (const ask of request.asks) answers.push(await this.read(ask));
      reply({ kind: "read", answers }, buffersOf(answers));
    } else if (request.kind === "stop") this.stopped = true;
    else await this.write(request);
  }

  /** @param {Ask} ask @returns {Promise<Answer>} */
  async read({ ids, step, changes }) {
    const { gpt, mixture, proof } = await this.opened(step);
    const key = keyOf(step, changes);
    const analysis = this.analyses.get(key) ?? new Analysis(gpt, mixture, changes);
    this.analyses.delete(key); // last used, last in the map
    this.analyses.set(key, analysis);
    if (this.analyses.size > KEPT) {
      this.analyses.delete(/** @type {string} */ (this.analyses.keys().next().value));
    }
    return { ...analysis.read(ids), proof };
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

  /** @param {number} step */
  opened(step) {
    if (!this.models) throw new Error("There is no model yet.");
    return this.models.open(step);
  }
}

/** @param {number} step @param {Changes | null} changes */
function keyOf(step, changes) {
  const heads = changes?.heads.map(({ layer, head, value }) => [layer, head, ...value ?? []]);
  const rows = changes?.rows.map((
    { layer, head, query, weights },
  ) => [layer, head, query, ...weights]);
  return JSON.stringify([step, heads, rows]);
}

/** @param {Reply} message @param {Transferable[]} moved what the worker does not need any more */
function reply(message, moved = []) {
  /** @type {any} */ (self).postMessage(message, moved);
}

/** The buffers of the large arrays. @param {Answer[]} answers */
function buffersOf(answers) {
  return answers.flatMap(({ weights, details, lens }) => {
    const arrays = [...weights, ...Object.values(details).flatMap((layer) => Object.values(layer))];
    return [...arrays, lens.ids, lens.probabilities].map((
      { buffer },
    ) => /** @type {ArrayBuffer} */ (buffer));
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
