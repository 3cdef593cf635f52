// @ts-check
// The models of the file, one for each training step that it has: unpacked and proven when they are
// needed. Throws an Error with the reason if one is damaged or if this browser computes other numbers.

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
 * What models of a kind need. prove: the checks of a model. Throws an Error for an unknown variant.
 * @typedef {object} Program
 * @property {(config: any, tensors: Map<string, Float32Array>) => any} make
 * @property {(gpt: any, proof: import("./proof.js").ProofRecord) => Proven[]} prove
 */
/** name: of the check; error: the largest one. @typedef {{name: string, error: number, bound: number}} Proven */

const MOST_OPEN = 3; // models in memory

export class Models {
  /** @param {ModelsPayload} payload @param {Program} program */
  constructor(payload, program) {
    this.payload = payload;
    this.program = program;
    /** @type {Map<number, Promise<Opened>>} */
    this.opened = new Map();
    /** @type {Promise<Trie | null> | null} */
    this.trie = null;
  }

  get last() {
    return this.payload.models.length - 1;
  }

  /** One of the models, proven. @param {number} number @returns {Promise<Opened>} */
  open(number) {
    const { models } = this.payload;
    return recall(this.opened, MOST_OPEN, number, () => this.#opened(models[number]));
  }

  /** @param {StoredModel} stored @returns {Promise<Opened>} */
  async #opened({ config, manifest, bits, base64, gate, proof }) {
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
