// @ts-check
// The weights as lines from queries to keys, beside the matrix: of one head, or of all heads of the
// layer, each in its colour (after BertViz, Vig 2019).

import { visible } from "./cards.js";
import { Scale } from "./colours.js";
import { panelsOf } from "./derive.js";
import { short } from "./numbers.js";
import { context, followCharacters, lead, make, part, say, segments } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @typedef {{head: number, row: number, column: number, value: number, opacity: number}} Thread */

const ABOVE = 38; // CSS pixels over and below the characters, as of a matrix
const LEAST_LINE = 0.01; // of the largest weight: smaller ones have lines only of a chosen character
const MOST_LINES = 500; // of all characters: a browser without a GPU takes 20 µs for each
const BEHIND = 0.1; // times the opacity, of the lines behind those of a kept character

/** @param {App} app */
export function makeLines(app) {
  const [host, body, legend] = [part("lines"), part("lines-body"), part("lines-heads")];
  const canvas = /** @type {HTMLCanvasElement} */ (body.querySelector("canvas"));
  const sides = [part("lines-from"), part("lines-to")];
  /** @type {HTMLElement[][]} Characters of both sides. */
  const tiles = [[], []];
  let [width, alone, least, known] = [0, "all", 0, ""];
  /** @type {{head: number, scale: Scale}[]} */
  let heads = [];
  /** @type {Thread[]} */
  let all = [];
  /** @type {App["weights"]} */
  let weights = "";
  /** @type {number | null} A key under the mouse or the keyboard, here. */
  let key = null;
  let showAlone = (/** @type {string} */ _) => {};

  function render() {
    const { pointed, reading, state: { view, of, head, scale, pins, cell } } = app;
    host.hidden = typeof app.weights === "string";
    if (host.hidden || !visible(host)) return;
    const now = [scale, alone, app.dark].join();
    if (weights !== app.weights || known !== now) prepare();
    [weights, known] = [app.weights, now];
    const query = reading ?? pointed?.[0];
    if (query === undefined || (pointed && pointed[1] !== key)) key = null;
    const kept = pins.length ? pins : cell ? [cell[0]] : [];
    const here = query === undefined ? [kept, []] : key === null ? [[query], []] : [[], [key]];
    const lines = query === undefined
      ? all.map((line) => kept.length ? { ...line, opacity: line.opacity * BEHIND } : line)
      : [];
    if (here.flat().length) lines.push(...linesOf(heads, 0, here));
    const what = { head: `weights of head ${head}`, mean: "weights of all heads" };
    const most = query === undefined ? ` ≥ ${short(least, 2)}` : "";
    say(part("lines-title"), (of === "both" ? `${lead(app).name} · ` : "") + what[view] + most);
    draw(lines, write(here));
    Object.assign(host, { lines }); // for tests
  }

  /** What depends on the weights, and not on the mouse. */
  function prepare() {
    const every = scaledHeads(app);
    legend.hidden = app.state.view !== "mean";
    const names = every.map(({ head }) => `H${head}`);
    if (legend.hidden || !names.includes(alone)) alone = "all";
    heads = alone === "all" ? every : [every[names.indexOf(alone)]];
    least = LEAST_LINE * every[0].scale.limit;
    all = linesOf(heads, least);
    while (all.length > MOST_LINES) {
      least *= 2;
      all = all.filter(({ value }) => Math.abs(value) >= least);
    }
    if (legend.hidden) return;
    if (legend.childElementCount !== names.length + 1) {
      const choices = ["all", ...names].map((
        name,
      ) => /** @type {const} */ ([name, name, `The lines of ${name}`]));
      showAlone = segments(legend, choices, (name) => {
        alone = name;
        render();
      });
    }
    showAlone(alone);
    every.forEach(({ head }, n) => {
      const button = /** @type {HTMLElement} */ (legend.children[n + 1]);
      button.style.borderBottomColor = colourOf(app, head, 1);
    });
  }

  /** Writes the characters, and returns the height of each. @param {number[][]} here */
  function write(here) {
    const subject = lead(app);
    const tallest = parseFloat(getComputedStyle(body).maxHeight);
    const most = Math.min(46, (tallest - ABOVE) / subject.length);
    const height = most < 4 ? most : Math.floor(most); // as of a matrix that fits
    const tight = height < 11 * app.type;
    const every = tight ? 10 * Math.ceil(1.2 * app.type / height) : 1;
    body.style.setProperty("--row", `${height}px`);
    body.classList.toggle("tight", tight);
    sides.forEach((list, side) => {
      subject.labels.forEach((label, n) => {
        const tile = tiles[side][n] ??= list.appendChild(tileOf(n));
        say(tile, label);
        tile.classList.toggle("tick", n % every === 0);
        tile.classList.toggle("here", here[side].includes(n));
      });
      for (const tile of tiles[side].splice(subject.length)) tile.remove();
    });
    return height;
  }

  /** @param {Thread[]} lines the last on top @param {number} height of a character */
  function draw(lines, height) {
    const ratio = globalThis.devicePixelRatio || 1;
    const high = height * tiles[0].length;
    canvas.width = Math.round(width * ratio); // also clears it
    canvas.height = Math.round(high * ratio);
    canvas.style.height = `${high}px`;
    const pen = context(canvas);
    pen.scale(ratio, ratio);
    for (const { head, row, column, value, opacity } of lines) {
      const [from, to] = [(row + 0.5) * height, (column + 0.5) * height];
      pen.strokeStyle = colourOf(app, head, value);
      pen.globalAlpha = opacity;
      pen.lineWidth = opacity < 0.25 ? 1 : 0.8 + opacity * Math.min(2.2, height / 6); // 1 is fast
      pen.beginPath();
      pen.moveTo(0, from);
      pen.bezierCurveTo(0.45 * width, from, 0.55 * width, to, width, to);
      pen.stroke();
    }
  }

  sides.forEach((list, side) => {
    followCharacters(list, () => tiles[side], (at) => {
      const ends = [[at ?? -1], []];
      const strongest = linesOf(heads, 0, side ? ends.reverse() : ends).at(-1);
      const keys = app.panels.every(({ matrix }) => typeof matrix !== "string" && matrix.keys);
      key = side ? at : null;
      if (keys || !strongest) app.point(strongest ? [strongest.row, strongest.column] : null);
      if (!keys || !strongest) app.read(strongest?.row ?? null);
      render(); // of the same cell from its other side
    }, (at) => {
      const { pointed, state: { cell } } = app;
      if (side) app.change({ cell: String(cell) === String(pointed) ? null : pointed });
      else app.togglePin(at);
    });
  });
  new ResizeObserver(([{ contentRect }]) => {
    width = contentRect.width;
    render();
  }).observe(canvas);
  addEventListener("contentvisibilityautostatechange", render, true);
  addEventListener("resize", render);
  return { host, render, late: true };
}

/** @param {number} n */
function tileOf(n) {
  const tabindex = n ? -1 : 0;
  return make("span", { class: "character", role: "option", "data-position": n, tabindex });
}

/** The heads that the state shows, and scales of their weights with one limit. @param {App} app */
function scaledHeads(app) {
  const { state, weights, subjects, dark } = app;
  const several = state.view === "mean";
  const found = (several ? [...Array(lead(app).heads).keys()] : [state.head]).flatMap((head) => {
    const one = /** @type {const} */ ({ ...state, view: "head", head, stage: "weights" });
    const matrix = several ? panelsOf(subjects, one).at(-1)?.matrix : weights;
    return typeof matrix === "object" ? [{ head, matrix }] : [];
  });
  const limit = Math.max(...found.map(({ matrix }) => new Scale(matrix, "fixed", dark).limit));
  return found.map(({ head, matrix }) => {
    return { head, scale: new Scale(matrix, state.scale, dark, limit) };
  });
}

/**
 * The lines of weights of this size that are not 0, the strongest last: all, or those of here's queries
 * and keys.
 * @param {{head: number, scale: Scale}[]} heads
 * @param {number} least
 * @param {number[][]} [here]
 */
function linesOf(heads, least, here) {
  /** @type {Thread[]} */
  const lines = [];
  for (const { head, scale } of heads) {
    const { columns, values } = scale.matrix;
    values.forEach((value, n) => {
      if (!value || Math.abs(value) < least) return;
      const [row, column] = [Math.floor(n / columns), n % columns];
      if (here && !here[0].includes(row) && !here[1].includes(column)) return;
      const step = scale.step(row, column) / 255;
      const opacity = scale.signed ? Math.abs(2 * step - 1) : step;
      lines.push({ head, row, column, value, opacity });
    });
  }
  return lines.sort((a, b) => a.opacity - b.opacity);
}

/** @param {App} app @param {number} head @param {number} value */
function colourOf(app, head, value) {
  const { state: { of, view }, dark } = app;
  if (of === "diff") return app.colour(value < 0 ? "negative" : "positive");
  if (view !== "mean") return app.colour("positive");
  const light = (dark ? 0.78 : 0.56) + (head % 2 ? 0.06 : -0.06); // for colour-blind readers
  return `oklch(${light} 0.14 ${195 + 360 * head / lead(app).heads})`;
}
