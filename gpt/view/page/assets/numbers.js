// @ts-check
// Converts base64 to typed arrays, and numbers to short text.

/** Numbers as base64, or as they are. @typedef {{bits: number, base64: string} | Float32Array} Packed */

/**
 * The bytes of a base64 text.
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function bytes(text) {
  const { fromBase64 } = /** @type {any} */ (Uint8Array); // in browsers since 2025
  if (fromBase64) return fromBase64.call(Uint8Array, text);
  const binary = atob(text);
  const result = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) result[i] = binary.charCodeAt(i);
  return result;
}

/**
 * The bytes of a gzip stream in base64. Rejects damaged ones: gzip has a checksum.
 * @param {string} base64
 */
export async function inflate(base64) {
  const stream = new Blob([bytes(base64)]).stream();
  const plain = stream.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

/**
 * float16 or float32 numbers, exactly.
 * @param {Packed} packed
 * @returns {Float32Array}
 */
export function unpack(packed) {
  if (packed instanceof Float32Array) return packed;
  return floats(bytes(packed.base64).buffer, packed.bits);
}

/**
 * The value that a map keeps under a name, or a new one. The map keeps those used last.
 * @template K, V
 * @param {Map<K, V>} kept
 * @param {number} most
 * @param {K} name
 * @param {() => V} make
 */
export function recall(kept, most, name, make) {
  const value = kept.get(name) ?? make();
  kept.delete(name); // last used, last in the map
  kept.set(name, value);
  if (kept.size > most) kept.delete(/** @type {K} */ (kept.keys().next().value));
  return value;
}

/**
 * The float16 or float32 numbers of a buffer, exactly.
 * @param {ArrayBuffer} buffer
 * @param {number} bits
 * @returns {Float32Array}
 */
export function floats(buffer, bits) {
  if (bits === 32) return new Float32Array(buffer);
  const codes = new Uint16Array(buffer);
  const result = new Float32Array(codes.length);
  const patterns = new Uint32Array(result.buffer);
  codes.forEach((code, i) => {
    patterns[i] = (code & 0x8000) << 16 | (code & 0x7FFF) << 13;
    if ((code & 0x7C00) === 0x7C00) patterns[i] |= 0x7F80_0000; // infinite or not a number
    else result[i] *= 2 ** 112; // its exponent is so much too small
  });
  return result;
}

/**
 * A number in `digits` significant digits, as the terminal writes it: .2271, −1.204, 3.1e−5.
 * @param {number | null | undefined} value
 * @param {number} digits
 */
export function short(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size === Infinity) return `${sign}∞`;
  if (size < 1000 && Number.isInteger(size)) return sign + size;
  if (size < 0.001) return sign + size.toExponential(1).replace("e-", "e−");
  if (size < 1) return sign + decimals(size, Math.max(digits, Math.ceil(-Math.log10(size))));
  const whole = Math.floor(Math.log10(size)) + 1;
  return sign + size.toFixed(Math.max(0, digits - whole));
}

/**
 * The same with a sign, also for positive numbers: for differences.
 * @param {number | null | undefined} value
 * @param {number} digits
 */
export function signed(value, digits) {
  const text = short(value, digits);
  return value !== null && value !== undefined && value > 0 ? `+${text}` : text;
}

/** The places of numbers, the largest by magnitude first. @param {Float64Array | number[]} values */
export function bySize(values) {
  return [...values.keys()].sort((i, j) => Math.abs(values[j]) - Math.abs(values[i]));
}

/** A number in a cell: two decimals. @param {number} value */
export function brief(value) {
  if (!Number.isFinite(value)) return short(value, 2);
  const size = Math.abs(value);
  const text = size >= 100 ? size.toFixed(0) : size >= 10 ? size.toFixed(1) : size.toFixed(2);
  return (value < 0 && Number(text) ? "−" : "") + text.replace(/^0/, "");
}

/** A positive number with so many decimals, without a leading 0. @param {number} value @param {number} count */
export function decimals(value, count) {
  return value.toFixed(count).replace(/^0/, "");
}

/**
 * The value of a uniform head, to compare with that of a head.
 * @param {import("./payload.js").Measure} measure
 * @param {number} layer
 * @param {number} head
 */
export function uniformOf({ uniform }, layer, head) {
  return Array.isArray(uniform) ? uniform[layer][head] : uniform;
}

/** "U+00E9" @param {string} character */
export function codeOf(character) {
  return `U+${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`;
}
