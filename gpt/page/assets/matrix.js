// @ts-check
// Draws the chosen head's matrix, with a readout and a legend in its empty half. A click or an arrow key
// chooses a cell; the readout says the value of the cell under the pointer.

import { byId, choose, label, make, moveByArrows, penOf, quoted, setAttr, setText } from "./dom.js";
import { css, format, inkOn, tint } from "./format.js";
import { nameOf } from "./app.js";
import { matrixOf, sharesOf, STAGES } from "./stages.js";
import { painted } from "./triangle.js";

/** @import { App, Shown, Stage } from "./app.js" */
/** @import { Matrix } from "./stages.js" */
/** @typedef {{row: number, key: number}} Cell */

// Sizes are in CSS pixels.
const MARGIN = 28; // the room for the characters at the sides
const READABLE = 10; // the least size of a cell if all characters are written at the sides
const SMALLEST = 7; // the least size of the frame around the chosen cell
const NUMBERED = 30; // the least size of a cell with a number in it

/** @param {App} app */
export function makeMatrix(app) {
  const canvas = /** @type {HTMLCanvasElement} */ (byId("matrix"));
  const size = app.data.model.config.head_size;
  const tabs = makeTabs(app);
  /** @type {{shown: Shown, matrix: Matrix} | null} */
  let drawn = null;

  /** The cell under the pointer; null if there is none. @param {MouseEvent} event @returns {Cell | null} */
  function cellAt({ offsetX, offsetY }) {
    if (!drawn) return null;
    const { length, causal } = drawn.matrix;
    const cell = (canvas.clientWidth - MARGIN) / length;
    const row = Math.floor((offsetY - MARGIN) / cell);
    const key = Math.floor((offsetX - MARGIN) / cell);
    const inside = row >= 0 && key >= 0 && row < length && key < length;
    return inside && !(causal && key > row) ? { row, key } : null;
  }
  /** @param {Cell} cell */
  const select = ({ row, key }) => app.set({ row, key: Math.min(row, key), id: null });
  canvas.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) select(cell);
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    canvas.style.cursor = cell ? "pointer" : "";
    if (drawn) writeCell(drawn.shown, drawn.matrix, cell ?? drawn.shown);
  });
  canvas.addEventListener(
    "pointerleave",
    () => drawn && writeCell(drawn.shown, drawn.matrix, drawn.shown),
  );
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[/** @type {keyof moves} */ (event.key)];
    if (!move || !drawn) return;
    event.preventDefault();
    const { row, key, length } = drawn.shown;
    const next = Math.max(0, Math.min(length - 1, row + move[0]));
    select({ row: next, key: Math.max(0, Math.min(next, key + move[1])) });
  });

  app.parts.push((shown) => {
    const matrix = matrixOf(shown, size);
    drawn = { shown, matrix };
    for (const [stage, tab] of tabs) choose(tab, stage === shown.state.stage);
    setAttr(byId("plot"), "class", matrix.causal && matrix.length > 1 ? null : "full");
    drawMatrix(app, canvas, shown, matrix);
    writeCell(shown, matrix, shown);
    setText(byId("axes"), STAGES[matrix.stage].explained(size));
    setText(byId("least"), matrix.signed ? format(-matrix.most) : "0");
    setText(byId("most"), format(matrix.most));
    setAttr(byId("ramp"), "class", matrix.signed ? "signed" : null);
    setAttr(
      canvas,
      "aria-label",
      `${STAGES[matrix.stage].name} of ${nameOf(shown.look)}; ${byId("cell").textContent}`,
    );
  });
}

/** Writes a cell's characters and value. @param {Shown} shown @param {Matrix} matrix @param {Cell} cell */
function writeCell({ typed: { characters } }, matrix, { row, key }) {
  const value = matrix.value(row, key);
  const number = format(value, matrix.signed ? 2 : 3);
  setText(byId("cell"), `${quoted(characters[row])} → ${quoted(characters[key])} ${number}`);
}

/** @param {App} app */
function makeTabs(app) {
  const host = byId("stages");
  const tabs = Object.entries(STAGES).map(([stage, { name }]) => {
    const tab = make("button", { role: "tab", "aria-controls": "plot", "data-stage": stage }, name);
    tab.addEventListener("click", () => app.set({ stage: /** @type {Stage} */ (stage) }));
    return /** @type {[string, HTMLElement]} */ ([stage, tab]);
  });
  host.append(...tabs.map(([, tab]) => tab));
  moveByArrows(host);
  return tabs;
}

/** @param {App} app @param {HTMLCanvasElement} canvas @param {Shown} shown @param {Matrix} matrix */
function drawMatrix({ hues }, canvas, { typed: { characters }, row, key }, matrix) {
  const { length, most, value } = matrix;
  const side = canvas.clientWidth;
  const sharp = devicePixelRatio || 1;
  if (canvas.width !== Math.round(side * sharp)) {
    canvas.width = canvas.height = Math.round(side * sharp);
  }
  const pen = penOf(canvas);
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, side, side);
  const cell = (side - MARGIN) / length;

  pen.imageSmoothingEnabled = cell < 1;
  const extent = length * cell;
  pen.drawImage(painted(length, hues, sharesOf(matrix)), MARGIN, MARGIN, extent, extent);
  const font = 'ui-monospace, "DejaVu Sans Mono", monospace';
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  if (cell >= NUMBERED) {
    pen.font = `12px ${font}`;
    for (let row = 0; row < length; row++) {
      for (let key = 0; key < length; key++) {
        const number = value(row, key);
        if (number === null || Math.abs(number) < 0.005 * most) continue;
        pen.fillStyle = inkOn(tint(hues, number / most));
        pen.fillText(format(number), MARGIN + (key + 0.5) * cell, MARGIN + (row + 0.5) * cell);
      }
    }
  }
  pen.font = `${cell < 15 ? 12 : 14}px ${font}`;
  for (let at = 0; at < length; at++) {
    const middle = Math.min(MARGIN + (at + 0.5) * cell, side - 7);
    const name = label(characters[at]);
    const all = cell >= READABLE;
    pen.fillStyle = css(at === row ? hues.ink : hues.soft);
    if (all || at === row) pen.fillText(name, MARGIN / 2, middle, MARGIN - 2);
    pen.fillStyle = css(at === key ? hues.ink : hues.soft);
    if (all || at === key) pen.fillText(name, middle, MARGIN / 2, Math.max(cell, 14));
  }
  pen.strokeStyle = css(hues.ink);
  pen.lineWidth = 2;
  const size = Math.max(cell, SMALLEST);
  const place = (/** @type {number} */ at) =>
    Math.min(MARGIN + (at + 0.5) * cell - size / 2, side - size - 1);
  pen.strokeRect(place(key), place(row), size, size);
}
