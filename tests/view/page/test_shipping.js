// @ts-check
// Functions for test_shipping.py.

import { Gpt } from "../../../gpt/view/page/assets/model/gpt.js";
import { largestError } from "../../../gpt/view/page/assets/model/proof.js";
import { Reading } from "../../../gpt/view/page/assets/model/reading.js";
import { unpackTensors } from "../../../gpt/view/page/assets/model/weights.js";

/**
 * A model in the file.
 * @typedef {object} ModelRecord
 * @property {import("../../../gpt/view/page/assets/model/gpt.js").Config} config
 * @property {{name: string, shape: number[]}[]} manifest
 * @property {number} bits
 * @property {string} base64
 */

/** @param {ModelRecord} record */
export async function tensors({ base64, manifest, bits }) {
  return Object.fromEntries(await unpackTensors(base64, manifest, bits));
}

/** @param {ModelRecord} record */
async function open(record) {
  const { base64, manifest, bits } = record;
  return new Gpt(record.config, await unpackTensors(base64, manifest, bits));
}

/**
 * @param {ModelRecord} record
 * @param {import("../../../gpt/view/page/assets/model/proof.js").ProofRecord} proof
 */
export async function prove(record, proof) {
  return largestError(await open(record), proof);
}

/** The logits at the last position of each text. @param {ModelRecord} record @param {number[][]} texts */
export async function logits(record, texts) {
  const gpt = await open(record);
  return texts.map((ids) => {
    const reading = new Reading(gpt);
    reading.append(ids);
    return reading.logits(ids.length - 1);
  });
}
