// @ts-check
// One line with the numbers of the matrix's cell under the mouse, or of the pinned one.

import { matrixOf } from "./derive.js";
import { short, signed } from "./numbers.js";
import { named, part } from "./parts.js";

/** @typedef {import("./parts.js").App} App */

/** @type {Record<string, string>} */
const VALUE_NAMES = { weights: "weight", proj: "projection" };

/** The line that describes the cell under the mouse, or the pinned one. @param {App} app */
export function describe(app) {
  const at = app.pointed ?? app.state.cell;
  const { digits, state } = app;
  const value = VALUE_NAMES[state.stage] ?? state.stage;
  const [first] = app.panels;
  if (!at || typeof first.matrix === "string") {
    part("readout").textContent = "Point at a cell, or move with the arrow keys.";
    return;
  }
  const [row, column] = at;
  const numberIn = (/** @type {import("./data.js").Matrix | string} */ matrix) =>
    typeof matrix === "string" ? NaN : matrix.values[row * matrix.columns + column];
  const pieces = [];
  if (first.matrix.keys) {
    const { subject } = first;
    const [query, key] = subject.sides;
    pieces.push(
      `${query} ${named(subject, row)} → ${key} ${named(subject.columns, column)}`,
    );
  } else pieces.push(`${named(first.subject, row)} · dimension ${column}`);
  if (state.of === "diff") {
    const [a, b] = app.subjects.map((subject) => short(numberIn(matrixOf(subject, state)), digits));
    pieces.push(`${value} ${signed(numberIn(first.matrix), digits)}`, `A ${a}`, `B ${b}`);
  } else if (state.of === "both") {
    app.panels.forEach(({ matrix }, n) =>
      pieces.push(`${"AB"[n]} ${value} ${short(numberIn(matrix), digits)}`)
    );
  } else {
    pieces.push(`${value} ${short(numberIn(first.matrix), digits)}`);
    const { subject } = first;
    if (state.stage === "weights" && state.view === "head" && subject.detailed(state.layer)) {
      const score = subject.matrix("scores", state.layer, state.head).values;
      const sum = score[row * subject.keys + column];
      pieces.push(`score ${short(sum, digits)}`);
      pieces.push(`scaled ${short(sum / Math.sqrt(subject.headSize), digits)}`);
    }
  }
  part("readout").textContent = pieces.join(" · ");
}
