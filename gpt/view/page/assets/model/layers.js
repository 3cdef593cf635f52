// @ts-check
// The parts of a block that compute each position by itself: gpt/reading/layers.py in JavaScript.
// Arrays are Float32Array, sums are in double precision. C n_embd.

export const EPSILON = 1e-5;
const TAIL = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];

/**
 * LayerNorm of the C numbers of `x` from `from` on, written to `out`, which may be `x`, from `to` on.
 * @param {Float32Array} x
 * @param {number} from
 * @param {Float32Array} out
 * @param {number} to
 * @param {number} width
 * @param {Float32Array | undefined} gain
 * @param {Float32Array | undefined} shift
 */
export function normalise(x, from, out, to, width, gain, shift) {
  let mean = 0;
  for (let i = from; i < from + width; i++) mean += x[i];
  mean /= width;
  let squares = 0;
  for (let i = from; i < from + width; i++) squares += (x[i] - mean) ** 2;
  const scale = 1 / Math.sqrt(squares / width + EPSILON);
  for (let i = 0; i < width; i++) {
    const normed = (x[from + i] - mean) * scale * (gain ? gain[i] : 1);
    out[to + i] = shift ? normed + shift[i] : normed;
  }
}

/**
 * Φ(−x) for x ≥ 0, Φ the distribution function of N(0, 1), with an error of less than 1e-7
 * (formula 7.1.26 of Abramowitz & Stegun 1964).
 * @param {number} x
 */
function normalTail(x) {
  const t = 1 / (1 + 0.3275911 * Math.SQRT1_2 * x);
  let sum = 0;
  for (const each of TAIL) sum = (sum + each) * t;
  return sum * Math.exp(-x * x / 2) / 2;
}

/** @type {Record<string, (x: number) => number>} */
export const ACTIVATIONS = {
  /** The tanh form (Hendrycks & Gimpel 2016). */
  gelu: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  /** x·Φ(x) (Hendrycks & Gimpel 2016). */
  gelu_erf: (x) => Math.max(x, 0) - Math.abs(x) * normalTail(Math.abs(x)),
  relu: (x) => x > 0 ? x : 0,
  relu2: (x) => x > 0 ? x * x : 0,
};
