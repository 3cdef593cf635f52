// @ts-check
// The thread that computes: it opens and proves the models of the file, and reads texts. It answers one
// message after the other.

import { recall } from "../numbers.js";
import { Models } from "./models.js";

/** @typedef {import("./models.js").ModelsPayload} ModelsPayload */
/** @typedef {import("./models.js").Opened} Opened */
/** @typedef {import("./models.js").Program} Program */
/** @typedef {import("./models.js").Proof} Proof */
/** What is asked about one of the file's models. changes: plain data, with Float32Array for numbers.
 * @typedef {{step: number, changes: any}} AnyAsk */
/** @typedef {{kind: "open", model: ModelsPayload} | {kind: "read", asks: any[]} |
 *   import("./worker.js").Writing} Request */
/** @typedef {{kind: "opened", proof: Proof} | {kind: "read", answers: any[]} |
 *   {kind: "wrote", ids: number[]} | {kind: "stopped"} | {kind: "failed", reason: string}} Reply */

const KEPT = 4; // analyses of texts, of different changes or steps

/** @abstract */
export class Computation {
  /** @param {Program} program of the models */
  constructor(program) {
    this.program = program;
    /** @type {Models | null} */
    this.models = null;
    /** @type {Map<string, {read: (ask: any) => object}>} */
    this.analyses = new Map();
  }

  /** Answers the messages of the page. */
  serve() {
    self.addEventListener("message", ({ data }) => {
      this.answer(data).catch((error) => reply({ kind: "failed", reason: error.message }));
    });
  }

  /** @param {Request} request */
  async answer(request) {
    if (request.kind === "open") {
      this.models = new Models(request.model, this.program);
      const { proof } = await this.models.open(this.models.last);
      reply({ kind: "opened", proof });
    } else if (request.kind === "read") {
      const answers = [];
      for (const ask of request.asks) answers.push(await this.read(ask));
      reply({ kind: "read", answers }, buffersOf(answers));
    } else await this.more(request);
  }

  /** @param {AnyAsk} ask */
  async read(ask) {
    const opened = await this.opened(ask.step);
    const key = keyOf(ask.step, ask.changes);
    const analysis = recall(this.analyses, KEPT, key, () => this.analysisOf(opened, ask));
    return { ...analysis.read(ask), proof: opened.proof };
  }

  /**
   * What reads texts with a model and changes of it.
   * @abstract
   * @param {Opened} _opened
   * @param {any} _ask
   * @returns {{read: (ask: any) => object}}
   */
  analysisOf(_opened, _ask) {
    throw new Error("not implemented");
  }

  /** Answers further requests. @param {any} _request @returns {Promise<void>} */
  async more(_request) {}

  /** @param {number} step */
  opened(step) {
    if (!this.models) throw new Error("There is no model yet.");
    return this.models.open(step);
  }
}

/** @param {number} step @param {any} changes */
export function keyOf(step, changes) {
  const plain = (/** @type {string} */ _, /** @type {any} */ value) =>
    value instanceof Float32Array ? [...value] : value;
  return JSON.stringify([step, changes], plain);
}

/** @param {Reply} message @param {Transferable[]} moved what the worker does not need any more */
export function reply(message, moved = []) {
  /** @type {any} */ (self).postMessage(message, moved);
}

/** The buffers of the arrays of all stages, and of what a page lists by position. @param {any[]} answers */
function buffersOf(answers) {
  return answers.flatMap(({ weights, details, lens, logits }) => {
    const arrays = [...weights, ...Object.values(details).flatMap((layer) => Object.values(layer))];
    if (lens) arrays.push(lens.ids, lens.probabilities);
    if (logits) arrays.push(logits);
    return arrays.map(({ buffer }) => buffer);
  });
}
