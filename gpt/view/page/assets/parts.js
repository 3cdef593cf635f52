// @ts-check
// Shared by the page's parts: functions that create elements, and the object with the common state.
// Text is inserted as text, never as markup.

import { css } from "./colours.js";
import { short } from "./numbers.js";

/** @import { Payload } from "./payload.js" */
/** @import { Matrix, Subject } from "./data.js" */
/** @import { State } from "./state.js" */
/** @import { Scale } from "./colours.js" */
/** subject: the text of the rows and columns. @typedef {{title: string, subject: Subject, matrix: Matrix | string}} Panel */
/** A head, with its value of the measure that orders them.
 * @typedef {{layer: number, head: number, value: number | null}} HeadPlace */
/** Something that the page shows, in one of its cards; late: whether it waits for a pause between two keys.
 * @typedef {{host: Element, render: () => void, late?: boolean}} Part */
/**
 * @typedef {object} App
 * @property {Payload} data
 * @property {Subject[]} subjects one, or two that are compared
 * @property {number} changes how often the subjects have changed
 * @property {State} state
 * @property {Panel[]} panels what the matrix shows: two side by side, or one
 * @property {number} limit of the colour scale that the panels share
 * @property {Matrix | string} weights of the same, for the text
 * @property {[number, number] | null} pointed the matrix's cell under the mouse or the keyboard
 * @property {number | null} reading the text's character under the mouse or the keyboard
 * @property {boolean} dark
 * @property {number} type how much larger than usual the letters are
 * @property {((subject: Subject, position: number) => import("./next.js").Expected | null)} [drawing]
 *   of a page that computes: what the next character is drawn from, where it knows all of it
 * @property {{toggle: (layer: number, head: number) => void,
 *   off: (layer: number, head: number) => boolean}} [switches] of heads, on a page that computes
 * @property {(name: string) => string} colour of the theme
 * @property {number} digits that the numbers carry
 * @property {(patch: Partial<State>) => void} change
 * @property {(position: number) => void} togglePin
 * @property {(cell: [number, number] | null) => void} point
 * @property {(position: number | null) => void} read
 * @property {(hash: string) => State} stateOf an address, as the page would open it
 * @property {() => void} [rendered] of a page that computes: asks for what the state needs
 */

const THOUSANDS = new Intl.NumberFormat("en");
export const MONO = '"DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace';

/**
 * The page's element of this id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function part(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * A new element. `attributes` may be null; children are elements or texts.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number | boolean> | null} attributes
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/**
 * A row of a table: its heading and its cells.
 * @param {Record<string, string | number> | null} attributes
 * @param {string | Node} heading
 * @param {...Node} cells
 */
export function makeRow(attributes, heading, ...cells) {
  return make("tr", attributes, make("th", { scope: "row" }, heading), ...cells);
}

/**
 * A row of buttons of which one is chosen.
 * @param {HTMLElement} host
 * @param {readonly (readonly [string, string, string])[]} choices value, text, explanation
 * @param {(value: string) => void} choose
 * @returns {(chosen: string, disabled?: (value: string) => boolean) => void} shows the choice
 */
export function segments(host, choices, choose) {
  const buttons = choices.map(([value, text, explained]) => {
    const button = make("button", { type: "button", title: explained }, text);
    button.addEventListener("click", () => choose(value));
    return button;
  });
  host.replaceChildren(...buttons);
  return (chosen, disabled = () => false) => {
    buttons.forEach((button, n) => {
      button.setAttribute("aria-pressed", String(choices[n][0] === chosen));
      button.disabled = disabled(choices[n][0]);
    });
  };
}

/**
 * Follows the mouse and the keyboard over characters, one of which can have the focus.
 * @param {HTMLElement} host
 * @param {() => HTMLElement[]} characters with their positions
 * @param {(position: number | null) => void} point a character is pointed at, or none
 * @param {(position: number) => void} pick a character is clicked
 */
export function followCharacters(host, characters, point, pick) {
  /** @param {Event} event */
  const positionAt = (event) => {
    const character = /** @type {Element} */ (event.target).closest?.(".character");
    return character ? Number(/** @type {HTMLElement} */ (character).dataset.position) : null;
  };
  host.addEventListener("pointerover", (event) => point(positionAt(event)));
  host.addEventListener("pointerleave", () => point(null));
  host.addEventListener("focusin", (event) => {
    if (host.querySelector(":focus-visible")) point(positionAt(event));
  });
  host.addEventListener("focusout", () => point(null));
  host.addEventListener("click", (event) => {
    const position = positionAt(event);
    if (position !== null) pick(position);
  });
  host.addEventListener("keydown", (event) => {
    const position = positionAt(event);
    if (position === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const along = host.ariaOrientation === "vertical"
      ? { ArrowUp: -1, ArrowDown: 1 }
      : { ArrowLeft: -1, ArrowRight: 1 };
    const step = along[/** @type {keyof typeof along} */ (event.key)];
    if (event.key === "Enter" || event.key === " ") pick(position);
    else if (step) {
      const all = characters();
      const next = all[position + step] ?? all[position];
      all[position].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else return;
    event.preventDefault();
  });
}

/**
 * Shows the colours of a scale as a strip, with numbers.
 * @param {HTMLElement} host
 * @param {Scale} scale
 * @param {number} digits
 */
export function showLegend(host, scale, digits) {
  const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((step) => css(scale.rgb(step)));
  const texts = scaleTexts(scale, digits);
  const now = [...stops, ...texts].join();
  if (host.dataset.shows === now) return;
  host.dataset.shows = now;
  const strip = make("span", { class: "strip", "aria-hidden": "true" });
  strip.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  host.replaceChildren(strip, ...texts.map((text) => make("span", null, text)));
}

/**
 * The values of the lowest, the middle and the highest colour of a scale.
 * @param {Scale} scale
 * @param {number} digits
 */
export function scaleTexts(scale, digits) {
  if (scale.mode === "row" && scale.matrix.rows > 1) {
    return scale.signed ? ["−largest", "0", "row's largest"] : ["0", "", "row's largest"];
  }
  const full = short(scale.largest[0], digits);
  if (scale.signed) return [`−${full}`, "0", full];
  return ["0", short(scale.largest[0] * (scale.mode === "root" ? 0.25 : 0.5), 2), full];
}

/** A position of a text with its character. @param {Subject} subject @param {number} position */
export function named(subject, position) {
  return `${position} '${subject.labels[position]}'`;
}

/** The subject whose text the page shows: of two, the second unless the state selects the first.
 * @param {App} app */
export function lead({ subjects, state }) {
  return state.of === "a" ? subjects[0] : subjects[subjects.length - 1];
}

/**
 * The position that a subject's predictions are of: read, pointed at, pinned, or the last. A shorter
 * text than the shown one may not have it: then its last.
 * @param {App} app
 * @param {Subject} [subject]
 */
export function positionOf(app, subject = lead(app)) {
  const { state: { pins, cell }, pointed, reading } = app;
  const position = reading ?? pointed?.[0] ?? pins.at(-1) ?? cell?.[0] ?? Infinity;
  return Math.min(position, subject.length - 1);
}

/** The position whose next character is taken apart: pinned, or the last. @param {App} app */
export function keptPosition(app) {
  const { pins, cell } = app.state;
  return Math.min(pins.at(-1) ?? cell?.[0] ?? Infinity, lead(app).length - 1);
}

/** @param {HTMLCanvasElement} canvas */
export function context(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/**
 * The heads that can be chosen, those with the largest values first.
 * @param {App} app
 * @param {(layer: number, head: number) => number | null} valueOf
 */
export function placesOf({ subjects: [{ layers, heads }] }, valueOf) {
  /** @type {HeadPlace[]} */
  const places = [];
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      places.push({ layer, head, value: valueOf(layer, head) });
    }
  }
  const size = (/** @type {HeadPlace} */ { value }) => value ?? -Number.MAX_VALUE;
  return places.sort((x, y) => size(y) - size(x));
}

/** The subjects that the state selects. @param {App} app @returns {Subject[]} */
export function shownSubjects(app) {
  const [a, b] = app.subjects;
  return { a: [a], b: [b], diff: [a, b], both: [a, b] }[app.state.of];
}

/** "1 layer", "1,200 layers" @param {number} n @param {string} thing */
export function count(n, thing) {
  return `${THOUSANDS.format(n)} ${thing}${n === 1 ? "" : "s"}`;
}

/** Writes a text if it is another one. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
