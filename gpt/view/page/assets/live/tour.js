// @ts-check
// A tour: captioned stops, from a short text in the file. `## title` begins a stop; `see: head=induction`
// has settings as in the page's address, before the first stop for all of them; other lines are the
// caption. A line with `?` asks a question; the `see:` after it, and the lines from `!` on, follow when
// the learner has guessed. Knows no elements of the page.

import { headsOf, nameOf } from "./changes.js";

/** @import { Head } from "./changes.js" */
/** @import { Session } from "./session.js" */
/** see: settings, as in the address. then, answer: what follows when the learner has guessed.
 * @typedef {Record<"title" | "see" | "text" | "question" | "then" | "answer", string[]>} Stop */

const LINE = /^(##|#|see:|\?|!)? ?(.*)$/;

/** The stops of a tour's text. @param {string} text */
export function stopsOf(text) {
  const begin = (/** @type {string} */ title) => {
    return { title: [title], see: [""], text: [""], question: [""], then: [""], answer: [""] };
  };
  const all = begin("");
  /** @type {Stop[]} */
  const stops = [];
  let stop = all;
  /** @type {"text" | "question" | "answer"} */
  let said = "text";
  for (const line of text.split("\n")) {
    const [, mark, rest] = LINE.exec(line) ?? [];
    if (mark === "##") {
      stops.push(stop = begin(rest));
      said = "text";
    } else if (mark === "see:") stop[said === "text" ? "see" : "then"].push(rest);
    else if (mark !== "#") {
      if (mark) said = mark === "?" ? "question" : "answer";
      stop[said].push(rest);
    }
  }
  for (const { see } of stops) see.unshift(...all.see);
  return stops;
}

/** The settings of lines; of two with one name, the second. @param {string[]} lines */
export function settingsIn(lines) {
  const said = lines.filter(Boolean).join("&").replaceAll("+", "%2B");
  return Object.fromEntries(new URLSearchParams(said));
}

/**
 * The settings for this model: its heads instead of kinds of heads.
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
  const off = list(said.off).flatMap(named);
  const found = { ...said, layer, head, off: off.join(), rows: rows.join() };
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
