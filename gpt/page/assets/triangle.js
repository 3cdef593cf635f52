// @ts-check
// Paints a matrix with one pixel for every cell.

import { make, penOf } from "./dom.js";
import { tint } from "./format.js";

/** @import { Hues } from "./format.js" */

const STEPS = 128; // the number of colours for positive values, and for negative ones

/** @type {{hues: Hues | null, words: Uint32Array}} */
const table = { hues: null, words: new Uint32Array(2 * STEPS + 1) };

/** The pixels for the values from −1 to 1, in 2 · STEPS + 1 steps. @param {Hues} hues */
function pixelsOf(hues) {
  if (table.hues !== hues) {
    table.hues = hues;
    const channels = new Uint8Array(table.words.buffer);
    for (let n = 0; n <= 2 * STEPS; n++) channels.set([...tint(hues, n / STEPS - 1), 255], 4 * n);
  }
  return table.words;
}

/**
 * Paints a lower triangle of values from 0 to 1; the other cells are transparent. Row i begins at
 * i(i + 1)/2. The page calls it for all heads after every key press, so it calls no function for a cell.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} values
 * @param {number} length rows
 * @param {Hues} hues
 */
export function paintTriangle(canvas, values, length, hues) {
  const colours = pixelsOf(hues);
  const { image, pixels } = blank(length);
  for (let row = 0, at = 0; row < length; row++) {
    for (let to = row * length, end = to + row; to <= end; to++) {
      pixels[to] = colours[STEPS + Math.round(STEPS * values[at++])];
    }
  }
  put(canvas, image);
}

/**
 * Paints a matrix of values from −1 to 1 on a new canvas; a null becomes a transparent cell.
 * @param {number} length rows and columns
 * @param {Hues} hues
 * @param {(row: number, column: number) => number | null} shareAt
 */
export function painted(length, hues, shareAt) {
  const colours = pixelsOf(hues);
  const { image, pixels } = blank(length);
  for (let row = 0; row < length; row++) {
    for (let column = 0; column < length; column++) {
      const share = shareAt(row, column);
      if (share === null) continue;
      pixels[row * length + column] = colours[STEPS + Math.round(STEPS * share)];
    }
  }
  return put(make("canvas"), image);
}

/** @param {number} length of a side */
function blank(length) {
  const image = new ImageData(length, length);
  return { image, pixels: new Uint32Array(image.data.buffer) };
}

/** @param {HTMLCanvasElement} canvas @param {ImageData} image */
function put(canvas, image) {
  if (canvas.width !== image.width) canvas.width = canvas.height = image.width; // setting it is slow
  penOf(canvas).putImageData(image, 0, 0);
  return canvas;
}
