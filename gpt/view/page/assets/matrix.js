// @ts-check
// A matrix on a canvas: cells as colours, characters along its sides, a crosshair. The canvas is as
// large as its box and is drawn again as the box scrolls, so that labels stay and memory is bounded.

import { visible } from "./cards.js";
import { ink } from "./colours.js";
import { brief } from "./numbers.js";
import { context, make, MONO } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Matrix } from "./data.js" */
/** @import { Scale } from "./colours.js" */
/**
 * x, y: where the first cell begins. seen: the first visible row and the one after the last, and the same
 * of the columns. colour: of the theme.
 * @typedef {object} Frame
 * @property {CanvasRenderingContext2D} pen
 * @property {Matrix} matrix
 * @property {Scale} scale
 * @property {number} x
 * @property {number} y
 * @property {[number, number, number, number]} seen
 * @property {(name: string) => string} colour
 */

const LARGEST = 46; // a cell's side, in CSS pixels
const TALLEST = 26; // the same of a cell whose column is a dimension
const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

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
    this.labels = []; // of the rows, and of columns that are keys
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
    this.scale = scale;
    this.box.setAttribute("aria-label", `${title}; arrow keys move between cells`);
    scale.paint(this.picture);
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
    pen.font = `${12 * this.app.type}px ${MONO}`;
    const widest = Math.max(...new Set(this.labels.map((text) => widthOfLabel(pen, text))));
    const { type } = this.app;
    this.left = Math.ceil(String(matrix.rows - 1).length * 7 * type + widest + 18);
    this.top = matrix.keys
      ? Math.min(46 * type, Math.ceil(Math.max(widest, 12)) + 24 * type)
      : 22 * type;
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
    const end = (
      /** @type {number} */ count,
      /** @type {number} */ place,
      /** @type {number} */ side,
    ) => Math.min(count, Math.ceil(place / side));
    /** @type {Frame} */
    const frame = {
      ...{ pen, matrix, scale, x, y },
      seen: [
        Math.floor(down / this.height),
        end(matrix.rows, down + height - this.top, this.height),
        Math.floor(across / this.width),
        end(matrix.columns, across + width - this.left, this.width),
      ],
      colour: (name) => this.app.colour(name),
    };
    drawEdges(this, frame);
    if (this.width >= 34 && this.height >= 18) drawNumbers(this, frame);
    drawCrosshair(this, frame);
    pen.restore();
    drawLabels(this, frame);
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

  /** Where a cell ends in the window, at its lower right. @param {number} row @param {number} column */
  endOf(row, column) {
    const { left, top } = this.box.getBoundingClientRect();
    return [
      left + this.left + (column + 1) * this.width - this.box.scrollLeft,
      top + this.top + (row + 1) * this.height - this.box.scrollTop,
    ];
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
  const key = pen.font + label;
  const known = widths.get(key) ?? pen.measureText(label).width;
  widths.set(key, known);
  return known;
}

/** @param {number} low @param {number} value @param {number} high */
function between(low, value, high) {
  return Math.min(Math.max(low, value), high);
}

/**
 * Lines between cells if there is room, and the stepped line along the diagonal, beyond which all
 * cells are masked.
 * @param {MatrixView} view
 * @param {Frame} frame
 */
function drawEdges({ width, height }, { pen, x, y, matrix, colour }) {
  pen.lineWidth = 1;
  if (Math.min(width, height) >= 9) {
    pen.strokeStyle = colour("card");
    pen.beginPath();
    for (let row = 0; row <= matrix.rows; row++) {
      pen.moveTo(x, y + row * height);
      pen.lineTo(x + matrix.columns * width, y + row * height);
    }
    for (let column = 0; column <= matrix.columns; column++) {
      pen.moveTo(x + column * width, y);
      pen.lineTo(x + column * width, y + matrix.rows * height);
    }
    pen.stroke();
  }
  pen.strokeStyle = colour("line");
  pen.beginPath();
  pen.moveTo(x, y);
  if (matrix.causal) {
    for (let i = 0; i < matrix.rows; i++) {
      pen.lineTo(x + (i + 1) * width, y + i * height);
      pen.lineTo(x + (i + 1) * width, y + (i + 1) * height);
    }
    pen.lineTo(x, y + matrix.rows * height);
    pen.closePath();
  } else pen.rect(x, y, matrix.columns * width, matrix.rows * height);
  pen.stroke();
}

/** @param {MatrixView} view @param {Frame} frame */
function drawNumbers({ app, width, height }, { pen, x, y, seen, matrix, scale }) {
  const [top, bottom, left, right] = seen;
  pen.font = `${Math.min(12 * app.type, width / 3.5)}px ${MONO}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const step = scale.step(row, column);
      if (step < 0) continue;
      pen.fillStyle = ink(scale.rgb(step));
      const value = matrix.values[row * matrix.columns + column];
      const text = brief(value);
      pen.fillText(text, x + (column + 0.5) * width, y + (row + 0.5) * height, width - 3);
    }
  }
}

/** @param {MatrixView} view @param {Frame} frame */
function drawCrosshair({ app, width, height }, { pen, x, y, matrix, colour }) {
  const { cell, pins } = app.state;
  const [right, bottom] = [matrix.columns * width, matrix.rows * height];
  const rows = app.reading === null ? [...pins] : [app.reading];
  pen.strokeStyle = colour("accent");
  pen.lineWidth = 1;
  if (app.pointed && app.pointed[0] < matrix.rows && app.pointed[1] < matrix.columns) {
    const [row, column] = app.pointed;
    rows.push(row);
    pen.strokeRect(x + column * width - 0.5, y - 0.5, width + 1, bottom + 1);
  }
  for (const row of rows) {
    pen.strokeRect(x - 0.5, y + row * height - 0.5, right + 1, height + 1);
  }
  for (const at of [cell, app.pointed]) {
    if (!at) continue;
    for (const [name, line] of /** @type {[string, number][]} */ ([["card", 5], ["accent", 3]])) {
      pen.strokeStyle = colour(name);
      pen.lineWidth = line - (at === cell ? 0 : 1);
      pen.strokeRect(x + at[1] * width - 1, y + at[0] * height - 1, width + 2, height + 2);
    }
  }
}

/** @param {MatrixView} view @param {Frame} frame */
function drawLabels(view, { pen, x, y, seen, matrix, colour }) {
  const { labels, app, width, height } = view;
  const [top, bottom, left, right] = seen;
  const [row, column] = app.pointed ?? app.state.cell ?? [app.reading ?? -1, -1];
  let style = "";
  const paint = (/** @type {boolean} */ strong, /** @type {boolean} */ dim) => {
    const next = `${strong} ${dim}`;
    if (next === style) return; // another font takes longer than a label
    style = next;
    pen.fillStyle = strong ? colour("accent") : colour(dim ? "faint" : "ink");
    pen.font = `${strong ? "bold " : ""}${(dim ? 10 : 12) * app.type}px ${MONO}`;
  };
  const every = (/** @type {number} */ size, /** @type {number} */ room) =>
    TICKS.find((step) => step * size >= room) ?? 1000;
  const rows = range(top, bottom).filter((i) => y + (i + 0.5) * height >= view.top);
  const columns = range(left, right).filter((j) => x + (j + 0.5) * width >= view.left);
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const { type } = app;
  const written = height >= 11 * type;
  for (const i of rows) {
    if (!written && i !== row) continue;
    paint(i === row, false);
    pen.fillText(written ? labels[i] : `${i} ${labels[i]}`, view.left - 6, y + (i + 0.5) * height);
  }
  for (const i of rows) {
    const near = row >= 0 && Math.abs(i - row) * height < 12 * type;
    if (!written && (near || i % every(height, 11 * type))) continue;
    paint(written && i === row, true);
    const end = written ? 4 + type * numberWidth(matrix.rows) : view.left - 6;
    pen.fillText(String(i), end, y + (i + 0.5) * height);
  }
  pen.textAlign = "center";
  for (const j of columns) {
    const fits = matrix.keys && widthOfLabel(pen, labels[j]) <= Math.max(width, 9);
    if (!fits && j !== column) continue;
    paint(j === column, false);
    pen.fillText(labels[j], x + (j + 0.5) * width, view.top - 11 * type);
  }
  const step = every(width, type * (numberWidth(matrix.columns) + 8));
  for (const j of columns) {
    const far = Math.abs(j - column) * width > 24 * type;
    if (j !== column && (j % step || !far)) continue;
    paint(j === column, true);
    pen.fillText(String(j), x + (j + 0.5) * width, 10 * type);
  }
}

/** The numbers from `first` to `end` − 1. @param {number} first @param {number} end */
function range(first, end) {
  return Array.from({ length: end - first }, (_, n) => first + n);
}

/** Width in pixels of labels for positions below `count`. @param {number} count */
function numberWidth(count) {
  return String(count - 1).length * 6.5;
}
