// @ts-check
// A matrix on a canvas: cells as colours, characters along its sides, a crosshair. The canvas is as
// large as its box and is drawn again as the box scrolls, so that labels stay and memory is bounded.

import { visible } from "./cards.js";
import { drawCrosshair, drawEdges, drawLabels, drawNumbers } from "./drawing.js";
import { context, make, MONO } from "./parts.js";

/** @typedef {import("./parts.js").App} App */
/** @typedef {import("./data.js").Matrix} Matrix */
/** @typedef {import("./colours.js").Scale} Scale */

const LARGEST = 46; // a cell's side, in CSS pixels
const TALLEST = 26; // the same of a cell whose column is a dimension

export class MatrixView {
  /**
   * @param {App} app
   * @param {(row: number, column: number) => void} pick a cell was clicked
   */
  constructor(app, pick) {
    this.app = app;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.space = make("div", { class: "matrix-space" }, this.canvas);
    this.box = make("div", {
      class: "matrix-box",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "matrix",
      "aria-describedby": "readout",
    }, this.space);
    this.zoom = 1;
    /** @type {number | null} */
    this.tallest = null; // height of the box at most, in CSS pixels
    /** @type {Matrix | null} */
    this.matrix = null;
    /** @type {Scale | null} */
    this.scale = null;
    /** @type {string[]} */
    this.labels = []; // of the rows
    /** @type {string[]} */
    this.above = []; // of columns that are characters
    this.picture = document.createElement("canvas");
    this.room = 0; // the box's width inside, in CSS pixels; 0: not known yet
    this.whole = false; // whether the whole matrix fits into the box
    this.left =
      this.top =
      this.width =
      this.height =
        0; // label gutters, a cell's sides
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("pointermove", (event) => app.point(this.#cellAt(event)));
    this.box.addEventListener("pointerleave", () => app.point(null));
    this.box.addEventListener("click", (event) => {
      const cell = this.#cellAt(event);
      if (cell) pick(...cell);
    });
    this.box.addEventListener("keydown", (event) => this.#key(event, pick));
    this.box.addEventListener("focus", () => {
      if (!app.pointed && this.box.matches(":focus-visible")) app.point(this.#cursor());
    });
    this.box.addEventListener("blur", () => app.point(null));
    new ResizeObserver(([{ contentRect }]) => {
      this.room = Math.round(contentRect.width);
      this.fit();
    }).observe(this.box);
    addEventListener("contentvisibilityautostatechange", () => this.fit(), true);
    addEventListener("resize", () => { // the box may be as high as the window allows
      this.tallest = null;
      this.fit();
    });
  }

  /**
   * @param {Matrix} matrix
   * @param {Scale} scale
   * @param {import("./parts.js").Panel} panel its title, and the subject of its text
   */
  show(matrix, scale, { title, subject }) {
    this.matrix = matrix;
    this.labels = subject.labels;
    this.above = subject.columns.labels;
    this.scale = scale;
    this.box.setAttribute("aria-label", `${title}; arrow keys move between cells`);
    this.picture.width = matrix.columns;
    this.picture.height = matrix.rows;
    context(this.picture).putImageData(scale.picture(), 0, 0);
    this.fit();
  }

  /**
   * Chooses the cells' size and draws. At zoom 1 the whole matrix fits into the width and the
   * largest height of the box, unless its cells would be smaller than a pixel.
   */
  fit() {
    const { matrix, box } = this;
    if (!matrix || !visible(box)) return;
    const room = this.room || box.clientWidth;
    if (!room) return;
    const ratio = globalThis.devicePixelRatio || 1;
    const pen = context(this.canvas);
    pen.font = `12px ${MONO}`;
    const widest = (/** @type {string[]} */ labels) =>
      Math.max(...new Set(labels.map((text) => widthOfLabel(pen, text))));
    this.left = Math.ceil(String(matrix.rows - 1).length * 7 + widest(this.labels) + 18);
    this.top = matrix.keys ? Math.min(46, Math.ceil(Math.max(widest(this.above), 12)) + 24) : 22;
    const whole = (/** @type {number} */ size) => Math.max(1, Math.floor(size * ratio) / ratio);
    const across = (room - this.left - 2) / matrix.columns;
    this.tallest ??= parseFloat(getComputedStyle(box).maxHeight);
    const down = (this.tallest - this.top - 2) / matrix.rows;
    if (matrix.keys) {
      this.width = this.height = whole(Math.min(LARGEST, across, down) * this.zoom);
    } else {
      this.width = whole(Math.min(LARGEST, across) * this.zoom);
      this.height = whole(Math.min(TALLEST, down) * this.zoom);
    }
    const wide = this.left + matrix.columns * this.width + 1;
    const high = this.top + matrix.rows * this.height + 1;
    this.space.style.width = `${wide}px`;
    this.space.style.height = `${high}px`;
    // If all fits, its size is known: reading it would make the browser lay out the page again.
    this.whole = wide <= room && high <= this.tallest;
    if (this.whole) this.draw(room, Math.ceil(high), 0, 0);
    else this.draw();
  }

  /**
   * Draws what of the matrix is visible, on a canvas as large as the box.
   * @param {number} width of the box, in CSS pixels
   * @param {number} height
   * @param {number} across how far the box is scrolled
   * @param {number} down
   */
  draw(
    width = this.box.clientWidth,
    height = this.box.clientHeight,
    across = this.box.scrollLeft,
    down = this.box.scrollTop,
  ) {
    const { matrix, scale, canvas } = this;
    if (!matrix || !scale || !visible(this.box) || !width) return;
    const ratio = globalThis.devicePixelRatio || 1;
    this.#resize(Math.round(width * ratio), Math.round(height * ratio), ratio);
    const pen = context(canvas);
    const colour = (/** @type {string} */ name) => this.app.colour(name);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const [x, y] = [this.left - across, this.top - down];
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, width - this.left, height - this.top);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    const [wide, high] = [matrix.columns * this.width, matrix.rows * this.height];
    pen.drawImage(this.picture, x, y, wide, high);
    drawEdges(this, pen, x, y, colour);
    const seen = this.#seen(width, height, across / this.width, down / this.height);
    if (this.width >= 34 && this.height >= 18) drawNumbers(this, pen, x, y, seen);
    drawCrosshair(this, pen, x, y, colour);
    pen.restore();
    drawLabels(this, pen, x, y, seen, colour);
  }

  /**
   * Gives the canvas so many pixels at least: a canvas of another size is a new one for the browser.
   * The box hides the rest, unless it scrolls: then the canvas must be as large as the box.
   * @param {number} width
   * @param {number} height
   * @param {number} ratio pixels in a CSS pixel
   */
  #resize(width, height, ratio) {
    const { canvas, whole } = this;
    const wide = whole ? Math.max(canvas.width, width) : width;
    const high = whole ? Math.max(canvas.height, height) : height;
    if (canvas.width === wide && canvas.height === high) return;
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${wide / ratio}px`;
    canvas.style.height = `${high / ratio}px`;
  }

  /**
   * The visible rows and columns, as half-open ranges.
   * @param {number} width
   * @param {number} height
   * @param {number} column the first, of which only a part may be visible
   * @param {number} row
   * @returns {[number, number, number, number]}
   */
  #seen(width, height, column, row) {
    const { matrix } = this;
    if (!matrix) return [0, 0, 0, 0];
    return [
      Math.floor(row),
      Math.min(matrix.rows, Math.ceil(row + (height - this.top) / this.height)),
      Math.floor(column),
      Math.min(matrix.columns, Math.ceil(column + (width - this.left) / this.width)),
    ];
  }

  /** @param {MouseEvent} event @returns {[number, number] | null} */
  #cellAt(event) {
    const { matrix, box } = this;
    if (!matrix) return null;
    const frame = box.getBoundingClientRect();
    const [x, y] = [
      event.clientX - frame.left - box.clientLeft,
      event.clientY - frame.top - box.clientTop,
    ];
    if (x < this.left || y < this.top) return null;
    const row = Math.floor((y - this.top + box.scrollTop) / this.height);
    const column = Math.floor((x - this.left + box.scrollLeft) / this.width);
    const inside = row < matrix.rows && column < matrix.columns;
    return inside && !(matrix.causal && column > row) ? [row, column] : null;
  }

  /** The cell that the keyboard selects. @returns {[number, number]} */
  #cursor() {
    return this.app.pointed ?? this.app.state.cell ?? [(this.matrix?.rows ?? 1) - 1, 0];
  }

  /**
   * @param {KeyboardEvent} event
   * @param {(row: number, column: number) => void} pick
   */
  #key(event, pick) {
    const { matrix } = this;
    if (!matrix || event.ctrlKey || event.altKey || event.metaKey) return;
    let [row, column] = this.#cursor();
    if (event.key === "Enter" || event.key === " ") pick(row, column);
    else if (event.key === "ArrowUp") row = Math.max(0, row - 1);
    else if (event.key === "ArrowDown") row = Math.min(matrix.rows - 1, row + 1);
    else if (event.key === "ArrowLeft") column = Math.max(0, column - 1);
    else if (event.key === "ArrowRight") column = column + 1;
    else if (event.key === "Home") column = 0;
    else if (event.key === "End") column = matrix.columns - 1;
    else return;
    event.preventDefault();
    column = Math.min(column, matrix.causal ? row : matrix.columns - 1);
    this.reveal(row, column);
    this.app.point([row, column]);
  }

  /**
   * Scrolls the box so that a cell is visible.
   * @param {number} row
   * @param {number} column
   */
  reveal(row, column) {
    const { box } = this;
    const [x, y] = [column * this.width, row * this.height];
    box.scrollLeft = between(x + this.width + this.left - box.clientWidth, box.scrollLeft, x);
    box.scrollTop = between(y + this.height + this.top - box.clientHeight, box.scrollTop, y);
  }
}

/** @type {Map<string, number>} */
const widths = new Map(); // of labels, in CSS pixels

/** @param {CanvasRenderingContext2D} pen @param {string} label */
function widthOfLabel(pen, label) {
  const known = widths.get(label) ?? pen.measureText(label).width;
  widths.set(label, known);
  return known;
}

/** @param {number} low @param {number} value @param {number} high */
function between(low, value, high) {
  return Math.min(Math.max(low, value), high);
}
