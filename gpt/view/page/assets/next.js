// @ts-check
// The next character as one chart: a bar for each likely character; where two are compared, a mark and
// the change. Below it, what belongs to the bars.

import { decimals, short, signed } from "./numbers.js";
import { lead, make, makeRow, named, part, positionOf, say } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Subject } from "./data.js" */
/** A next character. out: the filter that removes it, or nothing.
 * @typedef {{character: string, label: string, share: number, out: string}} Next */
/** The likeliest characters at a position, the share of any (null: not known), and what else is to say.
 * @typedef {{first: Next[], shareOf: (character: string) => number | null, said: string}} Expected */

export const MOST_BARS = 10;
const LEAST = 1e-6; // a smaller rest is rounding

/** A bar of the chart, whose elements stay while its numbers change. @param {(item: Element) => void} choose */
function makeBar(choose) {
  const term = make("button", { type: "button", class: "term" });
  const fill = make("span", { class: "fill" });
  const mark = make("span", { class: "mark" });
  const track = make("span", { class: "bar", "aria-hidden": "true" }, fill, mark);
  const [number, change] = ["number", "change"].map((name) => make("span", { class: name }));
  const item = make("li", null, term, track, number, change);
  term.addEventListener("click", () => choose(item));
  return { item, term, fill, mark, number, change };
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

  function render() {
    const subject = lead(app);
    const position = positionOf(app);
    const { next } = app.state;
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
    bars.forEach(({ item, term, fill, mark, number, change }, n) => {
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
      mark.hidden = old === null;
      item.dataset.before = String(old ?? "");
      mark.style.left = `${100 * Math.min(1, old ?? 0)}%`;
      say(number, out || short(share, app.digits));
      say(change, old === null ? "" : signed(share - old, 3));
    });
    host.classList.toggle("compared", Boolean(before));
    below.replaceChildren(
      ...found.said ? [make("p", { class: "hint", id: "draw-said" }, found.said)] : [],
      ...effect(app),
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
  const { lens, layers } = subject;
  const first = lens.at(layers, position, MOST_BARS).map(({ probability, ...each }) => {
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
