// @ts-check
// Functions of the page for tests in Python. A model is kept under the number that `open` returns.

import { Analysis } from "../gpt/page/assets/model/analysis.js";
import { Gpt } from "../gpt/page/assets/model/gpt.js";
import { ACTIVATIONS } from "../gpt/page/assets/model/layers.js";
import { POSITIONS } from "../gpt/page/assets/model/positions.js";
import { largestError } from "../gpt/page/assets/model/probe.js";
import { Reading } from "../gpt/page/assets/model/reading.js";
import * as sampler from "../gpt/page/assets/model/sampler.js";
import { unpack, unpackTensors } from "../gpt/page/assets/model/weights.js";
import { foldedNote, unitsOf } from "../gpt/page/assets/fold.js";

export { beforeAll, draw, probabilities } from "../gpt/page/assets/model/sampler.js";

/** @import { Question, Config, StoredModel } from "../gpt/page/assets/model/protocol.js" */

/** @type {Analysis[]} */
const models = [];

/** The names of the values that have an implementation. */
export function variants() {
  return [POSITIONS, ACTIVATIONS, sampler.FILTERS].map((table) => Object.keys(table));
}

/** @param {Config} config @param {Record<string, Float32Array>} tensors @param {Float32Array} means */
export function open(config, tensors, means) {
  return models.push(new Analysis(new Gpt(config, new Map(Object.entries(tensors)), means))) - 1;
}

/** The logits of every position, after some texts that were read before.
 * @param {number} model @param {number[][]} texts */
export function logits(model, texts) {
  const reading = new Reading(models[model].gpt);
  for (const text of texts) {
    reading.read(text);
    reading.logits(text.length - 1); // so that the test sees a kept one that is too old
  }
  return Float32Array.from(reading.ids.flatMap((_, at) => [...reading.logits(at)]));
}

/** @param {number} model @param {Question} question */
export function answer(model, question) {
  return models[model].answer(question);
}

/** Numbers that are kept of a text. @param {number} model @param {number[]} ids */
export function room(model, ids) {
  const reading = new Reading(models[model].gpt);
  reading.read(ids);
  const kept = reading.layers.flatMap(({ weights, ...others }) => [
    ...weights,
    ...Object.values(others),
  ]);
  return [...kept, ...reading.streams].reduce((sum, array) => sum + array.length, 0);
}

/** @param {StoredModel} record */
export async function tensors(record) {
  return Object.fromEntries(await unpackTensors(record));
}

/** Opens the model of a file, and returns its number and the largest error of its probe.
 * @param {StoredModel} record */
export async function prove(record) {
  const gpt = new Gpt(record.config, await unpackTensors(record), unpack(record.means));
  return [models.push(new Analysis(gpt)) - 1, largestError(gpt, record.probe)];
}

/** @param {number[][]} cases */
export function windowStarts(cases) {
  return cases.map(([length, blockSize]) => sampler.windowStart(length, blockSize));
}

/** What the page reads for a text, and whether it says so.
 * @param {string} text @param {string} characters @param {any} folds */
export function fold(text, characters, folds) {
  const ids = new Map(Array.from(characters).map((character, id) => [character, id]));
  const units = unitsOf(text, ids, folds);
  return [units.flatMap(({ read }) => read).join(""), foldedNote(units, ids) !== ""];
}
