// @ts-check
// The next character as one chart: a bar for each likely character; where two are compared, the change;
// where counting predicts beside the GPT, a mark for each of both. Below it, what belongs to the bars.

import { decimals, short, signed } from "./numbers.js";
import { count, lead, make, makeRow, named, part, positionOf, say, segments } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Subject } from "./data.js" */
/** @import { Experts } from "./guesses.js" */
/** @import { State } from "./state.js" */
/** A next character. out: the filter that removes it, or nothing. gpt, counting: what each of both
 * expects, where both predict together.
 * @typedef {{character: string, label: string, share: number, out: string, gpt?: number,
 *   counting?: number}} Next */
/** The likeliest characters at a position, the share of any (null: not known), and what else is to say.
 * @typedef {{first: Next[], shareOf: (character: string) => number | null, said: string}} Expected */

export const MOST_BARS = 10;
const LEAST = 1e-6; // a smaller rest is rounding
const MARKS = /** @type {const} */ (["before", "gpt", "counting"]);

/** A bar of the chart, whose elements stay while its numbers change. @param {(item: Element) => void} choose */
function makeBar(choose) {
  const term = make("button", { type: "button", class: "term" });
  const fill = make("span", { class: "fill" });
  const marks = MARKS.map((name) => make("span", { class: `mark ${name}` }));
  const track = make("span", { class: "bar", "aria-hidden": "true" }, fill, ...marks);
  const [number, change] = ["number", "change"].map((name) => make("span", { class: name }));
  const item = make("li", null, term, track, number, change);
  term.addEventListener("click", () => choose(item));
  return { item, term, fill, marks, number, change };
}

/** @param {App} app */
export function makeNext(app) {
  const host = part("next");
  /** @type {(Next | null)[]} */
  let shown = [];
  const bars = Array.from({ length: MOST_BARS + 1 }, (_, n) =>
    makeBar(() => {
      const next = shown[n]?.character ?? "";
      app.change({ next: app.state.next === next ? "" : next });
    }));
  const below = make("div", { class: "below" });
  host.replaceChildren(
    make("ol", { class: "guesses" }, ...bars.map(({ item }) => item)),
    below,
  );
  const counts = app.subjects.some(({ experts }) => experts);
  const showOnly = segments(
    part("only"),
    counts
      ? [
        ["", "together", "The GPT and counting"],
        ["gpt", "GPT", "The GPT alone"],
        ["counting", "counting", "Counting alone"],
      ]
      : [],
    (only) => app.change({ only: /** @type {State["only"]} */ (only) }),
  );

  function render() {
    const subject = lead(app);
    const position = positionOf(app);
    const { only, next } = app.state;
    showOnly(only);
    const found = expectedAt(app, subject, position);
    const other = app.subjects.find((each) => each !== subject);
    const before = other && expectedAt(app, other, positionOf(app, other));
    const follows = subject.labels[position + 1];
    say(
      part("next-of"),
      `after ${named(subject, position)}` +
        (follows === undefined ? "" : `; the text goes on with '${follows}'`),
    );
    const lines = before ? both(found, before) : [...found.first];
    const rest = 1 - lines.reduce((sum, { share, out }) => out ? sum : sum + share, 0);
    if (rest > LEAST) lines.push({ character: "", label: "rest", share: rest, out: "" });
    shown = lines;
    bars.forEach(({ item, term, fill, marks, number, change }, n) => {
      const line = lines[n];
      item.hidden = !line;
      if (!line) return;
      const { character, label, share, out } = line;
      const isRest = character === "";
      item.className = out ? "out" : isRest ? "rest" : label === follows ? "right" : "";
      item.title = out && `removed by ${out}`;
      item.dataset.value = String(share);
      say(term, label);
      term.disabled = isRest;
      term.setAttribute("aria-pressed", String(!isRest && character === next));
      fill.style.width = `${100 * Math.min(1, share)}%`;
      const old = isRest ? null : before?.shareOf(character) ?? null;
      const places = { before: old, gpt: line.gpt ?? null, counting: line.counting ?? null };
      MARKS.forEach((name, m) => {
        const place = name === "before" || !other ? places[name] : null;
        marks[m].hidden = place === null;
        item.dataset[name] = String(place ?? "");
        marks[m].style.left = `${100 * Math.min(1, place ?? 0)}%`;
      });
      say(number, out || short(share, app.digits));
      say(change, old === null ? "" : signed(share - old, 3));
    });
    host.classList.toggle("compared", Boolean(before));
    below.replaceChildren(
      ...found.said ? [make("p", { class: "hint", id: "draw-said" }, found.said)] : [],
      ...effect(app),
      ...subject.experts && !other ? mixed(subject, subject.experts, position) : [],
    );
  }
  return { host, render };
}

/** The likeliest characters of two: what was likely before stays in the chart.
 * @param {Expected} now @param {Expected} before @returns {Next[]} */
function both({ first, shareOf }, before) {
  const most = (/** @type {Next} */ { character, share }) =>
    Math.max(share, before.shareOf(character) ?? 0);
  const gone = before.first.filter(({ character }) =>
    shareOf(character) !== null && first.every((each) => each.character !== character)
  );
  const all = [
    ...first,
    ...gone.map((each) => ({
      ...{ character: each.character, label: each.label, out: "" },
      share: shareOf(each.character) ?? 0,
    })),
  ];
  return all.sort((a, b) => most(b) - most(a)).slice(0, MOST_BARS);
}

/**
 * What is expected at a position: on a page that computes also with temperature and filters.
 * @param {App} app
 * @param {Subject} subject
 * @param {number} position
 * @returns {Expected}
 */
export function expectedAt(app, subject, position) {
  const drawn = app.drawing?.(subject, position);
  if (drawn) return drawn;
  const { experts, lens, layers } = subject;
  const only = app.state.only || "both";
  /** @type {Next[]} */
  const first = experts
    ? experts.at(position).map(({ gpt, counting, [only]: share, ...each }) => {
      return { ...each, share, out: "", ...only === "both" ? { gpt, counting } : {} };
    }).sort((a, b) => b.share - a.share)
    : lens.at(layers, position, MOST_BARS).map(({ probability, ...each }) => {
      return { ...each, share: probability, out: "" };
    });
  const said = app.drawing ? "Temperature and filters apply at the end of the text." : "";
  const shareOf = (/** @type {string} */ character) =>
    first.find((each) => each.character === character)?.share ?? null;
  return { first, shareOf, said };
}

/** The losses of two that are compared. @param {App} app @returns {Element[]} */
function effect(app) {
  if (app.subjects.length < 2) return [];
  const [before, after] = app.subjects;
  const column = (/** @type {(string | Node)[]} */ ...inside) =>
    make("th", { scope: "col" }, ...inside);
  const columns = [
    column(make("span", { class: "unseen" }, "what")),
    column("A", make("small", null, before.name)),
    column("B", make("small", null, after.name)),
    column("B − A"),
  ];
  const legend = make(
    "p",
    { class: "hint", id: "next-said" },
    make("span", { class: "mark" }),
    " A; the number at the end is B − A. The loss does not contain this next character.",
  );
  const head = make("thead", null, make("tr", null, ...columns));
  return [
    legend,
    make("table", { class: "effect" }, head, make("tbody", null, lossRow(before, after))),
  ];
}

/** The mean surprisals of both, and their difference if the text is the same.
 * @param {Subject} before @param {Subject} after */
function lossRow(before, after) {
  const same = before.labels.join() === after.labels.join();
  const difference = after.loss - before.loss;
  const change = same && !isNaN(difference) ? `${signed(difference, 3)} nats/char` : "";
  const cells = [before, after].map(({ loss }) => isNaN(loss) ? "–" : decimals(loss, 3));
  const tds = [...cells, change].map((text) => make("td", null, text));
  return makeRow({ id: "loss" }, "loss of the text", ...tds);
}

/**
 * How the GPT and counting go together at a position.
 * @param {Subject} subject
 * @param {Experts} experts
 * @param {number} position
 */
function mixed({ labels }, experts, position) {
  const { weights, length, total, kinds, pairs } = experts.used(position);
  const [gpt, counting] = weights.map((weight) => decimals(weight, 2));
  const history = labels.slice(position + 1 - length, position + 1).join("");
  const formula = make(
    "p",
    { class: "hint mixed" },
    make("span", { class: "mark gpt" }),
    " GPT ",
    make("span", { class: "mark counting" }),
    " counting; together = GPT",
    make("sup", null, gpt),
    " × counting",
    make("sup", null, counting),
    ", scaled to sum 1; the gate gives the two weights at each position.",
  );
  const used = make("p", { class: "hint used" }, "Counting used ");
  if (length) {
    const kind = total === 1 ? "pair" : "different pair";
    const pair = `between ${count(total, kind)} of characters (one before, one after)`;
    used.append(
      `the last ${length > 1 ? `${length} characters` : "character"} `,
      make("span", { class: "history" }, history),
      `, seen ${pairs ? pair : count(total, "time")}; `,
      kinds > 1 ? `${kinds} different characters followed.` : "always the same character followed.",
    );
  } else used.append("no character before it: only how common each character is.");
  return [formula, used];
}
