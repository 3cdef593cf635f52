// @ts-check
// The types of the data that Python writes into a page. This module has no code.

/** @import { Packed } from "./numbers.js" */
/** @typedef {{name: string, error: number | null, bound: number | null, passed: boolean}} Check */
/**
 * @typedef {object} Measure
 * @property {string} name
 * @property {string} title
 * @property {string} explained
 * @property {(number | null)[][]} values by layer and head
 * @property {(number | null)[][]} errors standard errors of these
 * @property {number | null | (number | null)[][]} uniform the value of a uniform head; by layer and
 *   head where it depends on the offset
 * @property {number} windows
 * @property {number[][]} [offsets] of the measure "n back": each head's n
 */
/** A text: its characters, and how they are shown.
 * @typedef {{characters: string[], labels: string[]}} Text */
/**
 * @typedef {object} SubjectPayload
 * @property {string} name
 * @property {Record<string, string>} origin
 * @property {number} layers
 * @property {number} heads
 * @property {number} headSize
 * @property {boolean} [attentionOnly] whether the model has no feed-forward layers
 * @property {Check[]} checks
 * @property {Measure[]} measures
 * @property {(string | null)[][] | null} kinds of heads by layer, where several texts show them
 * @property {import("./guesses.js").GuessesPayload} lens
 * @property {Packed[]} weights of the keys that a row may read, row by row, by layer
 * @property {Record<string, Record<string, Packed>>} details q, k, v, resid_pre, proj, by layer
 * @property {{layer: number, head: number, value: Float32Array | null}[]} [replaced] heads whose
 *   output is replaced at every position: by `value`, or by 0 (null)
 * @property {Float64Array} [next] log-probabilities of the vocabulary after the text, on a page that
 *   computes
 * @property {Packed} surprisals of each character after the first: −ln of its probability, in nats
 * @property {PackedContributions | import("./model/contributions.js").Contributions | null}
 *   [contributions] to the logits of the characters that the last depth of the lens lists; on a page that computes, to the logit that was asked for; null: they do not fit, or none was
 * @property {Record<string, Record<string, Packed>>} [more] by layer, where they fit, the stages that
 *   Inspect names, but for resid_pre
 * @property {import("./model/reading.js").Inspected | null} [inspected] on a page that computes
 */
/** values: (T, characters of a position, parts), float32.
 * @typedef {{parts: Omit<import("./model/contributions.js").Part, "value">[], values: Packed}}
 * PackedContributions */
/**
 * @typedef {object} Payload
 * @property {string} version
 * @property {string} title
 * @property {string} measured what the measures are of
 * @property {number} bits
 * @property {string} [stored] what the file contains, on a page that computes
 * @property {boolean} counts whether the model counts, too, which the page does not show
 * @property {{layer: number, head: number | "mean", stage: string, why: string}} start
 * @property {string[]} legend of the signs in the labels
 */

export {};
