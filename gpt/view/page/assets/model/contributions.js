// @ts-check
// What each part of a model adds to one logit: gpt/heads/contributions.py in JavaScript, which says how.
// Sums are in double precision. C n_embd, D head_size.

import { EPSILON } from "./layers.js";

/** Numbers of one position. @typedef {Float32Array | Float64Array} Row */
/** See Part there. @typedef {{kind: "embedding" | "head" | "bias" | "ffn" | "ffn_bias", layer: number | null,
 *   head: number | null, attention: "decoder" | "cross" | null, value: number}} Part */
/** position: in the window; id: null for the likeliest one. @typedef {{position: number, id: number | null}} AskedLogit */
/** parts: in the order of computation; their sum is the logit.
 * @typedef {{position: number, id: number, logit: number, parts: Part[]}} Contributions */

/**
 * null if no logit is asked for, or one of a position that the text does not have.
 * @param {import("./reading.js").Reading} reading
 * @param {AskedLogit | null} [asked]
 * @returns {Contributions | null}
 */
export function contributionsOf(reading, asked) {
  if (!asked || asked.position >= reading.length) return null;
  const { position } = asked;
  const { gpt, streams } = reading;
  const { n_embd, n_layer, post_norm } = gpt.config;
  const logits = reading.logits(position);
  const id = asked.id ?? logits.reduce((best, each, at) => each > logits[best] ? at : best, 0);
  const row = (/** @type {Row} */ rows, at = position) =>
    rows.subarray(at * n_embd, (at + 1) * n_embd);
  /** @type {Part[]} */
  const parts = [];
  let [vector, shifts] = [row(gpt.output.weight, id), 0];
  const nowhere = { layer: null, head: null, attention: null };
  /** @type {(kind: Part["kind"], part: Row, where?: Partial<Part>) => void} */
  const add = (kind, part, where) =>
    void parts.unshift({ kind, ...nowhere, ...where, value: sumOfProducts(part, vector) });
  /** Passes the frozen norm of the sum of some rows. @param {string} name @param {Row[]} rows */
  const through = (name, ...rows) => {
    shifts += sumOfProducts(gpt.tensors.get(`${name}.bias`) ?? new Float32Array(n_embd), vector);
    const gain = gpt.tensors.get(`${name}.weight`);
    const x = centred(gpt, Float64Array.from(vector, (_, i) => rows.reduce((s, r) => s + r[i], 0)));
    const scale = 1 / Math.sqrt(sumOfProducts(x, x) / n_embd + EPSILON);
    vector = centred(gpt, Float64Array.from(vector, (v, i) => v * scale * (gain ? gain[i] : 1)));
  };
  if (!post_norm) through("norm", row(streams[n_layer]));
  for (let layer = n_layer - 1; layer >= 0; layer--) {
    const attentions = reading.sublayers(layer);
    const resid_mid = attentions[attentions.length - 1].result(position, 1);
    const { ffn } = reading.feedForward(layer, resid_mid, 1);
    if (post_norm) through(`blocks.${layer}.norm2`, resid_mid, ffn);
    const bias = gpt.tensors.get(`blocks.${layer}.feed_forward.down.bias`);
    if (bias) add("ffn_bias", bias, { layer });
    add("ffn", bias ? ffn.map((each, i) => each - bias[i]) : ffn, { layer });
    for (let n = attentions.length - 1; n >= 0; n--) {
      const { resid_pre, proj, sublayer } = attentions[n];
      const norm = `blocks.${layer}.${n ? "cross_norm" : "norm1"}`;
      if (post_norm) through(norm, row(resid_pre), row(proj));
      const attention = attentions.length < 2 ? null : n ? "cross" : "decoder";
      if (sublayer.proj.bias) add("bias", sublayer.proj.bias, { layer, attention });
      outputsOf(attentions[n], position).forEach((each, n, { length }) =>
        add("head", each, { layer, attention, head: length - 1 - n })
      );
    }
  }
  add("embedding", row(streams[0]));
  const shifted = gpt.tensors.has("blocks.0.norm1.bias");
  if (shifted) parts.push({ kind: "bias", ...nowhere, value: shifts });
  return { position, id, logit: logits[id], parts };
}

/** (C,) each head's output through its columns of the projection, the last one first.
 * @param {import("./attention.js").Attention} attention @param {number} position */
function outputsOf(attention, position) {
  const { n_embd, n_head, head_size } = attention.gpt.config;
  const { weight } = attention.sublayer.proj;
  const context = new Float32Array(n_embd);
  return Array.from({ length: n_head }, (_, head) => {
    const row = attention.begin(position) + head * attention.allowed(position);
    attention.mix(head, position, row, context, 0);
    const [from, end] = [head * head_size, (head + 1) * head_size];
    return Float64Array.from(
      context,
      (_, i) => sumOfProducts(context.subarray(from, end), weight.subarray(i * n_embd + from)),
    );
  }).reverse();
}

/** Less the mean, if the norm removes it. @param {import("./gpt.js").Gpt} gpt @param {Float64Array} x */
function centred({ config }, x) {
  const mean = config.norm === "layer" ? x.reduce((sum, each) => sum + each) / x.length : 0;
  return x.map((each) => each - mean);
}

/** @param {Row} a @param {Row} b */
function sumOfProducts(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
