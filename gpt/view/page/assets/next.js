// @ts-check
// The next character: the model's prediction as bars, and the logit lens at every depth.

import { short } from "./numbers.js";
import { bar, make, named, part, positionOf } from "./parts.js";

/** @typedef {import("./parts.js").App} App */
/** @typedef {import("./data.js").Subject} Subject */

/** @param {App} app */
export function makeNext(app) {
  const host = part("next");
  let drawn = "";
  function render() {
    const { labels, codes } = app.data;
    const position = positionOf(app);
    const now = `${position} ${app.state.of}`;
    if (now === drawn) return;
    drawn = now;
    const name = part("next-of");
    name.textContent = `after ${named(app, position)}` +
      (position + 1 < labels.length ? `; the text goes on with '${labels[position + 1]}'` : "");
    host.replaceChildren(
      ...shownSubjects(app).map((subject) => {
        const title = app.subjects.length > 1 ? [make("h3", null, subject.name)] : [];
        const guesses = subject.guesses(subject.layers, position);
        const rest = 1 - guesses.reduce((sum, { probability }) => sum + probability, 0);
        const items = guesses.map(({ label, code, probability }) =>
          row(label, probability, code === codes[position + 1], app.digits)
        );
        if (rest > 1e-6) items.push(row("rest", rest, false, app.digits));
        return make("div", null, ...title, make("ol", { class: "guesses" }, ...items));
      }),
    );
  }
  return { render };
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

/** @param {App} app @returns {Subject[]} */
export function shownSubjects(app) {
  const [a, b] = app.subjects;
  return { a: [a], b: [b], diff: [a, b], both: [a, b] }[app.state.of];
}

/**
 * A table of depths × positions, each cell the likeliest next character there.
 * @param {App} app
 */
export function makeLens(app) {
  const host = part("lens");
  let drawn = "";
  /** @type {HTMLElement[]} */
  let marked = [];
  host.addEventListener("click", (event) => {
    const cell = /** @type {Element} */ (event.target).closest("td");
    if (cell) app.change({ pins: [Number(cell.dataset.position)] });
  });

  function render() {
    const now = `${app.state.of} ${app.dark}`;
    if (now !== drawn) {
      host.replaceChildren(...shownSubjects(app).map((subject) => depthTable(app, subject)));
    }
    drawn = now;
    const position = positionOf(app);
    marked.forEach((cell) => cell.classList.remove("here"));
    marked = Array.from(host.querySelectorAll(`[data-position="${position}"]`));
    marked.forEach((cell) => cell.classList.add("here"));
    // The table scrolls to the character, unless the mouse is over it.
    const [cell] = marked;
    const outside = cell.offsetLeft < host.scrollLeft + 90 ||
      cell.offsetLeft + cell.offsetWidth > host.scrollLeft + host.clientWidth;
    if (outside && !host.matches(":hover")) host.scrollLeft = cell.offsetLeft - 120;
  }
  return { render };
}

/** @param {App} app @param {Subject} subject */
function depthTable(app, subject) {
  const { labels, codes } = app.data;
  const head = make("tr", null, make("th", { scope: "col" }, "depth \\ after"));
  labels.forEach((label, position) => {
    head.append(make("th", { scope: "col", "data-position": position, title: position }, label));
  });
  const body = make("tbody", null);
  for (let depth = subject.layers; depth >= 0; depth--) {
    const name = depth ? `layer ${depth - 1}` : "embedding";
    const line = make("tr", null, make("th", { scope: "row" }, name));
    for (let position = 0; position < labels.length; position++) {
      const [{ label, code, probability }] = subject.guesses(depth, position, 1);
      const right = code === codes[position + 1];
      const cell = make("td", {
        class: right ? "right" : "",
        "data-depth": depth,
        "data-position": position,
      }, label);
      cell.style.setProperty("--share", `${Math.round(probability * 100)}%`);
      line.append(cell);
    }
    body.append(line);
  }
  const title = app.subjects.length > 1 ? [make("caption", null, subject.name)] : [];
  body.addEventListener("pointerover", (event) => {
    const cell = /** @type {Element} */ (event.target).closest("td");
    if (!cell) return;
    const { depth, position } = cell.dataset;
    const guesses = subject.guesses(Number(depth), Number(position), 5);
    cell.title = guesses.map(({ label, probability }) =>
      `'${label}' ${short(probability, app.digits)}`
    ).join(" · ");
  });
  return make("table", null, ...title, make("thead", null, head), body);
}
