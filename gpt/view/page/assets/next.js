// @ts-check
// The next character as bars: what the model expects; of a model with counting, what the GPT, counting
// and both together expect, side by side, and how the gate mixed them.

import { decimals, short } from "./numbers.js";
import {
  bar,
  count,
  lead,
  make,
  makeColumn,
  makeRow,
  makeTable,
  named,
  part,
  positionOf,
  shownSubjects,
} from "./parts.js";

/** @typedef {import("./parts.js").App} App */
/** @typedef {import("./data.js").Subject} Subject */
/** @typedef {import("./guesses.js").Guess} Guess */
/** @typedef {import("./guesses.js").Experts} Experts */

const EXPERTS = /** @type {const} */ (["gpt", "counting", "both"]);
const LEAST = 1e-6; // a smaller rest is rounding

/** @param {App} app */
export function makeNext(app) {
  const host = part("next");
  let drawn = "";
  function render() {
    const subject = lead(app);
    const position = positionOf(app);
    const now = `${app.changes} ${position} ${app.state.of}`;
    if (now === drawn) return;
    drawn = now;
    const following = subject.labels[position + 1];
    part("next-of").textContent = `after ${named(subject, position)}` +
      (following === undefined ? "" : `; the text goes on with '${following}'`);
    host.replaceChildren(
      ...shownSubjects(app).map((subject) => {
        const position = positionOf(app, subject);
        const title = app.subjects.length > 1 ? [make("h3", null, subject.name)] : [];
        const { experts, layers } = subject;
        const shown = experts
          ? sideBySide(subject, experts, position)
          : [guessList(app, subject, subject.lens?.at(layers, position, Infinity) ?? [], position)];
        return make("div", null, ...title, ...shown);
      }),
    );
  }
  return { host, render };
}

/** @param {App} app @param {Subject} subject @param {Guess[]} guesses @param {number} position */
function guessList({ digits }, { characters }, guesses, position) {
  const rest = 1 - guesses.reduce((sum, { probability }) => sum + probability, 0);
  const items = guesses.map(({ label, character, probability }) =>
    row(label, probability, character === characters[position + 1], digits)
  );
  if (rest > LEAST) items.push(row("rest", rest, false, digits));
  return make("ol", { class: "guesses" }, ...items);
}

/** @param {string} label @param {number} share @param {boolean} right @param {number} digits */
function row(label, share, right, digits) {
  return make(
    "li",
    { class: right ? "right" : "", "data-value": share },
    make("span", { class: label === "rest" ? "term rest" : "term" }, label),
    bar(share),
    make("span", { class: "number" }, short(share, digits)),
  );
}

/**
 * A table of characters × (GPT, counting, together), and how the three go together.
 * @param {Subject} subject
 * @param {Experts} experts
 * @param {number} position
 */
function sideBySide({ characters, labels }, experts, position) {
  const { weights, length, total, kinds, pairs } = experts.used(position);
  const [gpt, counting] = weights.map((weight) => decimals(weight, 2));
  const columns = [
    makeColumn(make("span", { class: "unseen" }, "character")),
    makeColumn("GPT", `weight ${gpt}`),
    makeColumn("counting", `weight ${counting}`),
    makeColumn("together", "their product"),
  ];
  const line = (
    /** @type {string} */ label,
    /** @type {readonly number[]} */ shares,
    /** @type {string} */ kind,
  ) =>
    makeRow(
      { class: kind },
      make("span", { class: "term" }, label),
      ...shares.map((share, n) => {
        const number = make("span", { class: "number" }, decimals(share, 3));
        const inside = make("div", null, bar(share), number);
        return make("td", { class: EXPERTS[n], "data-value": share }, inside);
      }),
    );
  const candidates = experts.at(position);
  const lines = candidates.map((candidate) => {
    const right = candidate.character === characters[position + 1];
    return line(candidate.label, EXPERTS.map((name) => candidate[name]), right ? "right" : "");
  });
  const rest = EXPERTS.map((name) =>
    Math.max(0, 1 - candidates.reduce((sum, each) => sum + each[name], 0))
  );
  if (rest.some((share) => share > LEAST)) lines.push(line("rest", rest, "rest"));
  const table = makeTable("experts", columns, lines);
  const history = labels.slice(position + 1 - length, position + 1).join("");
  const formula = make(
    "p",
    { class: "hint mixed" },
    "together = GPT",
    make("sup", null, gpt),
    " × counting",
    make("sup", null, counting),
    ", scaled to sum 1; the gate gives the two weights at each position.",
  );
  const used = make("p", { class: "hint used" }, "Counting used ");
  if (length) {
    const pair = `between ${count(total, "different pair")} of characters (one before, one after)`;
    used.append(
      `the last ${length > 1 ? `${length} characters` : "character"} `,
      make("span", { class: "history" }, history),
      `, seen ${pairs ? pair : count(total, "time")}; `,
      kinds > 1 ? `${kinds} different characters followed.` : "always the same character followed.",
    );
  } else used.append("no character before it: only how common each character is.");
  return [table, formula, used];
}
