// @ts-check
// Checks that this browser computes the logits that numpy computed when the file was written.

import { Reading } from "./reading.js";
import { unpack } from "./weights.js";

/**
 * The largest difference from numpy's logits; NaN if a logit is NaN, or if a text has no logits.
 * @param {import("./gpt.js").Gpt} gpt
 * @param {import("./protocol.js").Probe} probe
 */
export function largestError(gpt, { texts, kept }) {
  let largest = texts.length ? 0 : NaN;
  for (const { ids, logits } of texts) {
    const reading = new Reading(gpt);
    reading.read(ids);
    const expected = unpack(logits);
    if (!expected.length) largest = NaN;
    expected.forEach((value, i) => {
      const computed = reading.logits(Math.floor(i / kept))[i % gpt.config.vocab_size];
      largest = Math.max(largest, Math.abs(computed - value)); // NaN stays NaN
    });
  }
  return largest;
}
