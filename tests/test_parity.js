// @ts-check
// Functions for test_parity.py.

import { Gpt } from "../gpt/view/page/assets/model/gpt.js";
import { ACTIVATIONS } from "../gpt/view/page/assets/model/layers.js";
import { POSITIONS } from "../gpt/view/page/assets/model/positions.js";
import { Reading } from "../gpt/view/page/assets/model/reading.js";

/** @import { Config } from "../gpt/view/page/assets/model/gpt.js" */

/** The names of the values that have an implementation. */
export function variants() {
  return [POSITIONS, ACTIVATIONS].map((each) => Object.keys(each));
}

/**
 * The logits of every position.
 * @param {Config} config
 * @param {Record<string, Float32Array>} tensors
 * @param {number[]} ids
 */
export function logits(config, tensors, ids) {
  const reading = new Reading(new Gpt(config, new Map(Object.entries(tensors))));
  reading.append(ids);
  return Float32Array.from(ids.flatMap((_, at) => [...reading.logits(at)]));
}
