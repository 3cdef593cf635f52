// @ts-check
// A matrix as one pixel for each cell.

import { make, penOf } from "./dom.js";
import { tint } from "./format.js";

/** @import { Hues } from "./format.js" */

const STEPS = 128; // colours of the scale on each side of 0

/** @type {{hues: Hues | null, words: Uint32Array}} */
const table = { hues: null, words: new Uint32Array(2 * STEPS + 1) };

/** The colours of the scale as pixels, from −1 to 1. @param {Hues} hues */
function pixelsOf(hues) {
  if (table.hues !== hues) {
    table.hues = hues;
    const channels = new Uint8Array(table.words.buffer);
    for (let n = 0; n <= 2 * STEPS; n++) channels.set([...tint(hues, n / STEPS - 1), 255], 4 * n);
  }
  return table.words;
}

/**
 * Paints a lower triangle, whose row i begins at i(i + 1)/2; the rest is transparent.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} values
 * @param {number} length rows
 * @param {number} most the end of the scale
 * @param {Hues} hues
 */
export function paintTriangle(canvas, values, length, most, hues) {
  paint(canvas, length, hues, (row, column) => {
    return column > row ? null : values[row * (row + 1) / 2 + column] / most;
  });
}

/**
 * Paints shares of the scale, −1 … 1; null is transparent.
 * @param {HTMLCanvasElement} canvas
 * @param {number} length rows and columns
 * @param {Hues} hues
 * @param {(row: number, column: number) => number | null} shareAt
 */
export function paint(canvas, length, hues, shareAt) {
  const colours = pixelsOf(hues);
  const image = new ImageData(length, length);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0; row < length; row++) {
    for (let column = 0; column < length; column++) {
      const share = shareAt(row, column);
      if (share === null) continue;
      const step = Math.round(STEPS * (1 + Math.max(-1, Math.min(1, share))));
      pixels[row * length + column] = colours[step];
    }
  }
  if (canvas.width !== length) canvas.width = canvas.height = length; // setting it takes long
  penOf(canvas).putImageData(image, 0, 0);
}

/** A canvas of the same. @param {number} length @param {Hues} hues
 * @param {(row: number, column: number) => number | null} shareAt */
export function painted(length, hues, shareAt) {
  const canvas = make("canvas");
  paint(canvas, length, hues, shareAt);
  return canvas;
}
