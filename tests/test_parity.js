// @ts-check
// Functions for test_parity.py.

import { Gpt } from "../gpt/view/page/assets/model/gpt.js";
import { ACTIVATIONS, NORMS } from "../gpt/view/page/assets/model/layers.js";
import { PairGpt, PairReading, Source } from "../gpt/view/page/assets/model/pair.js";
import { POSITIONS } from "../gpt/view/page/assets/model/positions.js";
import { Reading } from "../gpt/view/page/assets/model/reading.js";

/** @import { PairConfig } from "../gpt/view/page/assets/model/pair.js" */

/** The names of the values that have an implementation. */
export function variants() {
  return [POSITIONS, NORMS, ACTIVATIONS].map((each) => Object.keys(each));
}

/**
 * The logits of every position.
 * @param {PairConfig} config
 * @param {Record<string, Float32Array>} tensors
 * @param {number[] | null} source of a model with an encoder
 * @param {number[]} ids
 */
export function logits(config, tensors, source, ids) {
  const reading = source ? readPair(config, tensors, source) : readText(config, tensors);
  reading.append(ids);
  return Float32Array.from(ids.flatMap((_, at) => [...reading.logits(at)]));
}

/** @param {PairConfig} config @param {Record<string, Float32Array>} tensors */
function readText(config, tensors) {
  return new Reading(new Gpt(config, new Map(Object.entries(tensors))));
}

/** @param {PairConfig} config @param {Record<string, Float32Array>} tensors @param {number[]} source */
function readPair(config, tensors, source) {
  const gpt = new PairGpt(config, new Map(Object.entries(tensors)));
  return new PairReading(gpt, new Source(gpt, source, null), null);
}
