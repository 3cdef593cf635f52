// @ts-check
// Functions for test_gpt_in_javascript.py. A model is kept under the number that `open` returns.

import { Gpt } from "../../../gpt/view/page/assets/model/gpt.js";
import { Reading } from "../../../gpt/view/page/assets/model/reading.js";

/** @import { Config } from "../../../gpt/view/page/assets/model/gpt.js" */
/** @import { Changes } from "../../../gpt/view/page/assets/model/attention.js" */

/** @type {Gpt[]} */
const models = [];

/** @param {Config} config @param {Record<string, Float32Array>} tensors */
export function open(config, tensors) {
  return models.push(new Gpt(config, new Map(Object.entries(tensors)))) - 1;
}

/**
 * The logits of every position, after a text that is read in parts. A negative part takes so many
 * characters from the end.
 * @param {number} model
 * @param {(number[] | number)[]} parts
 * @param {Changes | null} changes
 */
export function logits(model, parts, changes) {
  const reading = new Reading(models[model], changes);
  for (const part of parts) {
    if (typeof part === "number") reading.truncate(reading.length + part);
    else {
      reading.append(part);
      reading.logits(reading.length - 1); // so that the test sees a kept one that is too old
    }
  }
  return atDepth(reading, models[model].config.n_layer);
}

/** @param {number} model @param {number[]} ids @param {Changes | null} changes */
export function stages(model, ids, changes) {
  const reading = new Reading(models[model], changes);
  reading.append(ids);
  return {
    layers: reading.stages(),
    lens: reading.streams.map((_, depth) => atDepth(reading, depth)),
  };
}

/** The bytes of all arrays of a text, by their lengths. @param {number} model @param {number[]} ids */
export function room(model, ids) {
  const reading = new Reading(models[model]);
  reading.append(ids);
  const kept = reading.attention.flatMap(({ q, k, v, proj, weights }) => [q, k, v, proj, weights]);
  return [...kept, ...reading.streams].reduce((sum, each) => sum + each.byteLength, 0);
}

/** @param {Reading} reading @param {number} depth */
function atDepth(reading, depth) {
  const size = reading.gpt.config.vocab_size;
  const result = new Float32Array(reading.length * size);
  for (let at = 0; at < reading.length; at++) result.set(reading.logits(at, depth), at * size);
  return result;
}
