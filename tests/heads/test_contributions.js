// @ts-check
// Functions for test_contributions.py.

import { Analysis } from "../../gpt/view/page/assets/model/analysis.js";
import { contributionsOf } from "../../gpt/view/page/assets/model/contributions.js";
import { Gpt } from "../../gpt/view/page/assets/model/gpt.js";
import { Reading } from "../../gpt/view/page/assets/model/reading.js";

/** @import { Config } from "../../gpt/view/page/assets/model/gpt.js" */

/**
 * The contributions to the logits of some ids after each position.
 * @param {Config} config
 * @param {Record<string, Float32Array>} tensors
 * @param {number[]} ids
 * @param {number[]} logits
 * @param {any} changes
 */
export function contributions(config, tensors, ids, logits, changes) {
  const reading = new Reading(new Gpt(config, new Map(Object.entries(tensors))), changes);
  reading.append(ids);
  return ids.map((_, position) => logits.map((id) => contributionsOf(reading, { position, id })));
}

/**
 * What the worker finds for one question after the other.
 * @param {Config} config
 * @param {Record<string, Float32Array>} tensors
 * @param {any[]} asks
 */
export function answers(config, tensors, asks) {
  const gpt = new Gpt(config, new Map(Object.entries(tensors)));
  const analysis = new Analysis(gpt, null);
  return asks.map((ask) => analysis.read(ask));
}
