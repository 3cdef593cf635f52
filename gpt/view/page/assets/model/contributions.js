// @ts-check
// What each part of a model adds to one logit. The residual stream is a sum of parts, and a logit is
// linear in it if the mean and the scale of each norm stay as they are (Elhage et al. 2021). So the
// logit's row of the output weights goes backwards through the norms, and the product of a part with
// the vector at its place is what it adds. Sums are in double precision.

import { EPSILON } from "./layers.js";

/** Numbers of one position. @typedef {Float32Array | Float64Array} Row */
/**
 * embedding: of the token and its position; head: its output through its columns of the projection;
 * bias: of this projection, or without a layer the shifts of norms; ffn: the feed-forward. attention:
 * whose head or bias it is, in a model with an encoder.
 * @typedef {{kind: "embedding" | "head" | "bias" | "ffn", layer: number | null, head: number | null,
 *   attention?: "decoder" | "cross", value: number}} Part
 */
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
  const { position, id } = asked;
  const { gpt, streams } = reading;
  const { n_embd, n_layer, post_norm } = gpt.config;
  const row = (/** @type {Row} */ rows, at = position) =>
    rows.subarray(at * n_embd, (at + 1) * n_embd);
  const logits = reading.logits(position);
  const chosen = id ?? logits.reduce((best, each, at) => each > logits[best] ? at : best, 0);
  /** @type {Part[]} */
  const parts = [];
  /** @param {Part["kind"]} kind @param {number} value @param {Partial<Part>} [where] */
  const add = (kind, value, where) =>
    parts.unshift({ kind, layer: null, head: null, ...where, value });
  let [vector, shifts] = [row(gpt.output.weight, chosen), 0];
  /** @param {string} name @param {Row} entered @param {Row} [added] */
  const passNorm = (name, entered, added) => {
    shifts += product(gpt.tensors.get(`${name}.bias`) ?? [], vector);
    const x = Float64Array.from(entered, (each, i) => each + (added ? added[i] : 0));
    vector = beforeNorm(gpt, x, vector, gpt.tensors.get(`${name}.weight`));
  };
  if (!post_norm) passNorm("norm", row(streams[n_layer]));
  for (let layer = n_layer - 1; layer >= 0; layer--) {
    const attentions = reading.sublayers(layer);
    const resid_mid = attentions[attentions.length - 1].result(position, 1);
    const { ffn } = reading.feedForward(layer, resid_mid, 1);
    if (post_norm) passNorm(`blocks.${layer}.norm2`, resid_mid, ffn);
    add("ffn", product(ffn, vector), { layer });
    for (let n = attentions.length - 1; n >= 0; n--) {
      const { resid_pre, proj, sublayer } = attentions[n];
      const norm = `blocks.${layer}.${n ? "cross_norm" : "norm1"}`;
      if (post_norm) passNorm(norm, row(resid_pre), row(proj));
      /** @type {Partial<Part>} */
      const where = attentions.length > 1
        ? { layer, attention: n ? "cross" : "decoder" }
        : { layer };
      const { bias } = sublayer.proj;
      if (bias) add("bias", product(bias, vector), where);
      const values = ofHeads(attentions[n], position, vector);
      for (let head = values.length - 1; head >= 0; head--) {
        add("head", values[head], { ...where, head });
      }
    }
  }
  add("embedding", product(row(streams[0]), vector));
  const last = { layer: null, head: null, value: shifts };
  if (gpt.tensors.has("blocks.0.norm1.bias")) parts.push({ kind: "bias", ...last });
  return { position, id: chosen, logit: logits[chosen], parts };
}

/** @param {import("./attention.js").Attention} attention @param {number} position @param {Row} vector */
function ofHeads(attention, position, vector) {
  const { n_embd, n_head, head_size } = attention.gpt.config;
  const { weight } = attention.sublayer.proj;
  const context = new Float32Array(n_embd);
  const before = new Float64Array(n_embd); // the vector before the projection
  for (let i = 0, at = 0; i < n_embd; i++) {
    for (let j = 0; j < n_embd; j++) before[j] += weight[at++] * vector[i];
  }
  return Array.from({ length: n_head }, (_, head) => {
    const row = attention.begin(position) + head * attention.allowed(position);
    attention.mix(head, position, row, context, 0);
    const [from, to] = [head * head_size, (head + 1) * head_size];
    return product(context.subarray(from, to), before.subarray(from, to));
  });
}

/**
 * The vector whose product with `x` is that of `vector` with the norm of `x`, without its shift.
 * @param {import("./gpt.js").Gpt} gpt
 * @param {Float64Array} x
 * @param {Row} vector
 * @param {Float32Array | undefined} gain
 */
function beforeNorm({ config }, x, vector, gain) {
  const centred = (/** @type {Float64Array} */ all) => {
    const mean = all.reduce((sum, each) => sum + each) / all.length;
    return config.norm === "layer" ? all.map((each) => each - mean) : all;
  };
  const centre = centred(x);
  const scale = 1 / Math.sqrt(product(centre, centre) / x.length + EPSILON);
  return centred(Float64Array.from(vector, (each, i) => each * scale * (gain ? gain[i] : 1)));
}

/** @param {ArrayLike<number>} a @param {Row} b */
function product(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
