// @ts-check
// Converts numbers to colours: even steps of lightness, readable for colour-blind users. Everywhere
// on the page blue-green is positive and orange is negative; shares are positive numbers.

/** @import { Matrix } from "./data.js" */
/** @typedef {[number, number, number]} Colour */
/** fixed: evenly. root: by the square root, so that small ones show. row: each row's largest is full.
 * @typedef {"fixed" | "root" | "row"} Mode */

/** From 0 to the limit of the scale.
 * @type {Record<string, {positive: Colour[], negative: Colour[]}>} */
const RAMPS = {
  light: {
    positive: [[240, 243, 236], [173, 218, 199], [64, 160, 160], [28, 92, 140], [18, 42, 98]],
    negative: [[240, 243, 236], [248, 208, 160], [226, 142, 82], [170, 82, 28], [112, 42, 6]],
  },
  dark: {
    positive: [[31, 35, 45], [26, 66, 92], [30, 120, 132], [70, 185, 168], [170, 245, 215]],
    negative: [[31, 35, 45], [92, 50, 24], [165, 84, 32], [226, 138, 70], [255, 205, 150]],
  },
};
const STEPS = 256;

/** @type {Map<string, Uint8ClampedArray>} */
const tables = new Map();

/**
 * 256 colours, three bytes each.
 * @param {"light" | "dark"} theme
 * @param {boolean} both whether negative numbers come before the positive ones
 */
function rampTable(theme, both) {
  const name = `${theme} ${both}`;
  let colours = tables.get(name);
  if (!colours) {
    const { positive, negative } = RAMPS[theme];
    const ramp = both ? [...negative.slice(1).reverse(), ...positive] : positive;
    colours = new Uint8ClampedArray(3 * STEPS);
    for (let n = 0; n < STEPS; n++) {
      const place = n / (STEPS - 1) * (ramp.length - 1);
      const low = Math.min(Math.floor(place), ramp.length - 2);
      for (let c = 0; c < 3; c++) {
        colours[3 * n + c] = ramp[low][c] + (place - low) * (ramp[low + 1][c] - ramp[low][c]);
      }
    }
    tables.set(name, colours);
  }
  return colours;
}

/** How a matrix's numbers become colours. */
export class Scale {
  /**
   * @param {Matrix} matrix
   * @param {Mode} mode
   * @param {boolean} dark
   * @param {number} [least] the limit of a scale that others share
   */
  constructor(matrix, mode, dark, least = 0) {
    this.signed = matrix.kind === "signed" || matrix.kind === "difference";
    this.mode = mode;
    this.colours = rampTable(dark ? "dark" : "light", this.signed);
    this.matrix = matrix;
    const largest = new Float64Array(matrix.rows);
    const needed = matrix.kind !== "share" || mode === "row";
    for (let row = 0; needed && row < matrix.rows; row++) {
      const stop = matrix.causal ? row + 1 : matrix.columns;
      for (let column = 0; column < stop; column++) {
        const size = Math.abs(matrix.values[row * matrix.columns + column]);
        if (size > largest[row] && size < Infinity) largest[row] = size;
      }
    }
    this.limit = matrix.kind === "share" ? 1 : largest.reduce((a, b) => Math.max(a, b), least) || 1;
    this.largest = mode === "row" ? largest.map((size) => size || 1) : largest.fill(this.limit);
  }

  /**
   * The index of a cell's colour, 0 … 255; −1 for an empty cell.
   * @param {number} row
   * @param {number} column
   */
  step(row, column) {
    const { matrix } = this;
    if (matrix.causal && column > row) return -1;
    let share = matrix.values[row * matrix.columns + column] / this.largest[row];
    if (!Number.isFinite(share)) return -1;
    if (this.mode === "root") share = Math.sign(share) * Math.sqrt(Math.abs(share));
    const place = this.signed ? (share + 1) / 2 : share;
    return Math.max(0, Math.min(STEPS - 1, Math.round(place * (STEPS - 1))));
  }

  /** @param {number} step @returns {Colour} */
  rgb(step) {
    const { colours } = this;
    return [colours[3 * step], colours[3 * step + 1], colours[3 * step + 2]];
  }

  /** Paints a canvas, one pixel per cell; empty cells are transparent. @param {HTMLCanvasElement} canvas */
  paint(canvas) {
    const { rows, columns, causal } = this.matrix;
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = new Uint32Array(STEPS);
    const channels = new Uint8Array(colours.buffer);
    for (let step = 0; step < STEPS; step++) channels.set([...this.rgb(step), 255], 4 * step);
    for (let row = 0; row < rows; row++) {
      const end = causal ? row + 1 : columns;
      for (let column = 0; column < end; column++) {
        const step = this.step(row, column);
        if (step >= 0) pixels[row * columns + column] = colours[step];
      }
    }
    if (canvas.width !== columns) canvas.width = columns; // setting it takes long
    if (canvas.height !== rows) canvas.height = rows;
    canvas.getContext("2d")?.putImageData(image, 0, 0);
    return canvas;
  }
}

/**
 * The colour of legible text on a colour.
 * @param {Colour} colour
 */
export function ink([red, green, blue]) {
  return 0.3 * red + 0.59 * green + 0.11 * blue > 125 ? "#14161a" : "#ffffff";
}

/** @param {Colour} colour */
export function css(colour) {
  return `rgb(${colour.join(",")})`;
}
