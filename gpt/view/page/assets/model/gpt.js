// @ts-check
// A trained GPT: gpt/reading/gpt.py in JavaScript. A reading of a text (reading.js) computes its
// stages. Tensors keep the names of the model file. C n_embd, H heads, D head_size.

import { ACTIVATIONS, normalise } from "./layers.js";
import { Linear } from "./linear.js";
import { POSITIONS } from "./positions.js";

/**
 * The fields of gpt/config/model.py that a forward pass uses, and two that follow from them:
 * head_size, and ffn_hidden, the width of the feed-forward layers.
 * @typedef {object} Config
 * @property {number} vocab_size
 * @property {number} block_size
 * @property {number} n_layer
 * @property {number} n_head
 * @property {number} n_embd
 * @property {number} head_size
 * @property {number} ffn_hidden
 * @property {boolean} feed_forward
 * @property {boolean} tied
 * @property {string} position
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
    this.activation = known(ACTIVATIONS, config.activation, "activation function");
    this.position = known(POSITIONS, config.position, "kind of position")(config, tensors);
    const { n_embd, ffn_hidden, feed_forward } = config;
    this.embedding = this.tensor("token_embedding.weight");
    this.layers = Array.from({ length: config.n_layer }, (_, number) => ({
      norm1: this.norm(`blocks.${number}.norm1`),
      qkv: this.linear(`blocks.${number}.attention.qkv`, n_embd),
      proj: this.linear(`blocks.${number}.attention.proj`, n_embd),
      norm2: this.norm(`blocks.${number}.norm2`),
      up: feed_forward ? this.linear(`blocks.${number}.feed_forward.up`, n_embd) : null,
      down: feed_forward ? this.linear(`blocks.${number}.feed_forward.down`, ffn_hidden) : null,
    }));
    this.finalNorm = this.norm("norm");
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
    return (x, from, out, to) => normalise(x, from, out, to, n_embd, gain, shift);
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
