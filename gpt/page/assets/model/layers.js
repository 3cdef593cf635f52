// @ts-check
// Computes the norms and the activation functions, as gpt/reading/gpt.py does. Arrays are Float32Array,
// sums are in double precision. C is n_embd.

export const EPSILON = 1e-5;
const TAIL = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];

/**
 * LayerNorm of `count` rows of (T, C) numbers, from the row `first` on.
 * @returns {Float32Array} (count, C)
 * @param {Float32Array} x
 * @param {number} first
 * @param {number} count
 * @param {Float32Array} gain (C,)
 * @param {Float32Array | undefined} shift (C,)
 */
export function normalise(x, first, count, gain, shift) {
  const width = gain.length;
  const out = new Float32Array(count * width);
  for (let n = 0; n < count; n++) {
    const from = (first + n) * width;
    const [mean, scale] = meanAndScale(x, from, width);
    for (let i = 0; i < width; i++) {
      const normed = (x[from + i] - mean) * scale * gain[i];
      out[n * width + i] = shift ? normed + shift[i] : normed;
    }
  }
  return out;
}

/** The mean of the `width` numbers that begin at x[from], and the factor by which a norm scales them.
 * @param {Float32Array} x @param {number} from @param {number} width */
export function meanAndScale(x, from, width) {
  let [mean, squares] = [0, 0];
  for (let i = from; i < from + width; i++) mean += x[i];
  mean /= width;
  for (let i = from; i < from + width; i++) squares += (x[i] - mean) ** 2;
  return [mean, 1 / Math.sqrt(squares / width + EPSILON)];
}

/**
 * Φ(−x) for x ≥ 0, where Φ is the distribution function of N(0, 1). The error is below 1e-7 (formula
 * 7.1.26 of Abramowitz & Stegun 1964).
 * @param {number} x
 */
function normalTail(x) {
  const t = 1 / (1 + 0.3275911 * Math.SQRT1_2 * x);
  let sum = 0;
  for (const factor of TAIL) sum = (sum + factor) * t;
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
