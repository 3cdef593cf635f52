// @ts-check
// A trained GPT: gpt/reading/gpt.py in JavaScript. reading.js computes its stages. Tensors keep the
// names of the model file. C n_embd, D head_size.

import { ACTIVATIONS, normalise } from "./layers.js";
import { Linear } from "./linear.js";
import { POSITIONS } from "./positions.js";

/** @import { Config } from "./protocol.js" */

/** The parameters of a GPT, ready for use. */
export class Gpt {
  /**
   * Throws an Error for a variant that this page does not know and for a missing tensor.
   * @param {Config} config
   * @param {Map<string, Float32Array>} tensors
   * @param {Float32Array} means (L, H, D), what a head that is off writes
   */
  constructor(config, tensors, means) {
    this.config = config;
    this.tensors = tensors;
    this.means = means;
    this.activation = variant(ACTIVATIONS, config.activation, "activation function");
    this.position = variant(POSITIONS, config.position, "kind of position")(config, tensors);
    const { n_embd, ffn_hidden, feed_forward } = config;
    this.embedding = this.#tensor("token_embedding.weight");
    this.layers = Array.from({ length: config.n_layer }, (_, number) => ({
      norm1: this.#norm(`blocks.${number}.norm1`),
      qkv: this.#linear(`blocks.${number}.attention.qkv`, n_embd),
      proj: this.#linear(`blocks.${number}.attention.proj`, n_embd),
      feedForward: feed_forward
        ? {
          norm2: this.#norm(`blocks.${number}.norm2`),
          up: this.#linear(`blocks.${number}.feed_forward.up`, n_embd),
          down: this.#linear(`blocks.${number}.feed_forward.down`, ffn_hidden),
        }
        : null,
    }));
    this.norm = this.#norm("norm");
    this.output = this.#linear(config.tied ? "token_embedding" : "lm_head", n_embd);
  }

  /** @param {string} name */
  #tensor(name) {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new Error(`The model in this file lacks its numbers ${name}.`);
    return tensor;
  }

  /** @param {string} name @param {number} columns */
  #linear(name, columns) {
    return new Linear(this.#tensor(`${name}.weight`), this.tensors.get(`${name}.bias`), columns);
  }

  /** A norm as a function: the rows of (T, C) numbers from the `first` on -> (count, C).
   * @param {string} name @returns {(x: Float32Array, first: number, count: number) => Float32Array} */
  #norm(name) {
    const [gain, shift] = [this.#tensor(`${name}.weight`), this.tensors.get(`${name}.bias`)];
    return (x, first, count) => normalise(x, first, count, gain, shift);
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
function variant(variants, name, what) {
  if (!Object.hasOwn(variants, name)) {
    throw new Error(`This file cannot compute the model's ${what} "${name}".`);
  }
  return variants[name];
}
