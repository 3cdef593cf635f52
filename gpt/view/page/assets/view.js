// @ts-check
// The view of one subject, or of two that are compared: holds the state, and redraws every part when
// the state or the subjects change.

import { introduce, makeChecks } from "./about.js";
import { makeCell } from "./cell.js";
import { Scale } from "./colours.js";
import { panelsOf } from "./derive.js";
import { makeHeads } from "./heads.js";
import { listen } from "./keys.js";
import { makeLines } from "./lines.js";
import { makeMap } from "./map.js";
import { makeLens } from "./lens.js";
import { makeMatrices } from "./matrices.js";
import { makeMeasures } from "./measures.js";
import { makeNext } from "./next.js";
import { part, say, segments } from "./parts.js";
import { makeSave } from "./save.js";
import { Schedule } from "./schedule.js";
import { fromHash, settled, toHash } from "./state.js";
import { makeText } from "./text.js";

/** @import { Subject } from "./data.js" */
/** @import { Payload } from "./payload.js" */
/** @import { App, Part } from "./parts.js" */
/** @import { State } from "./state.js" */

const PROJECTED = 1.35; // times the usual size of letters, as in page.css

/**
 * What a page that computes adds. settings: the names of its settings in the address.
 * @typedef {object} Additions
 * @property {string[]} settings
 * @property {string} opening what to do with the page, and whose model it is
 * @property {(app: App) => Part[]} parts
 * @property {import("./keys.js").Key[]} keys
 */

/**
 * Draws the page.
 * @param {Payload} data
 * @param {Subject[]} subjects
 * @param {Additions} additions
 * @returns {{app: App, show: (subjects: Subject[]) => void}} show: draws other subjects
 */
export function makeView(data, subjects, additions) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const framed = parent !== window; // in a notebook, whose history and title are its own
  const root = document.documentElement;
  root.toggleAttribute("data-framed", framed);
  const fit = () => framed && parent.postMessage({ gptxHeight: root.offsetHeight }, "*");
  new ResizeObserver(fit).observe(root); // the notebook makes the frame as high
  let theme = "auto";
  /** @type {Record<string, string>} */
  let colours = {}; // of the theme, by their names

  /** @type {State} */
  const start = {
    of: subjects.length > 1 ? "b" : "a",
    view: data.start.head === "mean" ? "mean" : "head",
    layer: data.start.layer,
    head: data.start.head === "mean" ? 0 : data.start.head,
    stage: data.start.stage,
    scale: "fixed",
    cell: null,
    pins: [],
    next: "",
    against: "",
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
    type: 1,
    colour(name) {
      return colours[name] ??= getComputedStyle(root).getPropertyValue(`--${name}`);
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
    togglePin(position) {
      const { pins } = app.state;
      const others = pins.filter((pin) => pin !== position);
      app.change({ pins: others.length < pins.length ? others : [...pins, position] });
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
    stateOf: (hash) => fromHash(hash, { ...start, of: "b" }, app.subjects),
  };

  const own = additions.parts(app);
  const [text, next, cell, lens] = [makeText(app), makeNext(app), makeCell(app), makeLens(app)];
  const [matrices, lines] = [makeMatrices(app), makeLines(app)];
  const schedule = new Schedule([
    makeTitle(app),
    text,
    next,
    makeMap(app),
    makeHeads(app),
    matrices,
    lines,
    ...own,
    cell,
    lens,
    makeMeasures(app),
    makeSave(app),
    makeChecks(app),
  ]);

  /** Draws everything for the state. */
  function render() {
    prepare();
    const { layer, head, why } = data.start;
    const { view, ...now } = app.state;
    const asOpened = why && view === "head" && now.layer === layer && now.head === head;
    say(part("heads-why"), asOpened ? `Opened on L${layer} H${head}: ${why}.` : "");
    schedule.drawAll();
    app.rendered?.();
  }

  /** Computes what several parts show. */
  function prepare() {
    const { state } = app;
    app.panels = panelsOf(app.subjects, state);
    const weights = state.stage === "weights"
      ? app.panels
      : panelsOf(app.subjects, { ...state, stage: "weights" });
    app.weights = weights[weights.length - 1].matrix;
    const drawn = app.panels.map(({ matrix }) => matrix).filter((matrix) =>
      typeof matrix !== "string"
    );
    app.limit = Math.max(...drawn.map((matrix) => new Scale(matrix, "fixed", app.dark).limit));
  }

  /** Draws the parts that depend on the mouse. */
  function follow() {
    matrices.follow();
    for (const each of [lines, text, lens, next]) each.render();
    if (!app.state.cell) cell.render();
  }

  function darken() {
    app.dark = theme === "auto" ? system.matches : theme === "dark";
    colours = {};
    root.dataset.theme = app.dark ? "dark" : "light";
    part("theme").textContent = { auto: "◐ auto", light: "○ light", dark: "● dark" }[theme] ?? "";
  }

  say(part("opening"), additions.opening);
  darken();
  /** Larger type and fewer words, or as before. */
  function project() {
    const on = root.toggleAttribute("data-projector");
    part("projector").setAttribute("aria-pressed", String(on));
    app.type = on ? PROJECTED : 1;
    dispatchEvent(new Event("resize")); // the matrix has another height
    render();
    dispatchEvent(new Event("resize")); // the window has room for other sizes
  }
  part("projector").addEventListener("click", project);
  part("theme").addEventListener("click", () => {
    theme = { auto: "light", light: "dark", dark: "auto" }[theme] ?? "auto";
    darken();
    render();
  });
  system.addEventListener("change", () => {
    darken();
    render();
  });
  const keys = [{ key: "p", name: "p", does: "larger type, for a projector", act: project }];
  listen(app, [...additions.keys, ...keys]);
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
    app.state = settled({ ...app.state, of: grown ? "b" : app.state.of }, others);
    prepare();
    schedule.drawSoon();
  }
  return { app, show };
}

/** The head of the page, with buttons that choose one of two subjects, or both. @param {App} app */
function makeTitle(app) {
  const host = part("of");
  let introduced = -1; // which of the subjects' changes
  let show = (/** @type {string} */ _) => {};
  function render() {
    if (introduced !== app.changes) {
      introduced = app.changes;
      const [a, b] = app.subjects;
      /** @type {[string, string, string][]} */
      const choices = b
        ? [
          ["a", "A", a.name],
          ["b", "B", b.name],
          ["diff", "B − A", "The difference"],
          ["both", "A | B", "Both, side by side"],
        ]
        : [];
      show = segments(host, choices, (of) => app.change({ of: /** @type {State["of"]} */ (of) }));
      introduce(app);
    }
    show(app.state.of);
  }
  return { host, render };
}
