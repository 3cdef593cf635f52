// @ts-check
// What each part of a model adds to one logit (direct logit attribution): gpt/heads/contributions.py
// in JavaScript, which says how. Sums are in double precision. C n_embd, D head_size.

import { meanAndScale } from "./layers.js";
import { dot } from "./linear.js";

/** @import { Reading } from "./reading.js" */
/** @import { Contributions } from "./protocol.js" */

/** The parts of the logit of `id` after a row.
 * @param {Reading} reading @param {number} row @param {number} id @returns {Contributions} */
export function contributionsOf(reading, row, id) {
  const { gpt, streams, layers } = reading;
  const { n_embd, head_size, n_head } = gpt.config;
  const at = row * n_embd;
  const direction = throughNorm(reading, row, id);
  /** What a vector that stands in `x` from `from` on adds.
   * @param {ArrayLike<number> | undefined} x @param {number} from */
  const adds = (x, from = 0) => x ? dot(x, from, direction, 0, n_embd) : 0;
  const shift = gpt.tensors.get("norm.bias");
  let biases = shift ? dot(gpt.output.weight, id * n_embd, shift, 0, n_embd) : 0;
  const heads = gpt.layers.map(({ proj }, layer) => {
    biases += adds(proj.bias);
    const written = new Float64Array(n_embd); // the direction, seen from what the heads write
    for (let i = 0; i < n_embd; i++) {
      for (let j = 0; j < n_embd; j++) written[j] += direction[i] * proj.weight[i * n_embd + j];
    }
    const { context } = layers[layer];
    return Array.from({ length: n_head }, (_, head) => {
      return dot(context, at + head * head_size, written, head * head_size, head_size);
    });
  });
  const feedForwards = gpt.layers.flatMap(({ feedForward }, layer) => {
    if (!feedForward) return [];
    const bias = adds(feedForward.down.bias);
    biases += bias;
    return [adds(streams[layer + 1], at) - adds(layers[layer].mid, at) - bias];
  });
  const logit = reading.logits(row)[id];
  return { id, logit, embedding: adds(streams[0], at), heads, layers: feedForwards, biases };
}

/** (C,) what the last norm, held at this row, makes of the output weights of `id`.
 * @param {Reading} reading @param {number} row @param {number} id */
function throughNorm({ gpt, streams }, row, id) {
  const { n_embd, n_layer } = gpt.config;
  const gain = /** @type {Float32Array} */ (gpt.tensors.get("norm.weight"));
  const [_, scale] = meanAndScale(streams[n_layer], row * n_embd, n_embd);
  const output = gpt.output.weight.subarray(id * n_embd, (id + 1) * n_embd);
  const direction = Float64Array.from(output, (weight, i) => weight * gain[i] * scale);
  const mean = direction.reduce((sum, value) => sum + value) / n_embd;
  return direction.map((value) => value - mean);
}
