// @ts-check
// Proves that this browser computes the logits that numpy computed when the file was written.

import { unpack } from "../numbers.js";
import { Reading } from "./reading.js";

/**
 * Texts with `kept` logits of each position p: of the characters p·kept, p·kept + 1 …, where the
 * first character follows the last. tolerance: by how much they may differ. rounding: how far the
 * logits of weights in float16 may be from those of the trained model; null for float32.
 * @typedef {object} ProofRecord
 * @property {{ids: number[], logits: string}[]} texts
 * @property {number} kept
 * @property {number} tolerance
 * @property {number | null} rounding
 */

/**
 * The largest difference from numpy's logits; NaN if one is not a number, or if there are none.
 * @param {import("./gpt.js").Gpt} gpt
 * @param {ProofRecord} record
 */
export function largestError(gpt, { texts, kept }) {
  const size = gpt.config.vocab_size;
  let largest = texts.length ? 0 : NaN;
  for (const { ids, logits } of texts) {
    const reading = new Reading(gpt);
    reading.append(ids);
    const expected = unpack({ bits: 32, base64: logits });
    if (!expected.length) largest = NaN;
    expected.forEach((value, i) => {
      const found = reading.logits(Math.floor(i / kept))[i % size];
      largest = Math.max(largest, Math.abs(found - value)); // NaN stays NaN
    });
  }
  return largest;
}
