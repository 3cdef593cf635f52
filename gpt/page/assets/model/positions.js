// @ts-check
// Adds positions to embeddings, or rotates queries and keys by them, as gpt/reading/gpt.py does.
// Sines and cosines are computed for the positions of a text only, not for the whole context, because a
// small file may declare a context of a million characters.

/** @import { Config } from "./protocol.js" */
/** Changes the n_embd numbers that begin at `from`.
 * @typedef {(numbers: Float32Array, from: number, position: number) => void} Change */
/** embed: adds the position to an embedding. rotate: turns a query or a key of all heads.
 * @typedef {{embed?: Change, rotate?: Change}} Position */

/** @type {Record<string, (config: Config, tensors: Map<string, Float32Array>) => Position>} */
export const POSITIONS = {
  /** Adds nothing; the model knows positions from the causal mask alone (Haviv et al. 2022). */
  none: () => ({}),
  /** Adds a trained vector for every position (GPT-2). */
  learned: ({ n_embd }, tensors) => ({
    embed(stream, from, position) {
      const added = /** @type {Float32Array} */ (tensors.get("position.weight"));
      for (let i = 0; i < n_embd; i++) stream[from + i] += added[position * n_embd + i];
    },
  }),
  /** Adds fixed sines and cosines (Vaswani et al. 2017). */
  sinusoidal: ({ n_embd }) => ({
    embed(stream, from, position) {
      for (let i = 0; i < n_embd; i++) {
        const angle = position * 10000 ** (-(i - i % 2) / n_embd);
        stream[from + i] += Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
      }
    },
  }),
  /** Turns queries and keys by an angle that grows with the position (Su et al. 2021). */
  rotary({ n_embd, head_size }) {
    const half = head_size / 2;
    const rates = Array.from({ length: half }, (_, d) => 10000 ** (-d / half));
    return {
      rotate(heads, from, position) {
        rates.forEach((rate, d) => {
          const cosine = Math.fround(Math.cos(position * rate));
          const sine = Math.fround(Math.sin(position * rate));
          for (let at = from + 2 * d; at < from + n_embd; at += head_size) {
            const [even, odd] = [heads[at], heads[at + 1]];
            heads[at] = even * cosine - odd * sine;
            heads[at + 1] = even * sine + odd * cosine;
          }
        });
      },
    };
  },
};
