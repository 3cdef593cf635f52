// @ts-check
// The state of the view as one object, stored in the address, so that links and "back" restore it.

import { AFTER, BEFORE, OF_FEED_FORWARD, STAGES } from "./data.js";

/** @import { Subject } from "./data.js" */
/**
 * @typedef {object} State
 * @property {"a" | "b" | "diff" | "both"} of
 * @property {"head" | "mean"} view
 * @property {number} layer
 * @property {number} head
 * @property {string} stage
 * @property {import("./colours.js").Mode} scale
 * @property {[number, number] | null} cell pinned row and column
 * @property {number[]} pins positions of the text
 * @property {string} next the next character whose logit is taken apart, or nothing: the likeliest
 * @property {string} against the one whose logit is taken away from that, or nothing
 * @property {Record<string, string>} more of a page that computes: its own settings, by name
 */

const CHOICES = {
  of: ["a", "b", "diff", "both"],
  view: ["head", "mean"],
  stage: [...BEFORE, ...STAGES, ...AFTER].map(([name]) => /** @type {string} */ (name)),
  scale: ["fixed", "root", "row"],
};

/** @param {State} state */
export function toHash({ more, ...state }) {
  const parts = Object.entries({ ...state, ...more }).map(([name, value]) => {
    const text = String(value ?? "");
    return text && `${name}=${Array.isArray(value) ? text : encodeURIComponent(text)}`;
  });
  return parts.filter(Boolean).join("&");
}

/**
 * A state from an address; missing and invalid values are those of the start.
 * @param {string} hash
 * @param {State} start
 * @param {Subject[]} subjects
 * @returns {State}
 */
export function fromHash(hash, start, subjects) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  /** @param {keyof CHOICES} name */
  const choice = (name) => {
    const value = said.get(name);
    return value !== null && CHOICES[name].includes(value) ? value : start[name];
  };
  /** @param {string} name */
  const numbers = (name) => {
    const value = said.get(name);
    return value !== null && /^\d{1,7}(,\d{1,7})*$/.test(value) ? value.split(",").map(Number) : [];
  };
  const [layer = start.layer] = numbers("layer");
  const [head = start.head] = numbers("head");
  const cell = numbers("cell");
  const state = /** @type {State} */ ({
    of: choice("of"),
    view: choice("view"),
    layer,
    head,
    stage: choice("stage"),
    scale: choice("scale"),
    cell: cell.length === 2 ? cell : null,
    pins: [...new Set(numbers("pins"))],
    next: said.get("next") ?? "",
    against: said.get("against") ?? "",
    more: Object.fromEntries(Object.keys(start.more).map((name) => [name, said.get(name) ?? ""])),
  });
  return settled(state, subjects);
}

/**
 * The state without contradictions: pins lie within the text, a pinned cell within the stage, the
 * layer, the head and the stage within the model; a difference needs texts of one length.
 * @param {State} state
 * @param {Subject[]} subjects
 * @returns {State}
 */
export function settled(state, subjects) {
  const [a, b] = subjects;
  let { of, cell } = state;
  const layer = Math.min(state.layer, a.layers - 1);
  const head = Math.min(state.head, a.heads - 1);
  if (!b) of = "a";
  else if (of === "diff" && a.length !== b.length) of = "both";
  const subject = of === "a" ? a : b;
  const lacks = subject.attentionOnly && OF_FEED_FORWARD.includes(state.stage);
  const stage = lacks ? "weights" : state.stage;
  const causal = stage === "weights" || stage === "masked";
  const outside = cell &&
    (cell[0] >= subject.length || cell[1] >= subject.columnsOf(stage, layer));
  if (cell && (outside || (causal && cell[1] > cell[0]))) cell = null;
  const pins = state.pins.filter((pin) => pin < subject.length);
  return { ...state, of, stage, cell, pins, layer, head };
}
