// @ts-check
// Functions for test_pair_model_in_javascript.py. A model is kept under the number that `open` returns.

import { PairGpt, PairReading, Source } from "../../../gpt/view/page/assets/model/pair.js";
import { PairAnalysis, write } from "../../../gpt/view/page/assets/model/pair_analysis.js";
import { provePairs } from "../../../gpt/view/page/assets/model/pair_proof.js";

/** @import { PairChanges, PairConfig } from "../../../gpt/view/page/assets/model/pair.js" */
/** @import { PairAsk } from "../../../gpt/view/page/assets/model/pair_analysis.js" */

/** @type {PairGpt[]} */
const models = [];

/** @param {PairConfig} config @param {Record<string, Float32Array>} tensors */
export function open(config, tensors) {
  return models.push(new PairGpt(config, new Map(Object.entries(tensors)))) - 1;
}

/**
 * The logits of every position of a text that is read in parts, and all stages.
 * @param {number} model
 * @param {number[]} source
 * @param {number[][]} parts
 * @param {PairChanges | null} changes
 */
export function everything(model, source, parts, changes = null) {
  const gpt = models[model];
  const read = new Source(gpt, source, changes?.encoder ?? null);
  const reading = new PairReading(gpt, read, changes);
  for (const part of parts) reading.append(part);
  const size = gpt.config.vocab_size;
  const logits = new Float32Array(reading.length * size);
  for (let at = 0; at < reading.length; at++) logits.set(reading.logits(at), at * size);
  return {
    logits,
    memory: read.states,
    encoder: read.reading.stages(),
    decoder: reading.stages(),
    cross: reading.crossStages(),
  };
}

/**
 * What an analysis finds for one question after the other.
 * @param {number} model
 * @param {PairAsk[]} asks
 * @param {PairChanges | null} changes
 */
export function answers(model, asks, changes = null) {
  const analysis = new PairAnalysis(models[model], changes);
  return asks.map((ask) => analysis.read(ask));
}

/** @param {number} model @param {import("../../../gpt/view/page/assets/model/proof.js").ProofRecord} record */
export function prove(model, record) {
  return provePairs(models[model], record);
}

export { write };
