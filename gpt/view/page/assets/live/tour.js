// @ts-check
// A tour: captioned stops, from a short text that a file, a link and the page's editor share, and that
// gpt/view/page/tour.py checks. Knows no elements of the page.

import { headsOf, nameOf } from "./changes.js";

/** @import { Head } from "./changes.js" */
/** @import { Session } from "./session.js" */
/** see: settings, as in the address. then, answer: what follows when the learner has guessed.
 * @typedef {Record<"title" | "see" | "text" | "question" | "then" | "answer", string[]>} Stop */

const LINE = /^(##|#|see:|\?|!)? ?(.*)$/s;

/**
 * @param {string} text
 * @param {string[]} settings that it may have
 * @returns {{stops: Stop[], problem: string}} problem: what is wrong with the text, or nothing
 */
export function parseTour(text, settings) {
  const begin = (/** @type {string} */ title) => {
    return { title: [title], see: [""], text: [""], question: [""], then: [""], answer: [""] };
  };
  const all = begin(""); // what stands before the first stop: settings of every stop
  const stops = [];
  let [stop, problem] = [all, ""];
  /** @type {"text" | "question" | "answer"} */
  let said = "text";
  for (const [n, line] of text.split(/\r\n?|\n/).entries()) {
    const [, mark, rest] = LINE.exec(line) ?? [];
    if (mark === "##") {
      stops.push(stop = begin(rest));
      said = "text";
    } else if (mark === "see:") {
      const unknown = Object.keys(settingsIn([rest])).find((name) => !settings.includes(name));
      if (unknown !== undefined) problem ||= `line ${n + 1}: no setting '${unknown}'`;
      stop[said === "text" ? "see" : "then"].push(rest);
    } else if (mark !== "#") {
      if (mark) said = mark === "?" ? "question" : "answer";
      stop[said].push(rest);
    }
  }
  for (const each of stops) each.see.unshift(...all.see);
  if (!stops.length) {
    problem ||= "there is no stop: begin one with a line such as ## The first stop";
  }
  return { stops, problem };
}

/** The settings of lines; of two with one name, the second. @param {string[]} lines */
export function settingsIn(lines) {
  const said = lines.filter(Boolean).join("&").replaceAll("+", "%2B");
  return Object.fromEntries(new URLSearchParams(said));
}

/**
 * The settings for this model: its heads instead of kinds of heads, one of its steps.
 * @param {Record<string, string>} said
 * @param {Session} session
 */
export function settingsFor(said, session) {
  const { data } = session;
  const named = (/** @type {string} */ name) => headsNamed(name, data).map(nameOf);
  const list = (/** @type {string} */ text) => text ? text.split(",") : [];
  const rows = list(said.rows).flatMap((row) => {
    const [name, ...rest] = row.split(":");
    return named(name).map((each) => [each, ...rest].join(":"));
  });
  const [{ layer = said.layer, head = said.head } = {}] = headsNamed(said.head, data);
  const far = data.models.map(({ step }) => Math.abs(step - Number(said.step)));
  const step = said.step && data.models[far.indexOf(Math.min(...far))]?.step;
  const off = list(said.off).flatMap(named);
  const found = { ...said, layer, head, step, off: off.join(), rows: rows.join() };
  return Object.fromEntries(Object.entries(found).map(([name, value]) => [name, `${value ?? ""}`]));
}

/**
 * Heads by their name ("1.2") or their kind ("induction"): the strongest first; only that one if no head
 * is named after the kind.
 * @param {string} name
 * @param {import("./session.js").Own} data
 */
function headsNamed(name, data) {
  const { measures, kinds } = data;
  const values = measures.find((each) => each.name === name)?.values;
  const value = (/** @type {Head} */ { layer, head }) => values?.[layer][head] ?? 0;
  const every = headsOf(data).sort((a, b) => value(b) - value(a));
  const exact = every.filter((each) => nameOf(each) === name);
  const called = every.filter(({ layer, head }) => name && kinds?.[layer][head] === name);
  return [exact, called].find(({ length }) => length) ?? every.slice(0, values ? 1 : 0);
}
