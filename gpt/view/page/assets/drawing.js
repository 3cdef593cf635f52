// @ts-check
// Draws everything on a matrix's canvas except its cells: lines, numbers, the crosshair, labels.

import { ink } from "./colours.js";
import { brief } from "./numbers.js";
import { MONO } from "./parts.js";

/** @typedef {import("./matrix.js").MatrixView} MatrixView */

const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/**
 * Lines between cells if there is room, and the stepped line along the diagonal, beyond which all
 * cells are masked.
 * @param {MatrixView} view
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {(name: string) => string} colour
 */
export function drawEdges(view, pen, x, y, colour) {
  const { matrix, width, height } = view;
  if (!matrix) return;
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

/**
 * @param {MatrixView} view
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {[number, number, number, number]} seen
 */
export function drawNumbers(view, pen, x, y, [top, bottom, left, right]) {
  const { matrix, scale, width, height } = view;
  if (!matrix || !scale) return;
  pen.font = `${width >= 42 ? 12 : 11}px ${MONO}`;
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

/**
 * @param {MatrixView} view
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {(name: string) => string} colour
 */
export function drawCrosshair(view, pen, x, y, colour) {
  const { matrix, app, width, height } = view;
  if (!matrix) return;
  const { cell, pins } = app.state;
  const [right, bottom] = [matrix.columns * width, matrix.rows * height];
  pen.strokeStyle = colour("accent");
  for (const row of app.reading === null ? pins : [app.reading]) {
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y + row * height - 0.5, right + 1, height + 1);
  }
  if (app.pointed && app.pointed[0] < matrix.rows && app.pointed[1] < matrix.columns) {
    const [row, column] = app.pointed;
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y + row * height - 0.5, right + 1, height + 1);
    pen.strokeRect(x + column * width - 0.5, y - 0.5, width + 1, bottom + 1);
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

/**
 * @param {MatrixView} view
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {[number, number, number, number]} seen
 * @param {(name: string) => string} colour
 */
export function drawLabels(view, pen, x, y, [top, bottom, left, right], colour) {
  const { matrix, labels, above, app, width, height } = view;
  if (!matrix) return;
  const [row, column] = app.pointed ?? app.state.cell ?? [app.reading ?? -1, -1];
  let style = "";
  const paint = (/** @type {boolean} */ strong, /** @type {boolean} */ dim) => {
    const next = `${strong} ${dim}`;
    if (next === style) return; // another font takes longer than a label
    style = next;
    pen.fillStyle = strong ? colour("accent") : colour(dim ? "faint" : "ink");
    pen.font = `${strong ? "bold " : ""}${dim ? 10 : 12}px ${MONO}`;
  };
  const every = (/** @type {number} */ size, /** @type {number} */ room) =>
    TICKS.find((step) => step * size >= room) ?? 1000;
  const rows = range(top, bottom).filter((i) => y + (i + 0.5) * height >= view.top);
  const columns = range(left, right).filter((j) => x + (j + 0.5) * width >= view.left);
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const written = height >= 11;
  for (const i of rows) {
    if (!written && i !== row) continue;
    paint(i === row, false);
    pen.fillText(written ? labels[i] : `${i} ${labels[i]}`, view.left - 6, y + (i + 0.5) * height);
  }
  for (const i of rows) {
    const near = row >= 0 && Math.abs(i - row) * height < 12;
    if (!written && (near || i % every(height, 11))) continue;
    paint(written && i === row, true);
    const end = written ? 4 + numberWidth(matrix.rows) : view.left - 6;
    pen.fillText(String(i), end, y + (i + 0.5) * height);
  }
  pen.textAlign = "center";
  const fits = (/** @type {string} */ text) => width >= (text.length > 2 ? 44 : 9); // U+XXXX
  for (const j of columns) {
    if (!matrix.keys || (j !== column && !fits(above[j]))) continue;
    paint(j === column, false);
    pen.fillText(above[j], x + (j + 0.5) * width, view.top - 11);
  }
  const step = every(width, numberWidth(matrix.columns) + 8);
  for (const j of columns) {
    const far = Math.abs(j - column) * width > 24;
    if (j !== column && (j % step || !far)) continue;
    paint(j === column, true);
    pen.fillText(String(j), x + (j + 0.5) * width, 10);
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
