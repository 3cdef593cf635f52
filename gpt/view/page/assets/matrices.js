// @ts-check
// The card of the matrix: what the state selects, of one subject or of two side by side, its tools,
// and a line with the numbers of the cell under the mouse, or of the pinned one.

import { Scale } from "./colours.js";
import { matrixOf } from "./derive.js";
import { MatrixView } from "./matrix.js";
import { short, signed } from "./numbers.js";
import { make, named, part, say, segments, showLegend } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { State } from "./state.js" */

/** @type {Record<string, string>} */
const VALUE_NAMES = { weights: "weight", proj: "projection" };

/** @param {App} app */
export function makeMatrices(app) {
  const host = part("matrices");
  const views = [0, 1].map(() =>
    new MatrixView(app, (row, column) => {
      const { cell } = app.state;
      const same = cell && cell[0] === row && cell[1] === column;
      app.change({ cell: same ? null : [row, column] });
    })
  );
  const titles = views.map(() => make("h3", { class: "panel-title" }));
  const refusals = views.map(() => make("p", { class: "refusal" }));
  const frames = views.map((view, n) =>
    make("div", { class: "frame" }, titles[n], refusals[n], view.box)
  );
  const showView = segments(part("view"), [
    ["head", "head", "One head"],
    ["mean", "all heads", "The mean of the layer's heads, and the lines of all of them"],
  ], (view) => app.change({ view: /** @type {State["view"]} */ (view) }));
  const showScale = segments(part("scale"), [
    ["fixed", "even", "Weights: from 0 to 1, evenly"],
    ["root", "√", "By the square root: small ones show"],
    ["row", "by row", "Relative: each row's largest has the full colour, however small it is"],
  ], (scale) => app.change({ scale: /** @type {State["scale"]} */ (scale) }));
  for (const [id, factor] of /** @type {[string, number][]} */ ([["in", 1.5], ["out", 1 / 1.5]])) {
    part(`zoom-${id}`).addEventListener("click", () => {
      for (const view of views) {
        view.zoom = Math.min(24, Math.max(0.25, view.zoom * factor));
        view.fit();
      }
    });
  }
  part("zoom-fit").addEventListener("click", () => {
    for (const view of views) {
      view.zoom = 1;
      view.fit();
    }
    host.scrollIntoView({ block: "nearest" });
  });

  function render() {
    const { state, panels } = app;
    const shown = frames.slice(0, panels.length);
    if (host.childElementCount !== shown.length) host.replaceChildren(...shown);
    panels.forEach((panel, n) => {
      const { matrix, title } = panel;
      say(titles[n], title);
      refusals[n].hidden = typeof matrix !== "string";
      views[n].box.hidden = typeof matrix === "string";
      if (typeof matrix === "string") refusals[n].textContent = matrix;
      else {
        const scale = new Scale(matrix, state.scale, app.dark, app.limit);
        views[n].show(matrix, scale, panel);
        if (n === 0) showLegend(part("legend"), scale, app.digits);
      }
    });
    host.classList.toggle("two", panels.length > 1);
    showView(state.view);
    showScale(state.scale);
    const [{ matrix }] = panels;
    const keys = typeof matrix === "string" || matrix.keys;
    say(part("axes"), `rows = query, columns = ${keys ? "key" : "dimension"}`);
    describe(app);
    mark();
  }

  /** Tells the style sheet where the row of the pinned cell ends: #by-hand stands there. */
  function mark() {
    const [row, column] = app.state.cell ?? [];
    const { matrix } = app.panels[app.panels.length - 1];
    const last = typeof matrix !== "string" && matrix.causal ? row : column; // covers no number
    const at = row !== undefined && last !== undefined &&
      views[app.panels.length - 1].endOf(row, last);
    const { left, top } = host.getBoundingClientRect();
    const style = host.parentElement?.style;
    style?.setProperty("--cell-x", at ? `${at[0] - left}px` : "0");
    style?.setProperty("--cell-y", at ? `${at[1] - top}px` : "0");
  }

  /** Draws the crosshair and the line of numbers again. */
  function follow() {
    views.forEach((view, n) => {
      if (typeof app.panels[n]?.matrix === "object") view.draw();
    });
    describe(app);
  }
  host.addEventListener("scroll", mark, true);
  new ResizeObserver(mark).observe(host);
  return { host, render, follow };
}

/** The line that describes the cell under the mouse, or the pinned one. @param {App} app */
function describe(app) {
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
    pieces.push(`${named(first.subject, row)} → ${named(first.subject, column)}`);
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
      const sum = score[row * subject.length + column];
      pieces.push(`score ${short(sum, digits)}`);
      pieces.push(`scaled ${short(sum / Math.sqrt(subject.headSize), digits)}`);
    }
  }
  part("readout").textContent = pieces.join(" · ");
}
