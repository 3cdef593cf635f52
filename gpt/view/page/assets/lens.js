// @ts-check
// The logit lens: the likeliest next character at every depth and position; above it, of a model with
// counting, those of both together and of counting.

import { short } from "./numbers.js";
import { make, part, positionOf, shownSubjects } from "./parts.js";

/** @typedef {import("./parts.js").App} App */
/** @typedef {import("./data.js").Subject} Subject */
/** @typedef {import("./guesses.js").Guess} Guess */

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
    const now = `${app.changes} ${app.state.of} ${app.dark}`;
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
  const { labels, codes } = subject;
  const head = make("tr", null, make("th", { scope: "col" }, "depth \\ after"));
  labels.forEach((label, position) => {
    head.append(make("th", { scope: "col", "data-position": position, title: position }, label));
  });
  const body = make("tbody", null);
  const rows = rowsOf(subject);
  rows.forEach(({ name, guesses, last }, n) => {
    const line = make("tr", { class: last ? "last" : "" }, make("th", { scope: "row" }, name));
    for (let position = 0; position < labels.length; position++) {
      const [{ label, code, probability }] = guesses(position);
      const right = code === codes[position + 1];
      const cell = make("td", {
        class: right ? "right" : "",
        "data-row": n,
        "data-position": position,
      }, label);
      cell.style.setProperty("--share", `${Math.round(probability * 100)}%`);
      line.append(cell);
    }
    body.append(line);
  });
  const title = app.subjects.length > 1 ? [make("caption", null, subject.name)] : [];
  body.addEventListener("pointerover", (event) => {
    const cell = /** @type {Element} */ (event.target).closest("td");
    if (!cell) return;
    const guesses = rows[Number(cell.dataset.row)].guesses(Number(cell.dataset.position));
    cell.title = guesses.map(({ label, probability }) =>
      `'${label}' ${short(probability, app.digits)}`
    ).join(" · ");
  });
  return make("table", null, ...title, make("thead", null, head), body);
}

/**
 * The table's rows: names, and the likeliest characters of a position. last: of those that are no
 * depths of the GPT.
 * @param {Subject} subject
 * @returns {{name: string, guesses: (position: number) => Guess[], last: boolean}[]}
 */
function rowsOf({ experts, lens, layers }) {
  const depths = Array.from({ length: layers + 1 }, (_, n) => ({
    name: n < layers ? `layer ${layers - 1 - n}` : "embedding",
    guesses: (/** @type {number} */ position) => lens.at(layers - n, position, 5),
    last: false,
  }));
  if (!experts) return depths;
  const likeliest =
    (/** @type {"both" | "counting"} */ expert) => (/** @type {number} */ position) =>
      experts.likeliest(position, expert);
  return [
    { name: "together", guesses: likeliest("both"), last: false },
    { name: "counting", guesses: likeliest("counting"), last: true },
    ...depths,
  ];
}
