// @ts-check
// How positions enter a model: gpt/reading/positions.py in JavaScript. All kinds inherit the two
// methods of Position; each kind overrides one. Constants are computed for the positions of a text,
// not for the whole context: a small file may declare a context of a million characters.
// C n_embd, D head_size.

/** @typedef {import("./gpt.js").Config} Config */

/** Positions that do nothing. */
class Position {
  /** @param {Config} config @param {Map<string, Float32Array>} tensors */
  constructor(config, tensors) {
    this.config = config;
    this.tensors = tensors;
  }

  /**
   * Adds the position to the C numbers of its embedding, which begin at `from`.
   * @param {Float32Array} _stream
   * @param {number} _from
   * @param {number} _position
   */
  embed(_stream, _from, _position) {}

  /**
   * Turns the C numbers of a query or a key, which begin at `from`, all heads side by side.
   * @param {Float32Array} _heads
   * @param {number} _from
   * @param {number} _position
   */
  rotate(_heads, _from, _position) {}
}

/** A trained vector for each of the block_size positions, added (GPT-2). */
class Learned extends Position {
  /** @override @param {Float32Array} stream @param {number} from @param {number} position */
  embed(stream, from, position) {
    const width = this.config.n_embd;
    const added = /** @type {Float32Array} */ (this.tensors.get("position.weight"));
    for (let i = 0; i < width; i++) stream[from + i] += added[position * width + i];
  }
}

/** Fixed sines and cosines, added (Vaswani et al. 2017). */
class Sinusoidal extends Position {
  /** @override @param {Float32Array} stream @param {number} from @param {number} position */
  embed(stream, from, position) {
    const width = this.config.n_embd;
    for (let i = 0; i < width; i++) {
      const angle = position * 10000 ** (-(i - i % 2) / width);
      stream[from + i] += Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
    }
  }
}

/** Queries and keys turned by an angle that grows with the position (Su et al. 2021). */
class Rotary extends Position {
  /** @param {Config} config @param {Map<string, Float32Array>} tensors */
  constructor(config, tensors) {
    super(config, tensors);
    const half = config.head_size / 2;
    this.rates = Array.from({ length: half }, (_, d) => 10000 ** (-d / half));
  }

  /** @override @param {Float32Array} heads @param {number} from @param {number} position */
  rotate(heads, from, position) {
    const { n_embd, head_size } = this.config;
    this.rates.forEach((rate, d) => {
      const cosine = Math.fround(Math.cos(position * rate));
      const sine = Math.fround(Math.sin(position * rate));
      for (let at = from + 2 * d; at < from + n_embd; at += head_size) {
        const [even, odd] = [heads[at], heads[at + 1]];
        heads[at] = even * cosine - odd * sine;
        heads[at + 1] = even * sine + odd * cosine;
      }
    });
  }
}

/** @type {Record<string, typeof Position>} */
export const POSITIONS = {
  learned: Learned,
  sinusoidal: Sinusoidal,
  rotary: Rotary,
};
