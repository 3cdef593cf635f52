// @ts-check
// Shows one number as the sum of its terms, and the next step of the computation.

import { LAYER_STAGES } from "./data.js";
import { matrixOf, termsOf } from "./derive.js";
import { short } from "./numbers.js";
import { keptPosition, make, named, part } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Subject } from "./data.js" */

/** @param {App} app */
export function makeCell(app) {
  const host = part("cell");
  const order = /** @type {HTMLSelectElement} */ (part("terms-order"));
  order.addEventListener("change", () => render());

  function render() {
    const shown = app.panels.filter(({ matrix }) => typeof matrix !== "string");
    const at = app.state.cell ?? app.pointed ?? strongest(shown[0]?.matrix, keptPosition(app));
    host.replaceChildren();
    if (!at) return;
    if (!app.state.cell) host.append(make("p", { class: "hint" }, "Click a cell to keep it here."));
    const subjects = app.state.of === "diff" ? app.subjects : shown.map(({ subject }) => subject);
    for (const subject of subjects) host.append(...explained(app, subject, at, order.value));
  }
  return { host, render };
}

/**
 * The largest cell of a row, to begin with.
 * @param {import("./data.js").Matrix | string | undefined} matrix
 * @param {number} kept the row
 * @returns {[number, number] | null}
 */
function strongest(matrix, kept) {
  if (!matrix || typeof matrix === "string") return null;
  const row = Math.min(kept, matrix.rows - 1);
  const values = matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns);
  return [row, values.indexOf(values.reduce((a, b) => Math.max(a, b)))];
}

/**
 * @param {App} app
 * @param {Subject} subject
 * @param {[number, number]} at
 * @param {string} order "place" or "size"
 */
function explained(app, subject, [row, column], order) {
  const { state, digits } = app;
  const written = (/** @type {number} */ value) => short(value, digits);
  const title = app.subjects.length > 1 ? [make("h3", null, subject.name)] : [];
  const alone = state.view === "head" || LAYER_STAGES.includes(state.stage);
  const sum = alone
    ? termsOf(subject, state, row, column, (key) => named(subject, key), written) ??
      vectorOf(subject, state, row)
    : null;
  if (!sum) return [...title, make("p", { class: "hint" }, reason(app, subject))];
  const total = sum.terms.reduce((all, { value }) => all + value, 0);
  const largest = sum.terms.reduce((most, { value }) => Math.max(most, Math.abs(value)), 0) || 1;
  const terms = [...sum.terms];
  if (order === "size") terms.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const items = terms.map(({ name, value, factors }) =>
    make(
      "li",
      { title: factors, "data-value": value },
      make("span", { class: "term" }, name.replace("dimension ", "d ")),
      bar(value / largest),
      make("span", { class: "number" }, written(value)),
    )
  );
  const signs = make(
    "p",
    { class: "hint" },
    make("span", { class: "swatch" }),
    " positive ",
    make("span", { class: "swatch negative" }),
    ` negative · the longest bar is ${written(largest)}`,
  );
  const list = make("ol", { class: "terms", tabindex: "0", "aria-label": sum.of }, ...items);
  const vector = sum.of === "";
  const length = Math.sqrt(terms.reduce((all, { value }) => all + value * value, 0));
  const steps = vector
    ? [step("length √Σx²", written(length), "length")]
    : [step(`Σ ${sum.of}`, written(total), "sum")];
  if (sum.sum === "q·k") {
    const scaled = total / Math.sqrt(subject.headSize);
    steps.push(step(`/ √${subject.headSize}`, written(scaled), "scaled"));
    if (column > row) steps.push(step("mask", "−∞", "masked"));
    else {
      const at = subject.begin(row) + column;
      const weight = subject.weights(state.layer, state.head)[at];
      steps.push(step(`softmax over keys 0 … ${row}`, written(weight), "weight"));
    }
  }
  const heading = sum.sum === "q·k"
    ? `query ${named(subject, row)} · key ${named(subject, column)}`
    : `${sum.sum} of ${named(subject, row)}${vector ? "" : ` · dimension ${column}`}`;
  return [
    ...title,
    make("p", { class: "cell-name" }, heading),
    signs,
    list,
    make("dl", { class: "steps" }, ...steps.flat()),
  ];
}

/**
 * A row of a stage whose numbers are no sums that the page can show: its vector.
 * @param {Subject} subject
 * @param {import("./state.js").State} state
 * @param {number} row
 */
function vectorOf(subject, state, row) {
  const matrix = matrixOf(subject, state);
  if (typeof matrix === "string" || matrix.keys) return null;
  const values = matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns);
  const terms = Array.from(values, (value, n) => {
    return { name: `dimension ${n}`, value, factors: `dimension ${n}` };
  });
  return { sum: state.stage, of: "", terms };
}

/** A bar that begins in the middle, to the right for what is positive. @param {number} share −1 … 1 */
function bar(share) {
  const fill = make("span", { class: share < 0 ? "fill negative" : "fill" });
  const size = 50 * Math.abs(share);
  fill.style.width = `${size}%`;
  fill.style.left = `${share < 0 ? 50 - size : 50}%`;
  return make("span", { class: "bar both", "aria-hidden": "true" }, fill);
}

/** @param {string} name @param {string} value @param {string} kind */
function step(name, value, kind) {
  return [make("dt", null, name), make("dd", { "data-step": kind }, value)];
}

/** Why a number cannot be shown as a sum of terms. @param {App} app @param {Subject} subject */
function reason(app, subject) {
  const { view, layer } = app.state;
  if (view === "mean") return "A mean of heads: choose one head to see its products.";
  if (!subject.detailed(layer)) {
    return `This file has no q and k of layer ${layer}: make a page with --layer ${layer}.`;
  }
  return "";
}
