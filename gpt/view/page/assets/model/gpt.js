// @ts-check
// A trained GPT: gpt/reading/gpt.py in JavaScript. A reading of a text (reading.js) computes its
// stages. Tensors keep the names of the model file. C n_embd, H heads, D head_size.

import { ACTIVATIONS, NORMS } from "./layers.js";
import { Linear } from "./linear.js";
import { POSITIONS } from "./positions.js";

/**
 * The fields of gpt/config/model.py that a forward pass uses, and three that follow from them:
 * head_size; `ffn_up` inputs and `ffn_hidden` outputs of the activation function.
 * @typedef {object} Config
 * @property {number} vocab_size
 * @property {number} block_size
 * @property {number} n_layer
 * @property {number} n_head
 * @property {number} n_embd
 * @property {number} head_size
 * @property {number} ffn_up
 * @property {number} ffn_hidden
 * @property {boolean} feed_forward
 * @property {boolean} tied
 * @property {boolean} post_norm
 * @property {boolean} scaled_embedding
 * @property {string} position
 * @property {string} norm
 * @property {string} activation
 */

/** The parameters of a GPT, ready for use. */
export class Gpt {
  /**
   * Throws an Error for a variant that this page does not know and for a missing tensor.
   * @param {Config} config
   * @param {Map<string, Float32Array>} tensors
   */
  constructor(config, tensors) {
    this.config = config;
    this.tensors = tensors;
    this.normalise = known(NORMS, config.norm, "norm");
    this.activation = known(ACTIVATIONS, config.activation, "activation function");
    this.position = known(POSITIONS, config.position, "kind of position")(config, tensors);
    const { n_embd, ffn_hidden, feed_forward, scaled_embedding } = config;
    const rows = this.tensor("token_embedding.weight");
    const factor = Math.fround(Math.sqrt(n_embd));
    this.embedding = scaled_embedding ? rows.map((each) => each * factor) : rows;
    this.layers = Array.from({ length: config.n_layer }, (_, number) => ({
      norm1: this.before(`blocks.${number}.norm1`),
      after1: this.after(`blocks.${number}.norm1`),
      qkv: this.linear(`blocks.${number}.attention.qkv`, n_embd),
      proj: this.linear(`blocks.${number}.attention.proj`, n_embd),
      norm2: this.before(`blocks.${number}.norm2`),
      after2: this.after(`blocks.${number}.norm2`),
      up: feed_forward ? this.linear(`blocks.${number}.feed_forward.up`, n_embd) : null,
      down: feed_forward ? this.linear(`blocks.${number}.feed_forward.down`, ffn_hidden) : null,
    }));
    this.finalNorm = this.before("norm");
    this.output = this.linear(config.tied ? "token_embedding" : "lm_head", n_embd);
  }

  /** @param {string} name */
  tensor(name) {
    const found = this.tensors.get(name);
    if (!found) throw new Error(`The model in this file lacks its numbers ${name}.`);
    return found;
  }

  /** @param {string} name @param {number} columns */
  linear(name, columns) {
    return new Linear(this.tensor(`${name}.weight`), this.tensors.get(`${name}.bias`), columns);
  }

  /** A norm's function of a vector of C numbers, and where its result begins. @param {string} name */
  norm(name) {
    const [gain, shift] = [this.tensors.get(`${name}.weight`), this.tensors.get(`${name}.bias`)];
    const { n_embd } = this.config;
    /**
     * @param {Float32Array} x
     * @param {number} from
     * @param {Float32Array} out
     * @param {number} to
     */
    return (x, from, out, to) => this.normalise(x, from, out, to, n_embd, gain, shift);
  }

  /** What a sublayer does first: with post_norm, the stream enters as it is.
   * @param {string} name @returns {ReturnType<Gpt["norm"]>} */
  before(name) {
    const { n_embd, post_norm } = this.config;
    if (!post_norm) return this.norm(name);
    return (x, from, out, to) => out.set(x.subarray(from, from + n_embd), to);
  }

  /** What normalises the sum of the stream and a sublayer's result; null: nothing does.
   * @param {string} name */
  after(name) {
    return this.config.post_norm ? this.norm(name) : null;
  }
}

/**
 * The variant of this name.
 * @template T
 * @param {Record<string, T>} variants
 * @param {string} name
 * @param {string} what
 * @returns {T}
 */
function known(variants, name, what) {
  if (!Object.hasOwn(variants, name)) {
    throw new Error(`This file cannot compute the model's ${what} "${name}".`);
  }
  return variants[name];
}
