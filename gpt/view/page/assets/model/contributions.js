// @ts-check
// What each part of a model adds to one logit: gpt/heads/contributions.py in JavaScript, which says how.
// Sums are in double precision. C n_embd, D head_size.

import { EPSILON } from "./layers.js";

/** Numbers of one position. @typedef {Float32Array | Float64Array} Row */
/** See Part there; sources: what each character that a head attends to adds, if its output is not
 * replaced. @typedef {{kind: "embedding" | "head" | "bias" | "ffn" | "ffn_bias", layer: number | null,
 *   head: number | null, value: number, sources?: Float64Array}} Part */
/** position: in the window; id: null for the likeliest one; against: the id whose logit is taken away.
 * @typedef {{position: number, id: number | null, against?: number | null}} AskedLogit */
/** parts: in the order of computation; their sum is the logit, or the difference of two.
 * @typedef {{position: number, id: number, against: number | null, logit: number, parts: Part[]}} Contributions */

/**
 * null if no logit is asked for, or one of a position that the text does not have.
 * @param {import("./reading.js").Reading} reading
 * @param {AskedLogit | null | undefined} asked
 * @returns {Contributions | null}
 */
export function contributionsOf(reading, asked) {
  if (!asked || asked.position >= reading.length) return null;
  const { position } = asked;
  const { gpt, streams } = reading;
  const { n_embd, n_layer } = gpt.config;
  const logits = reading.logits(position);
  const id = asked.id ?? logits.reduce((best, each, at) => each > logits[best] ? at : best, 0);
  const against = asked.against === id ? null : asked.against ?? null;
  const row = (/** @type {Row} */ rows, at = position) =>
    rows.subarray(at * n_embd, (at + 1) * n_embd);
  /** @type {Part[]} */
  const parts = [];
  /** @type {[Row, number]} */
  let [vector, shifts] = [row(gpt.output.weight, id), 0];
  if (against !== null) {
    const other = row(gpt.output.weight, against);
    vector = Float64Array.from(vector, (each, i) => each - other[i]);
  }
  const nowhere = { layer: null, head: null };
  /** @type {(kind: Part["kind"], part: Row, where?: Partial<Part>) => void} */
  const add = (kind, part, where) =>
    void parts.unshift({ kind, ...nowhere, ...where, value: sumOfProducts(part, vector) });
  /** Passes the frozen norm of a row. @param {string} name @param {Row} normed */
  const through = (name, normed) => {
    shifts += sumOfProducts(gpt.tensors.get(`${name}.bias`) ?? new Float32Array(n_embd), vector);
    const gain = gpt.tensors.get(`${name}.weight`);
    const x = centred(Float64Array.from(normed));
    const scale = 1 / Math.sqrt(sumOfProducts(x, x) / n_embd + EPSILON);
    vector = centred(Float64Array.from(vector, (v, i) => v * scale * (gain ? gain[i] : 1)));
  };
  through("norm", row(streams[n_layer]));
  for (let layer = n_layer - 1; layer >= 0; layer--) {
    const attention = reading.attention[layer];
    const found = reading.feedForward(layer, attention.result(position, 1), 1);
    if (found) {
      const bias = gpt.tensors.get(`blocks.${layer}.feed_forward.down.bias`);
      if (bias) add("ffn_bias", bias, { layer });
      add("ffn", bias ? found.ffn.map((each, i) => each - bias[i]) : found.ffn, { layer });
    }
    const { bias } = gpt.layers[layer].proj;
    if (bias) add("bias", bias, { layer });
    outputsOf(attention, position).forEach((each, h, { length }) => {
      const head = length - 1 - h;
      const sources = sourcesOf(attention, position, head, vector);
      add("head", each, { layer, head, ...sources && { sources } });
    });
  }
  add("embedding", row(streams[0]));
  const shifted = gpt.tensors.has("blocks.0.norm1.bias");
  if (shifted) parts.push({ kind: "bias", ...nowhere, value: shifts });
  const logit = logits[id] - (against === null ? 0 : logits[against]);
  return { position, id, against, logit, parts };
}

/** (C,) each head's output through its columns of the projection, the last one first.
 * @param {import("./attention.js").Attention} attention @param {number} position */
function outputsOf(attention, position) {
  const { n_embd, n_head, head_size } = attention.gpt.config;
  const { weight } = attention.layer.proj;
  const context = new Float32Array(n_embd);
  return Array.from({ length: n_head }, (_, head) => {
    const row = attention.begin(position) + head * (position + 1);
    attention.mix(head, position, row, context, 0);
    const [from, end] = [head * head_size, (head + 1) * head_size];
    return Float64Array.from(
      context,
      (_, i) => sumOfProducts(context.subarray(from, end), weight.subarray(i * n_embd + from)),
    );
  }).reverse();
}

/** What each character that a head attends to adds; null if the head's output is replaced.
 * @param {import("./attention.js").Attention} attention @param {number} position @param {number} head
 * @param {Row} vector */
function sourcesOf(attention, position, head, vector) {
  const { gpt: { config: { n_embd, head_size } }, layer: { proj }, v, weights } = attention;
  if (attention.outputs.has(head)) return null;
  const from = head * head_size;
  const read = new Float64Array(head_size); // the vector, seen from the head's output
  for (let i = 0; i < n_embd; i++) {
    const row = i * n_embd + from;
    for (let d = 0; d < head_size; d++) read[d] += vector[i] * proj.weight[row + d];
  }
  const keys = position + 1;
  const first = attention.begin(position) + head * keys;
  return Float64Array.from({ length: keys }, (_, key) => {
    const at = key * n_embd + from;
    return weights[first + key] * sumOfProducts(read, v.subarray(at, at + head_size));
  });
}

/** Less the mean. @param {Float64Array} x */
function centred(x) {
  const mean = x.reduce((sum, each) => sum + each) / x.length;
  return x.map((each) => each - mean);
}

/** @param {Row} a @param {Row} b */
function sumOfProducts(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
