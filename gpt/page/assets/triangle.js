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
 * Paints a lower triangle of shares from 0 to 1, whose row i begins at i(i + 1)/2; the rest is
 * transparent. It is painted for every head after every key, so it asks no function for each cell.
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
 * A canvas of shares from −1 to 1; null is transparent.
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
  if (canvas.width !== image.width) canvas.width = canvas.height = image.width; // takes long
  penOf(canvas).putImageData(image, 0, 0);
  return canvas;
}
