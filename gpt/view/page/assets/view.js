// @ts-check
// The view of one subject, or of two that are compared: holds the state, and redraws every part when
// the state or the subjects change.

import { introduce } from "./about.js";
import { makeCell } from "./cell.js";
import { Scale } from "./colours.js";
import { STAGES } from "./data.js";
import { panelsOf } from "./derive.js";
import { makeHeads } from "./heads.js";
import { listen } from "./keys.js";
import { makeLens } from "./lens.js";
import { MatrixView } from "./matrix.js";
import { makeMeasures } from "./measures.js";
import { makeNext } from "./next.js";
import { make, part, segments, showLegend, watchCards } from "./parts.js";
import { describe } from "./readout.js";
import { makeSave } from "./save.js";
import { fromHash, settled, toHash } from "./state.js";
import { makeText } from "./text.js";

/** @typedef {import("./data.js").Matrix} Matrix */
/** @typedef {import("./payload.js").Payload} Payload */
/** @typedef {import("./data.js").Subject} Subject */
/** @typedef {import("./parts.js").App} App */
/** @typedef {import("./parts.js").Panel} Panel */
/** @typedef {import("./state.js").State} State */

/**
 * What a page that computes adds. settings: the names of its settings in the address.
 * @typedef {object} Additions
 * @property {string[]} settings
 * @property {(app: App) => {render: () => void}[]} parts
 * @property {import("./keys.js").Key[]} keys
 */

/**
 * Draws the page. `compared` is what the page shows first of two subjects.
 * @param {Payload} data
 * @param {Subject[]} subjects
 * @param {State["of"]} compared
 * @param {Additions} additions
 * @returns {{app: App, show: (subjects: Subject[]) => void}} show: draws other subjects
 */
export function makeView(data, subjects, compared, additions) {
  watchCards();
  const system = matchMedia("(prefers-color-scheme: dark)");
  const framed = parent !== window; // in a notebook, whose history and title are its own
  document.documentElement.toggleAttribute("data-framed", framed);
  let theme = "auto";
  /** @type {Record<string, string>} */
  let colours = {}; // of the theme, by their names

  /** @type {State} */
  const start = {
    of: subjects.length > 1 ? compared : "a",
    view: typeof data.start.head === "string" ? data.start.head : "head",
    layer: data.start.layer,
    head: typeof data.start.head === "string" ? 0 : data.start.head,
    stage: data.start.stage,
    scale: "fixed",
    cell: null,
    pins: [],
    more: Object.fromEntries(additions.settings.map((name) => [name, ""])),
  };

  /** @type {App} */
  const app = {
    data,
    subjects,
    changes: 0,
    state: fromHash(location.hash, start, subjects),
    panels: [],
    limit: 1,
    weights: "",
    pointed: null,
    reading: null,
    dark: system.matches,
    colour(name) {
      return colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(
        `--${name}`,
      );
    },
    digits: data.bits === 32 ? 4 : 3,
    change(patch) {
      app.state = settled({ ...app.state, ...patch }, app.subjects);
      const hash = toHash(app.state);
      if (!framed && location.hash.slice(1) !== hash) {
        // "Back" returns to other views, not to each letter of a text that is in the address.
        if (Object.keys(patch).join() === "more") location.replace(`#${hash}`);
        else location.hash = hash;
      }
      render();
    },
    point(cell) {
      const same = cell?.[0] === app.pointed?.[0] && cell?.[1] === app.pointed?.[1];
      if (same) return;
      app.pointed = cell;
      follow();
    },
    read(position) {
      if (position === app.reading) return;
      app.reading = position;
      follow();
    },
  };

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

  let showOf = (/** @type {string} */ _) => {};
  let introduced = -1; // which of the subjects' changes
  const showView = segments(part("view"), [
    ["head", "head", "One head"],
    ["mean", "mean of heads", "The mean of the layer's heads"],
    ["rollout", "rollout", "Π ½(mean of heads + I) up to the layer: a heuristic"],
  ], (view) => app.change({ view: /** @type {State["view"]} */ (view) }));
  const showStage = segments(
    part("stages"),
    STAGES.map(([name, title], n) => [name, title, `${name}: key ${n + 1}`]),
    (stage) => app.change({ stage }),
  );
  const showScale = segments(part("scale"), [
    ["fixed", "even", "Weights: from 0 to 1, evenly"],
    ["root", "√", "By the square root: small ones show"],
    ["row", "by row", "Relative: each row's largest has the full colour, however small it is"],
  ], (scale) => app.change({ scale: /** @type {State["scale"]} */ (scale) }));

  const [text, next, cell, lens] = [makeText(app), makeNext(app), makeCell(app), makeLens(app)];
  // A model with an encoder has no lens, and of two texts none is the one to read.
  const predicts = subjects.every((subject) => subject.lens);
  for (const id of ["text", "lens"]) {
    part(id).closest(".card")?.toggleAttribute("hidden", !predicts);
  }
  const pointable = predicts ? [text, next, lens] : []; // parts that depend on the mouse
  // Of another text, the prediction comes first.
  const quick = [...predicts ? [text, next] : [], ...additions.parts(app)];
  const slow = [makeHeads(app), cell, ...predicts ? [lens] : [], makeMeasures(app), makeSave(app)];
  let waiting = false; // whether the slow ones wait for the next frame

  /** Draws everything for the state. */
  function render() {
    renderQuick();
    renderSlow();
  }

  function renderQuick() {
    const { state } = app;
    app.panels = panelsOf(app.subjects, state);
    const weights = state.stage === "weights"
      ? app.panels
      : panelsOf(app.subjects, { ...state, stage: "weights" });
    app.weights = weights[weights.length - 1].matrix;
    for (const each of quick) each.render();
  }

  function renderSlow() {
    waiting = false;
    const { state } = app;
    const drawn = app.panels.map(({ matrix }) => matrix).filter((matrix) =>
      typeof matrix !== "string"
    );
    app.limit = Math.max(...drawn.map((matrix) => new Scale(matrix, "fixed", app.dark).limit));
    const shown = frames.slice(0, app.panels.length);
    if (part("matrices").childElementCount !== shown.length) {
      part("matrices").replaceChildren(...shown);
    }
    app.panels.forEach((panel, n) => {
      const { matrix, title } = panel;
      titles[n].textContent = title;
      refusals[n].hidden = typeof matrix !== "string";
      views[n].box.hidden = typeof matrix === "string";
      if (typeof matrix === "string") refusals[n].textContent = matrix;
      else {
        const scale = new Scale(matrix, state.scale, app.dark, app.limit);
        views[n].show(matrix, scale, panel);
        if (n === 0) showLegend(part("legend"), scale, app.digits);
      }
    });
    part("matrices").classList.toggle("two", app.panels.length > 1);
    if (introduced !== app.changes) {
      introduced = app.changes;
      showOf = compare(app);
      introduce(app);
    }
    showOf(state.of);
    showView(state.view, (view) => view === "rollout" && subjects[0].crossed);
    showScale(state.scale);
    showStage(state.stage, (stage) => state.view === "rollout" && stage !== "weights");
    const [{ matrix }] = app.panels;
    const keys = typeof matrix === "string" || matrix.keys;
    const [query, key] = subjects[0].sides;
    part("axes").textContent = `rows = ${query}, columns = ${keys ? key : "dimension"}`;
    for (const each of slow) each.render();
    describe(app);
    performance.clearMarks("drawn");
    performance.mark("drawn"); // for benchmarks/live.py
  }

  /** Draws the parts that depend on the mouse. */
  function follow() {
    views.forEach((view, n) => {
      if (typeof app.panels[n]?.matrix === "object") view.draw();
    });
    for (const each of pointable) each.render();
    if (!app.state.cell) cell.render();
    describe(app);
  }

  function darken() {
    app.dark = theme === "auto" ? system.matches : theme === "dark";
    colours = {};
    document.documentElement.dataset.theme = app.dark ? "dark" : "light";
    part("theme").textContent = { auto: "◐ auto", light: "○ light", dark: "● dark" }[theme] ?? "";
  }

  const { layer: first, head: second, why } = data.start;
  const asOpened = app.state.view === "head" && app.state.layer === first &&
    app.state.head === second;
  part("heads-why").textContent = why && asOpened ? `Opened on L${first} H${second}: ${why}.` : "";
  darken();
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
    part("matrices").scrollIntoView({ block: "nearest" });
  });
  part("theme").addEventListener("click", () => {
    theme = { auto: "light", light: "dark", dark: "auto" }[theme] ?? "auto";
    darken();
    render();
  });
  system.addEventListener("change", () => {
    darken();
    render();
  });
  listen(app, additions.keys);
  addEventListener("hashchange", () => {
    if (location.hash.slice(1) === toHash(app.state)) return;
    app.state = fromHash(location.hash, start, app.subjects);
    render();
  });
  render();

  /** @param {Subject[]} others */
  function show(others) {
    const grown = others.length > app.subjects.length;
    app.subjects = others;
    app.changes++;
    app.pointed = null;
    app.reading = null;
    app.state = settled({ ...app.state, of: grown ? compared : app.state.of }, others);
    renderQuick();
    if (!waiting) {
      requestAnimationFrame(() =>
        setTimeout(() => {
          if (waiting) renderSlow();
        })
      );
    }
    waiting = true;
  }
  return { app, show };
}

/** Buttons that choose one of two subjects, or both. @param {App} app */
function compare(app) {
  const { subjects } = app;
  const [a, b] = subjects;
  /** @type {[string, string, string][]} */
  const choices = subjects.length < 2 ? [] : [
    ["a", "A", a.name],
    ["b", "B", b.name],
    ["diff", "B − A", "The difference, where both have the head"],
    ["both", "A | B", "Both, side by side"],
  ];
  return segments(part("of"), choices, (of) => app.change({ of: /** @type {State["of"]} */ (of) }));
}
