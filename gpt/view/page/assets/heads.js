// @ts-check
// Every head of every layer as a small picture, in the order of a measure.

import { visible } from "./cards.js";
import { Scale } from "./colours.js";
import { short, uniformOf } from "./numbers.js";
import { context, lead, make, part, placesOf, showLegend } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Matrix, Subject } from "./data.js" */
/** off: its output is replaced. @typedef {import("./parts.js").HeadPlace & {off: boolean}} Place */

const MOST = 64; // pixels a side

/** @param {App} app */
export function makeHeads(app) {
  const grid = part("heads");
  const order = /** @type {HTMLSelectElement} */ (part("order"));
  order.addEventListener("change", () => render());
  const measures = app.subjects[0].measures.map(({ title }, n) =>
    make("option", { value: String(n) }, title)
  );
  order.replaceChildren(make("option", { value: "" }, "layer and head"), ...measures);
  let drawn = "";
  let shape = ""; // what the buttons are
  /** @type {HTMLButtonElement[]} */
  let buttons = [];
  /** @type {HTMLButtonElement[]} Of the same heads, on a page that computes. */
  let switches = [];
  /** @type {{scales: Scale[], places: Place[]}} */
  let shown = { scales: [], places: [] };
  /** @type {{x: number, y: number, side: number}[] | null} */
  let frames = null; // of the pictures, in CSS pixels
  // All pictures on one canvas: a browser takes longer for many small ones.
  const sheet = make("canvas", { class: "sheet", "aria-hidden": "true" });
  const scratch = make("canvas", null);

  function render() {
    const { of, scale, layer, head, view } = app.state;
    const now = [app.changes, of, scale, app.dark, order.value].join();
    if (now !== drawn) build();
    drawn = now;
    shown.places.forEach((place, n) => {
      const [inLayer, inHead] = [place.layer === layer, place.head === head];
      buttons[n].setAttribute("aria-pressed", String(inLayer && (inHead || view !== "head")));
      buttons[n].tabIndex = inLayer && inHead ? 0 : -1;
      const off = app.switches?.off(place.layer, place.head);
      switches[n]?.setAttribute("aria-checked", String(!off));
    });
  }

  function build() {
    const places = sorted(app, order.value);
    const across = order.value ? 0 : lead(app).heads;
    grid.style.setProperty("--across", String(across || Math.min(6, places.length)));
    const small = places.map(({ layer, head }) => smaller(app, layer, head));
    const { scale: mode } = app.state;
    const limit = Math.max(...small.map((matrix) => new Scale(matrix, "fixed", app.dark).limit));
    const scales = small.map((matrix) => new Scale(matrix, mode, app.dark, limit));
    const made = JSON.stringify([order.value, places]);
    if (made !== shape) {
      buttons = places.map((place) => thumbnail(app, place, order.value));
      switches = app.switches ? places.map(switchOf) : [];
      const tiles = buttons.map((button, n) =>
        make("div", { class: "head" }, button, ...switches.slice(n, n + 1))
      );
      grid.replaceChildren(sheet, ...tiles);
      frames = null;
    }
    shape = made;
    shown = { scales, places };
    paint();
    showLegend(part("heads-legend"), scales[0], app.digits);
    const what = app.state.of === "diff" ? "differences of weights" : "weights";
    const size = pixelSize(lead(app));
    part("heads-scale").textContent = size > 1
      ? `${what}; a pixel is the largest of ${size} × ${size}`
      : what;
  }

  /** Draws the pictures at the places of their frames. */
  function paint() {
    if (!visible(grid)) return;
    frames ??= buttons.map(({ firstElementChild }) => {
      const { offsetLeft, offsetTop, offsetWidth } = /** @type {HTMLElement} */ (firstElementChild);
      return { x: offsetLeft, y: offsetTop, side: offsetWidth };
    });
    const ratio = globalThis.devicePixelRatio || 1;
    const width = Math.max(...frames.map(({ x, side }) => x + side));
    const height = Math.max(...frames.map(({ y, side }) => y + side));
    if (sheet.width !== Math.round(width * ratio) || sheet.height !== Math.round(height * ratio)) {
      sheet.width = Math.round(width * ratio);
      sheet.height = Math.round(height * ratio);
      sheet.style.width = `${width}px`;
      sheet.style.height = `${height}px`;
    }
    const pen = context(sheet);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.imageSmoothingEnabled = false;
    frames.forEach(({ x, y, side }, n) => {
      pen.globalAlpha = shown.places[n].off ? 0.3 : 1;
      pen.drawImage(shown.scales[n].paint(scratch), x, y, side, side);
    });
  }
  const place = () => {
    frames = null;
    paint();
  };
  new ResizeObserver(place).observe(grid);
  addEventListener("contentvisibilityautostatechange", place, true);

  grid.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    if (!button) return;
    const place = shown.places[switches.indexOf(button)];
    if (place) app.switches?.toggle(place.layer, place.head);
    else choose(buttons.indexOf(button));
  });
  grid.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (event.target));
    const across = Number(grid.style.getPropertyValue("--across"));
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    const next = at + (steps[/** @type {keyof steps} */ (event.key)] ?? 0);
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    if (!buttons[next]) return;
    choose(next);
    buttons[next].focus();
  });
  /** @param {number} n of the button */
  function choose(n) {
    const { layer, head } = shown.places[n];
    app.change({ layer, head, view: "head", cell: null });
  }
  return { host: grid, render };
}

/**
 * The heads that can be chosen, in order, with the measure's value.
 * @param {App} app
 * @param {string} order a measure's number, or nothing
 * @returns {Place[]}
 */
function sorted(app, order) {
  const valueOf = (/** @type {number} */ layer, /** @type {number} */ head) =>
    order ? measureOf(app, order).values[layer][head] : null;
  return placesOf(app, valueOf).map((place) => {
    return { ...place, off: lead(app).replacement(place.layer, place.head) !== undefined };
  });
}

/** @param {App} app @param {string} order a measure's number */
function measureOf(app, order) {
  return lead(app).measures[Number(order)];
}

/** A head's switch, beside its picture. @param {Place} place */
function switchOf({ layer, head }) {
  const label = `L${layer} H${head} is on: click to switch it`;
  return make("button", {
    type: "button",
    role: "switch",
    class: "switch",
    "aria-label": label,
    title: label,
    "data-switch": `${layer}.${head}`,
  });
}

/** @param {App} app @param {Place} place @param {string} order */
function thumbnail(app, { layer, head, value, off }, order) {
  const name = `L${layer} H${head}`;
  const kind = lead(app).payload.kinds?.[layer]?.[head] ?? "";
  const button = make(
    "button",
    {
      type: "button",
      class: off ? "off" : "",
      "data-layer": layer,
      "data-head": head,
      "aria-label": [name, kind, off && "switched off"].filter(Boolean).join(", "),
    },
    make("span", { class: "picture" }),
    make("span", { class: "name" }, name, ...kind ? [make("small", null, kind)] : []),
  );
  if (order) {
    const measure = measureOf(app, order);
    const uniform = uniformOf(measure, layer, head);
    const text = short(value, 3);
    const even = uniform === null ? "" : short(uniform, 2);
    button.append(
      make("span", { class: "value" }, text),
      make("span", { class: "even" }, even && `/ ${even}`),
    );
    button.setAttribute(
      "aria-label",
      `${name}, ${measure.title} ${text}${even && `, uniform ${even}`}`,
    );
  }
  return button;
}

/** How many rows and columns a pixel of a small picture covers. @param {Subject} subject */
function pixelSize({ length }) {
  return Math.ceil(length / MOST);
}

/**
 * A head's weights, the largest of the cells that a pixel covers.
 * @param {App} app
 * @param {number} layer
 * @param {number} head
 * @returns {Matrix}
 */
function smaller(app, layer, head) {
  const { of } = app.state;
  const [a, b] = app.subjects;
  const subject = of === "diff" ? a : lead(app);
  const weights = subject.weights(layer, head);
  const later = of === "diff" ? b.weights(layer, head) : null;
  const step = pixelSize(subject);
  const side = Math.ceil(subject.length / step);
  const values = new Float64Array(side * side);
  for (let i = 0, n = 0; i < subject.length; i++) {
    const row = Math.floor(i / step) * side;
    for (let j = 0; j <= i; j++, n++) {
      const value = later ? later[n] - weights[n] : weights[n];
      const at = row + Math.floor(j / step);
      if (Math.abs(value) > Math.abs(values[at])) values[at] = value;
    }
  }
  const kind = of === "diff" ? "difference" : "share";
  return { rows: side, columns: side, values, causal: true, keys: true, kind };
}
