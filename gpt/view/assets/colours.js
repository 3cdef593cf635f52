// @ts-check
// Numbers as colours: even steps of lightness, readable to the colour-blind. Shares run from the
// paper to full; what has a sign runs both ways from 0.

/** @typedef {import("./data.js").Matrix} Matrix */
/** @typedef {[number, number, number]} Colour */
/** fixed: evenly. root: by the square root, so that small ones show. row: each row's largest is full.
 * @typedef {"fixed" | "root" | "row"} Mode */

/** @type {Record<string, Colour[]>} */
const RAMPS = {
  dark: [[28, 16, 60], [49, 70, 130], [30, 130, 140], [75, 185, 115], [250, 225, 60]],
  light: [[240, 243, 236], [173, 218, 199], [64, 160, 160], [35, 88, 138], [28, 16, 60]],
  darkSigned: [[120, 190, 255], [52, 112, 186], [31, 35, 45], [190, 98, 40], [255, 190, 120]],
  lightSigned: [[24, 62, 128], [104, 158, 210], [241, 241, 238], [226, 142, 82], [132, 48, 10]],
};
const STEPS = 256;

/** @type {Map<string, Uint8ClampedArray>} */
const tables = new Map();

/**
 * 256 colours, three bytes each.
 * @param {string} name
 */
function rampTable(name) {
  let colours = tables.get(name);
  if (!colours) {
    const ramp = RAMPS[name];
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
    this.signed = matrix.kind !== "share";
    this.mode = mode;
    this.colours = rampTable((dark ? "dark" : "light") + (this.signed ? "Signed" : ""));
    this.matrix = matrix;
    const largest = new Float64Array(matrix.rows);
    for (let row = 0; row < matrix.rows; row++) {
      const stop = matrix.causal ? row + 1 : matrix.columns;
      for (let column = 0; column < stop; column++) {
        const size = Math.abs(matrix.values[row * matrix.columns + column]);
        if (size > largest[row] && size < Infinity) largest[row] = size;
      }
    }
    this.limit = this.signed ? largest.reduce((a, b) => Math.max(a, b), least) || 1 : 1;
    this.largest = mode === "row" ? largest.map((size) => size || 1) : largest.fill(this.limit);
  }

  /**
   * Which of the 256 colours; −1 for an empty cell.
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

  /** The matrix as a picture, a pixel a cell; empty cells stay clear. */
  picture() {
    const { rows, columns } = this.matrix;
    const image = new ImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const step = this.step(row, column);
        if (step < 0) continue;
        const pixel = 4 * (row * columns + column);
        image.data[pixel] = this.colours[3 * step];
        image.data[pixel + 1] = this.colours[3 * step + 1];
        image.data[pixel + 2] = this.colours[3 * step + 2];
        image.data[pixel + 3] = 255;
      }
    }
    return image;
  }
}

/**
 * Text that reads on a colour.
 * @param {Colour} colour
 */
export function ink([red, green, blue]) {
  return 0.3 * red + 0.59 * green + 0.11 * blue > 125 ? "#14161a" : "#ffffff";
}

/** @param {Colour} colour */
export function css(colour) {
  return `rgb(${colour.join(",")})`;
}
