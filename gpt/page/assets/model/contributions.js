// @ts-check
// Splits a logit into what the parts of the model add to it (direct logit attribution), as
// gpt/heads/contributions.py does and explains. Sums are in double precision.
import { meanAndScale } from "./layers.js";
import { dot } from "./linear.js";

/** @import { Reading } from "./reading.js" */
/** @import { Contributions } from "./protocol.js" */

/** Splits the logit of `id` after the character of a row.
 * @param {Reading} reading @param {number} row @param {number} id @returns {Contributions} */
export function contributionsOf(reading, row, id) {
  const { gpt, streams, layers } = reading;
  const { n_embd, head_size, n_head } = gpt.config;
  const at = row * n_embd;
  const direction = throughNorm(reading, row, id);
  /** What a vector adds to the logit. The vector begins at x[from].
   * @param {ArrayLike<number> | undefined} x @param {number} from */
  const adds = (x, from = 0) => x ? dot(x, from, direction, 0, n_embd) : 0;
  const shift = gpt.tensors.get("norm.bias");
  let biases = shift ? dot(gpt.output.weight, id * n_embd, shift, 0, n_embd) : 0;
  const heads = gpt.layers.map(({ proj }, layer) => {
    biases += adds(proj.bias);
    const beforeProj = new Float64Array(n_embd); // the direction in the space of the heads' outputs
    for (let i = 0; i < n_embd; i++) {
      for (let j = 0; j < n_embd; j++) beforeProj[j] += direction[i] * proj.weight[i * n_embd + j];
    }
    const { context } = layers[layer];
    return Array.from({ length: n_head }, (_, head) => {
      return dot(context, at + head * head_size, beforeProj, head * head_size, head_size);
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

/** (n_embd,) the direction in which a vector raises the logit of `id`: the output weights of `id`, seen
 * through the last norm, whose scale is held at its value for this row.
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
