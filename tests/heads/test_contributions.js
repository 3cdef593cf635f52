// @ts-check
// Functions for test_contributions.py.

import { Analysis } from "../../gpt/view/page/assets/model/analysis.js";
import { contributionsOf } from "../../gpt/view/page/assets/model/contributions.js";
import { Gpt } from "../../gpt/view/page/assets/model/gpt.js";
import { PairGpt, PairReading, Source } from "../../gpt/view/page/assets/model/pair.js";
import { PairAnalysis } from "../../gpt/view/page/assets/model/pair_analysis.js";
import { Reading } from "../../gpt/view/page/assets/model/reading.js";

/** @import { PairConfig } from "../../gpt/view/page/assets/model/pair.js" */

/**
 * The contributions to the logits of some ids after each position.
 * @param {PairConfig} config
 * @param {Record<string, Float32Array>} tensors
 * @param {number[] | null} source of a model with an encoder
 * @param {number[]} ids
 * @param {number[]} logits
 * @param {any} changes of a model without an encoder, or those of each kind of attention
 */
export function contributions(config, tensors, source, ids, logits, changes) {
  const reading = readingOf(config, tensors, source, changes);
  reading.append(ids);
  return ids.map((_, position) => logits.map((id) => contributionsOf(reading, { position, id })));
}

/** @param {PairConfig} config @param {Record<string, Float32Array>} tensors
 * @param {number[] | null} source @param {any} changes */
function readingOf(config, tensors, source, changes) {
  const all = new Map(Object.entries(tensors));
  if (!source) return new Reading(new Gpt(config, all), changes);
  const gpt = new PairGpt(config, all);
  return new PairReading(gpt, new Source(gpt, source, changes?.encoder ?? null), changes);
}

/**
 * What the worker finds for one question after the other.
 * @param {PairConfig} config
 * @param {Record<string, Float32Array>} tensors
 * @param {any[]} asks
 */
export function answers(config, tensors, asks) {
  const all = new Map(Object.entries(tensors));
  const analysis = config.encoder_layers
    ? new PairAnalysis(new PairGpt(config, all), null)
    : new Analysis(new Gpt(config, all), null, null);
  return asks.map((ask) => analysis.read(ask));
}
