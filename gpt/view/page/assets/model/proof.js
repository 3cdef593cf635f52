// @ts-check
// Proves that this browser computes the logits that numpy computed when the file was written.

import { unpack } from "../numbers.js";
import { Reading } from "./reading.js";

/**
 * Texts with `kept` logits of each position p: of the characters p·kept, p·kept + 1 …, where the
 * first character follows the last. tolerance: by how much they may differ. rounding: how far the
 * logits of weights in float16 may be from those of the trained model; null for float32.
 * Of a model with an encoder, `source` are the ids that the encoder reads, and `weights` those of each
 * kind of attention: a layer, head and query number n, counted over all of them, has the weight of
 * key n, where the first key follows the last; they may differ by weight_tolerance.
 * @typedef {object} ProofRecord
 * @property {{ids: number[], logits: string, source?: number[],
 *   weights?: Record<string, string>}[]} texts
 * @property {number} kept
 * @property {number} tolerance
 * @property {number | null} rounding
 * @property {number} [weight_tolerance]
 */

export const LOGITS_PROVEN = "logits = numpy's, on the texts in this file";

/**
 * The largest difference from numpy's logits; NaN if one is not a number, or if there are none.
 * @param {import("./gpt.js").Gpt} gpt
 * @param {ProofRecord} record
 */
export function largestError(gpt, { texts, kept }) {
  let largest = texts.length ? 0 : NaN;
  for (const { ids, logits } of texts) {
    const reading = new Reading(gpt);
    reading.append(ids);
    largest = Math.max(largest, logitError(reading, logits, kept));
  }
  return largest;
}

/**
 * The largest difference of a reading's logits from those that the file keeps.
 * @param {Reading} reading
 * @param {string} logits
 * @param {number} kept
 */
export function logitError(reading, logits, kept) {
  const size = reading.gpt.config.vocab_size;
  return apart(logits, (i) => reading.logits(Math.floor(i / kept))[i % size]);
}

/**
 * The largest difference from packed float32 numbers; NaN if one is not a number, or if there are none.
 * @param {string} base64
 * @param {(n: number) => number} found
 */
export function apart(base64, found) {
  const expected = unpack({ bits: 32, base64 });
  let largest = expected.length ? 0 : NaN;
  expected.forEach((value, n) => {
    largest = Math.max(largest, Math.abs(found(n) - value)); // NaN stays NaN
  });
  return largest;
}
