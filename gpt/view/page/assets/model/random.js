// @ts-check
// The random numbers of a sample, bit for bit those of numpy: Philox4x64-10 (Salmon et al. 2011), a
// generator that encrypts a counter.

const ROUNDS = 10;
const WORD = (1n << 64n) - 1n;
const MULTIPLIERS = /** @type {const} */ ([0xD2E7470EE14C6C93n, 0xCA5A826395121157n]);
const INCREMENTS = /** @type {const} */ ([0x9E3779B97F4A7C15n, 0xBB67AE8584CAA73Bn]); // of the key

/** Numbers in [0, 1) with 53 random bits: the same for the same seed. */
export class Uniforms {
  /**
   * @param {number} seed a whole number from 0 to 2^53 − 1
   */
  constructor(seed) {
    this.key = [BigInt(seed), 0n];
    this.counter = 0n;
    /** @type {bigint[]} */
    this.words = []; // that `next` has not used, the last one first
  }

  /** @returns {number} */
  next() {
    if (!this.words.length) this.words = philox(++this.counter, this.key).reverse();
    return Number(/** @type {bigint} */ (this.words.pop()) >> 11n) * 2 ** -53;
  }
}

/**
 * The four words that follow from a counter and a key.
 * @param {bigint} counter
 * @param {readonly bigint[]} key two words
 */
function philox(counter, key) {
  let [a, b, c, d] = [counter, 0n, 0n, 0n];
  let [first, second] = key;
  for (let round = 0; round < ROUNDS; round++) {
    const [left, right] = [MULTIPLIERS[0] * a, MULTIPLIERS[1] * c];
    [a, b, c, d] = [right >> 64n ^ b ^ first, right & WORD, left >> 64n ^ d ^ second, left & WORD];
    first = first + INCREMENTS[0] & WORD;
    second = second + INCREMENTS[1] & WORD;
  }
  return [a, b, c, d];
}
