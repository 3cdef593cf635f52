// @ts-check
// The thread that computes: it opens and proves the models of the file, and reads texts. It answers one
// message after the other.

import { recall } from "../numbers.js";
import { Trie } from "./counting.js";
import { Mixture } from "./gate.js";
import { unpackCounting } from "./tables.js";
import { unpackTensors } from "./weights.js";

/**
 * gate: how the GPT and counting go together, if the model counts.
 * @typedef {object} StoredModel
 * @property {import("./gpt.js").Config} config
 * @property {import("./weights.js").TensorShape[]} manifest
 * @property {number} bits
 * @property {string} base64
 * @property {number[][] | null} gate
 * @property {import("./proof.js").ProofRecord} proof
 */
/** counting: the tables that all models share.
 * @typedef {{models: StoredModel[], counting: (import("./tables.js").CountingRecord &
 *   {base64: string}) | null}} ModelsPayload */
/** @typedef {{checks: import("../payload.js").Check[]}} Proof */
/** gpt: the model, of the Program's kind. @typedef {{gpt: any, mixture: Mixture | null, proof: Proof}} Opened */
/**
 * What models of a kind need. make: throws an Error for an unknown variant. prove: the checks of a
 * model. analyse: what reads texts with a model and changes of it.
 * @typedef {object} Program
 * @property {(config: any, tensors: Map<string, Float32Array>) => any} make
 * @property {(gpt: any, proof: import("./proof.js").ProofRecord) => Proven[]} prove
 * @property {(opened: Opened, changes: any) => {read: (ask: any) => object}} analyse
 */
/** name: of the check; error: the largest one. @typedef {{name: string, error: number, bound: number}} Proven */
/** What is asked about one of the file's models. changes: plain data, with Float32Array for numbers.
 * @typedef {{step: number, changes: any}} AnyAsk */
/** @typedef {{kind: "open", model: ModelsPayload} | {kind: "read", asks: any[]} |
 *   import("./worker.js").Writing} Request */
/** @typedef {{kind: "opened"} | {kind: "read", answers: any[]} |
 *   {kind: "wrote", ids: number[]} | {kind: "stopped"} | {kind: "failed", reason: string}} Reply */

const MOST_OPEN = 3; // models in memory
const KEPT = 4; // analyses of texts, of different changes or steps

/**
 * The models of the file, one for each training step that it has, unpacked and proven when they are
 * needed; and what reads texts with them. Throws an Error with the reason if a model is damaged or if
 * this browser computes other numbers.
 */
export class Computation {
  /** @param {Program} program of the models */
  constructor(program) {
    this.program = program;
    /** @type {ModelsPayload} */
    this.payload = { models: [], counting: null };
    /** @type {Map<number, Promise<Opened>>} */
    this.models = new Map();
    /** @type {Promise<Trie | null> | null} */
    this.trie = null;
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
      this.payload = request.model;
      await this.opened(request.model.models.length - 1);
      reply({ kind: "opened" });
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
    const analysis = recall(
      this.analyses,
      KEPT,
      key,
      () => this.program.analyse(opened, ask.changes),
    );
    return { ...analysis.read(ask), proof: opened.proof };
  }

  /** Answers further requests. @param {any} _request @returns {Promise<void>} */
  async more(_request) {}

  /** One of the models, proven. @param {number} step its number */
  opened(step) {
    const stored = this.payload.models[step];
    return recall(this.models, MOST_OPEN, step, () => this.#open(stored));
  }

  /** @param {StoredModel} stored @returns {Promise<Opened>} */
  async #open({ config, manifest, bits, base64, gate, proof }) {
    this.trie ??= this.#counted();
    const [tensors, trie] = await Promise.all([
      unpackTensors(base64, manifest, bits),
      this.trie,
    ]);
    const gpt = this.program.make(config, tensors);
    const checks = this.program.prove(gpt, proof).map((check) => ({ ...check, passed: true }));
    for (const { error, bound } of checks) {
      if (error <= bound) continue; // also stops at NaN
      throw new Error(
        "This browser computes other numbers than the model gave when the file was written: they " +
          `differ by ${error.toExponential(1)}, at most ${bound.toExponential(1)} is allowed.`,
      );
    }
    return {
      gpt,
      mixture: trie && gate && new Mixture(trie, gate),
      proof: { checks },
    };
  }

  /** The counting tables. @returns {Promise<Trie | null>} */
  async #counted() {
    const { counting } = this.payload;
    return counting &&
      new Trie(await unpackCounting(counting.base64, counting), counting.vocabSize);
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
  return answers.flatMap(({ weights, details, lens, logits, inspected }) => {
    const arrays = [...weights, ...Object.values(details).flatMap((layer) => Object.values(layer))];
    if (lens) arrays.push(lens.ids, lens.probabilities);
    if (logits) arrays.push(logits);
    if (inspected) arrays.push(inspected.values);
    return arrays.map(({ buffer }) => buffer);
  });
}
