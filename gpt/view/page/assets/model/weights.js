// @ts-check
// A model's tensors from the text in the file: base64 of a gzip stream, as gpt/view/page/shipping.py
// writes it.

import { floats, inflate } from "../numbers.js";

/** @typedef {{name: string, shape: number[]}} TensorShape */

/**
 * The tensors by their names. Throws an Error if the text has been damaged: gzip has a checksum.
 * @param {string} base64
 * @param {TensorShape[]} manifest the tensors, in the order of their numbers
 * @param {number} bits of a number: 16 or 32
 * @returns {Promise<Map<string, Float32Array>>}
 */
export async function unpackTensors(base64, manifest, bits) {
  const sizes = manifest.map(({ shape }) => shape.reduce((product, size) => product * size, 1));
  const planes = await inflate(base64).catch(() => {
    throw new Error("The model in this file is damaged: its bytes do not match their checksum.");
  });
  const count = sizes.reduce((sum, size) => sum + size, 0);
  if (planes.length !== count * bits / 8) {
    throw new Error("The model in this file is damaged: it has too few or too many numbers.");
  }
  const numbers = floats(joined(planes, bits / 8).buffer, bits);
  /** @type {Map<string, Float32Array>} */
  const tensors = new Map();
  let used = 0;
  manifest.forEach(({ name }, i) => {
    tensors.set(name, numbers.slice(used, used + sizes[i]));
    used += sizes[i];
  });
  return tensors;
}

/**
 * Numbers from their bytes, where the first bytes of all numbers come first, then the second ones.
 * @param {Uint8Array} planes
 * @param {number} size of a number, in bytes
 */
function joined(planes, size) {
  const result = new Uint8Array(planes.length);
  const count = planes.length / size;
  for (let plane = 0; plane < size; plane++) {
    const from = plane * count;
    for (let i = 0; i < count; i++) result[i * size + plane] = planes[from + i];
  }
  return result;
}
