// @ts-check
// Computes the stages of the chosen head's attention as matrices, from q · k to the weights.

/** @import { Shown, Stage } from "./app.js" */
/**
 * name: the text of the stage's tab. explained: a sentence about a cell.
 * @type {Record<Stage, {name: string, explained: (size: number) => string}>}
 */
export const STAGES = {
  dots: {
    name: "q · k",
    explained: () => "The query of the row times the key of the column: how well they match.",
  },
  scaled: { name: "÷ √d", explained: (size) => `q · k divided by √${size}, the size of a head.` },
  masked: { name: "mask", explained: () => "Later characters are hidden: they get no weight." },
  weights: {
    name: "weights",
    explained: () =>
      "A row is the character that looks, a column the one it looks at. The softmax makes each row sum to 1.",
  },
};

/**
 * A stage of the chosen head. value: null for a cell that the mask hides. most: the scale's maximum.
 * @typedef {{stage: Stage, length: number, causal: boolean, signed: boolean, most: number,
 *   value: (row: number, key: number) => number | null}} Matrix */

/** @param {Shown} shown @param {number} size of a head @returns {Matrix} */
export function matrixOf(shown, size) {
  const { length, state: { stage }, answer: { scores } } = shown;
  const causal = stage === "masked" || stage === "weights";
  if (stage === "weights" || !scores) {
    /** @type {Matrix["value"]} */
    const value = (row, key) => key > row ? null : shown.weight(row, key);
    return { stage: "weights", length, causal, signed: false, most: 1, value };
  }
  const scale = stage === "dots" ? 1 : 1 / Math.sqrt(size);
  /** @type {Matrix["value"]} */
  const value = (row, key) => causal && key > row ? null : scores[row * length + key] * scale;
  let most = 1e-9;
  for (let row = 0; row < length; row++) {
    for (let key = 0; key < length; key++) most = Math.max(most, Math.abs(value(row, key) ?? 0));
  }
  return { stage, length, causal, signed: true, most, value };
}

/** A cell's value as a share of the scale; null if the mask hides the cell.
 * @param {Matrix} matrix @returns {(row: number, key: number) => number | null} */
export function sharesOf({ most, value }) {
  return (row, key) => {
    const number = value(row, key);
    return number === null ? null : number / most;
  };
}
