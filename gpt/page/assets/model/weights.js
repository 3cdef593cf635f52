// @ts-check
// Decodes the numbers in the file, which gpt/page/live.py encoded: base64, gzip, float16.

/** @import { StoredModel } from "./protocol.js" */

/** Decodes base64. @param {string} base64 @returns {Uint8Array<ArrayBuffer>} */
function bytes(base64) {
  const binary = atob(base64);
  const result = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) result[i] = binary.charCodeAt(i);
  return result;
}

/** Decodes float32 numbers. @param {string} base64 */
export function unpack(base64) {
  return new Float32Array(bytes(base64).buffer);
}

/**
 * Decodes the tensors: name -> numbers. Throws an Error if they are damaged, which gzip's checksum shows.
 * @param {Pick<StoredModel, "tensors" | "manifest" | "bits">} stored
 * @returns {Promise<Map<string, Float32Array>>}
 */
export async function unpackTensors({ tensors, manifest, bits }) {
  const planes = await inflate(tensors).catch(() => {
    throw new Error("The model in this file is damaged: its bytes do not match their checksum.");
  });
  const sizes = manifest.map(({ shape }) => shape.reduce((product, size) => product * size, 1));
  if (planes.length !== sizes.reduce((sum, size) => sum + size, 0) * bits / 8) {
    throw new Error("The model in this file is damaged: it has too few or too many numbers.");
  }
  const numbers = floats(joined(planes, bits / 8), bits);
  let used = 0;
  return new Map(manifest.map(({ name }, n) => [name, numbers.slice(used, used += sizes[n])]));
}

/** Decompresses a gzip stream. The promise is rejected if the stream is damaged. @param {string} base64 */
async function inflate(base64) {
  const plain = new Blob([bytes(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

/**
 * Joins the bytes of numbers. planes: the first bytes of all numbers, then the second bytes, and so on.
 * @param {Uint8Array} planes
 * @param {number} size of a number, in bytes
 */
function joined(planes, size) {
  const result = new Uint8Array(planes.length);
  const count = planes.length / size;
  for (let plane = 0; plane < size; plane++) {
    for (let i = 0; i < count; i++) result[i * size + plane] = planes[plane * count + i];
  }
  return result.buffer;
}

/** The finite float16 or float32 numbers of a buffer, as exact float32 numbers.
 * @param {ArrayBuffer} buffer @param {number} bits */
function floats(buffer, bits) {
  if (bits === 32) return new Float32Array(buffer);
  const codes = new Uint16Array(buffer);
  const result = new Float32Array(codes.length);
  const patterns = new Uint32Array(result.buffer);
  codes.forEach((code, i) => {
    patterns[i] = (code & 0x8000) << 16 | (code & 0x7FFF) << 13;
    result[i] *= 2 ** 112; // the exponents of float16 and float32 have different offsets: 15 and 127
  });
  return result;
}
