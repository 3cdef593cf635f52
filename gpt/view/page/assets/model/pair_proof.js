// @ts-check
// Proves that this browser computes the logits and the attention that numpy computed, of a model with
// an encoder.

import { PairReading, Source } from "./pair.js";
import { apart, logitError, LOGITS_PROVEN } from "./proof.js";

/** @import { Attention } from "./attention.js" */
/** @import { Proven } from "./computation.js" */

/**
 * @param {import("./pair.js").PairGpt} gpt
 * @param {import("./proof.js").ProofRecord} record
 * @returns {Proven[]}
 */
export function provePairs(gpt, { texts, kept, tolerance, weight_tolerance = NaN }) {
  const none = texts.length ? 0 : NaN;
  let logitsApart = none;
  const weightsApart = { encoder: none, decoder: none, cross: none };
  for (const { ids, source: read = [], logits, weights } of texts) {
    const source = new Source(gpt, read);
    const reading = new PairReading(gpt, source);
    reading.append(ids);
    logitsApart = Math.max(logitsApart, logitError(reading, logits, kept));
    const layers = {
      encoder: source.reading.attention,
      decoder: reading.attention,
      cross: reading.cross,
    };
    for (const kind of /** @type {import("./pair.js").AttentionKind[]} */ (Object.keys(layers))) {
      const length = kind === "encoder" ? source.length : reading.length;
      const found = apart(weights?.[kind] ?? "", (n) => weightAt(layers[kind], length, n));
      weightsApart[kind] = Math.max(weightsApart[kind], found);
    }
  }
  return [
    { name: LOGITS_PROVEN, error: logitsApart, bound: tolerance },
    ...Object.entries(weightsApart).map(([kind, error]) => ({
      name: `${kind} weights = numpy's, on the same texts`,
      error,
      bound: weight_tolerance,
    })),
  ];
}

/**
 * The weight that ProofRecord keeps of row n: rows are counted layer after layer, head after head.
 * @param {Attention[]} layers
 * @param {number} length how many queries
 * @param {number} n
 */
function weightAt(layers, length, n) {
  const { n_head } = layers[0].gpt.config;
  const [query, head] = [n % length, Math.floor(n / length) % n_head];
  const attention = layers[Math.floor(n / length / n_head)];
  const keys = attention.allowed(query);
  return attention.weights[attention.begin(query) + head * keys + n % keys];
}
