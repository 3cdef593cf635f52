// @ts-check
// A trained GPT with an encoder, as gpt/reading/gpt.py: the encoder reads a source, all of it at once;
// the decoder reads a target that grows, and its cross-attention reads the encoder's output.
// S characters of the source, T of the target, C n_embd.

import { Attention, withRoom } from "./attention.js";
import { Gpt } from "./gpt.js";
import { Reading } from "./reading.js";

/** @import { Changes } from "./attention.js" */
/** @import { Config } from "./gpt.js" */
/** @typedef {"encoder" | "decoder" | "cross"} AttentionKind */
/** Changes of each kind of attention. @typedef {Record<AttentionKind, Changes | null>} PairChanges */
/** @typedef {Config & {encoder_layers: number}} PairConfig */

const OF_ENCODER = "encoder.";
const SHARED_TABLE = "token_embedding.weight";

export class PairGpt extends Gpt {
  /**
   * Throws an Error as Gpt.
   * @param {PairConfig} config
   * @param {Map<string, Float32Array>} tensors
   */
  constructor(config, tensors) {
    super(config, tensors);
    const own = new Map([[SHARED_TABLE, this.tensor(SHARED_TABLE)]]);
    for (const [name, numbers] of tensors) {
      if (name.startsWith(OF_ENCODER)) own.set(name.slice(OF_ENCODER.length), numbers);
    }
    this.encoder = new Gpt({ ...config, n_layer: config.encoder_layers, tied: true }, own);
    const { n_embd } = config;
    this.cross = this.layers.map((_, layer) => {
      const qkv = this.linear(`blocks.${layer}.cross.qkv`, n_embd);
      return {
        norm1: this.before(`blocks.${layer}.cross_norm`),
        after1: this.after(`blocks.${layer}.cross_norm`),
        q: qkv.part(0, n_embd),
        kv: qkv.part(n_embd, 3 * n_embd),
        proj: this.linear(`blocks.${layer}.cross.proj`, n_embd),
      };
    });
  }
}

/** A source that the encoder has read. */
export class Source {
  /**
   * @param {PairGpt} gpt
   * @param {number[]} ids one or more
   * @param {Changes | null} changes
   */
  constructor(gpt, ids, changes = null) {
    const { n_embd } = gpt.config;
    this.reading = new Reading(gpt.encoder, changes, ids.length);
    this.reading.append(ids);
    this.length = ids.length;
    /** (S, C) what cross-attention reads. */
    this.states = new Float32Array(ids.length * n_embd);
    const last = this.reading.streams[gpt.encoder.config.n_layer];
    for (let at = 0; at < this.states.length; at += n_embd) {
      gpt.encoder.finalNorm(last, at, this.states, at);
    }
  }
}

/** Cross-attention of one layer: keys and values come from a source, and are computed once. */
class CrossAttention extends Attention {
  /**
   * @param {PairGpt} gpt
   * @param {number} layer
   * @param {Changes | null} changes
   * @param {Source} source
   */
  constructor(gpt, layer, changes, source) {
    super(gpt, layer, changes, source.length, gpt.cross[layer]);
    const { n_embd } = gpt.config;
    const packed = new Float32Array(2 * source.states.length);
    this.k = new Float32Array(source.states.length);
    this.v = new Float32Array(source.states.length);
    this.query = gpt.cross[layer].q;
    gpt.cross[layer].kv.apply(source.states, 0, source.length, packed, 0);
    for (let to = 0; to < source.states.length; to += n_embd) {
      this.k.set(packed.subarray(2 * to, 2 * to + n_embd), to);
      this.v.set(packed.subarray(2 * to + n_embd, 2 * (to + n_embd)), to);
    }
  }

  /** @override @param {Float32Array} resid_pre @param {number} first @param {number} count */
  project(resid_pre, first, count) {
    const normed = this.normed(resid_pre, first, count);
    this.query.apply(normed, 0, count, this.q, first * this.gpt.config.n_embd);
  }
}

/** What the decoder reads, a TAB and a target, beside a source. */
export class PairReading extends Reading {
  /**
   * @param {PairGpt} gpt
   * @param {Source} source
   * @param {PairChanges | null} changes
   */
  constructor(gpt, source, changes = null) {
    super(gpt, changes?.decoder ?? null);
    this.cross = gpt.layers.map((_, layer) =>
      new CrossAttention(gpt, layer, changes?.cross ?? null, source)
    );
    /** (T, C) what enters cross-attention. */
    this.between = gpt.layers.map(() => new Float32Array(0));
  }

  /** @override @param {number} layer @param {number} first @param {number} count */
  attend(layer, first, count) {
    const own = super.attend(layer, first, count);
    const at = first * this.gpt.config.n_embd;
    const between = this.between[layer] = withRoom(this.between[layer], at + own.length);
    between.set(own, at);
    return this.cross[layer].extend(between, first, count);
  }

  /** @override @param {number} layer */
  sublayers(layer) {
    return [this.attention[layer], this.cross[layer]];
  }

  /** The stages of cross-attention. */
  crossStages() {
    return this.cross.map((each) => each.stages(this.length));
  }
}
