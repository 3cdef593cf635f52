// @ts-check
// Holds the parameters of a trained GPT, with the tensor names of the model file. reading.js computes
// with them, as gpt/reading/gpt.py does. C is n_embd, L n_layer, H n_head, D head_size.

import { ACTIVATIONS, normalise } from "./layers.js";
import { Linear } from "./linear.js";
import { POSITIONS } from "./positions.js";

/** @import { Config } from "./protocol.js" */

/** The parameters of a GPT, grouped by layer. */
export class Gpt {
  /**
   * Throws an Error if this page lacks a variant of the model, or if a tensor is missing.
   * @param {Config} config
   * @param {Map<string, Float32Array>} tensors
   * @param {Float32Array} means (L, H, D), the output of every head that is switched off
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
    if (!tensor) throw new Error(`The model in this file lacks the tensor ${name}.`);
    return tensor;
  }

  /** @param {string} name @param {number} columns */
  #linear(name, columns) {
    return new Linear(this.#tensor(`${name}.weight`), this.tensors.get(`${name}.bias`), columns);
  }

  /** A norm as a function: it normalises `count` rows of (T, C) numbers, from the row `first` on.
   * @param {string} name @returns {(x: Float32Array, first: number, count: number) => Float32Array} */
  #norm(name) {
    const [gain, shift] = [this.#tensor(`${name}.weight`), this.tensors.get(`${name}.bias`)];
    return (x, first, count) => normalise(x, first, count, gain, shift);
  }
}

/**
 * The variant with this name; throws an Error if there is none.
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
