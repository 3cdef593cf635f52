// @ts-check
// The logit lens: the likeliest next character at every depth and position.

import { visible } from "./cards.js";
import { short } from "./numbers.js";
import { make, part, positionOf, shownSubjects } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Subject } from "./data.js" */
/** @import { Guess } from "./guesses.js" */

/**
 * A table of depths × positions, each cell the likeliest next character there.
 * @param {App} app
 */
export function makeLens(app) {
  const host = part("lens");
  let drawn = "";
  let scrolling = false;
  /** @type {HTMLElement[]} */
  let marked = [];
  /** @type {DepthTable[]} */
  const tables = [];
  host.addEventListener("click", (event) => {
    const cell = /** @type {Element} */ (event.target).closest("td");
    if (cell) app.change({ pins: [Number(cell.dataset.position)] });
  });

  function render() {
    const now = `${app.changes} ${app.state.of} ${app.dark}`;
    if (now !== drawn) {
      const subjects = shownSubjects(app);
      while (tables.length < subjects.length) tables.push(new DepthTable(app));
      subjects.forEach((subject, n) => tables[n].show(subject));
      const shown = tables.slice(0, subjects.length).map(({ box }) => box);
      if (host.childElementCount !== shown.length) host.replaceChildren(...shown);
    }
    drawn = now;
    const position = positionOf(app);
    marked.forEach((cell) => cell.classList.remove("here"));
    marked = Array.from(host.querySelectorAll(`[data-position="${position}"]`));
    marked.forEach((cell) => cell.classList.add("here"));
    if (!scrolling) requestAnimationFrame(scroll); // when the layout is known anyway
    scrolling = true;
  }

  /** Scrolls the table to the character, unless the mouse is over it. */
  function scroll() {
    scrolling = false;
    const [cell] = marked;
    if (!cell || !visible(host) || host.matches(":hover")) return;
    const outside = cell.offsetLeft < host.scrollLeft + 90 ||
      cell.offsetLeft + cell.offsetWidth > host.scrollLeft + host.clientWidth;
    if (outside) host.scrollLeft = cell.offsetLeft - 120;
  }
  return { host, render };
}

/** Depths × positions. Another subject changes only the cells that differ from those before. */
class DepthTable {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.title = make("h3", null);
    this.head = make("tr", null, make("th", { scope: "col" }, "depth \\ after"));
    this.body = make("tbody", null);
    const table = make("table", null, make("thead", null, this.head), this.body);
    this.box = make("div", { class: "depths" }, this.title, table);
    /** @type {ReturnType<typeof rowsOf>} */
    this.rows = [];
    /** @type {WeakMap<Element, string>} What a cell shows. */
    this.shown = new WeakMap();
    this.body.addEventListener("pointerover", (event) => {
      const cell = /** @type {Element} */ (event.target).closest("td");
      if (!cell) return;
      const place = this.body.children;
      const row = Array.prototype.indexOf.call(place, cell.parentElement);
      const guesses = this.rows[row].guesses(Number(cell.dataset.position));
      cell.title = guesses.map(({ label, probability }) =>
        `'${label}' ${short(probability, app.digits)}`
      ).join(" · ");
    });
  }

  /** @param {Subject} subject */
  show(subject) {
    const { labels, characters } = subject;
    this.title.hidden = this.app.subjects.length < 2;
    this.title.textContent = subject.name;
    this.rows = rowsOf(subject);
    this.#fill(this.head, "th", labels.length, (cell, position) => {
      if (this.#changes(cell, labels[position])) cell.textContent = labels[position];
    });
    while (this.body.childElementCount < this.rows.length) {
      this.body.append(make("tr", null, make("th", { scope: "row" })));
    }
    while (this.body.childElementCount > this.rows.length) this.body.lastElementChild?.remove();
    this.rows.forEach(({ name, guesses }, n) => {
      const line = this.body.children[n];
      line.children[0].textContent = name;
      this.#fill(line, "td", labels.length, (cell, position) => {
        const [{ label, character, probability }] = guesses(position);
        const right = character === characters[position + 1] ? "right" : "";
        const share = `${Math.round(probability * 100)}%`;
        if (!this.#changes(cell, `${label} ${right} ${share}`)) return;
        cell.textContent = label;
        cell.className = right;
        cell.style.setProperty("--share", share);
      });
    });
  }

  /**
   * Gives a row one cell for each position, after its heading.
   * @param {Element} line
   * @param {"td" | "th"} tag
   * @param {number} count
   * @param {(cell: HTMLElement, position: number) => void} draw
   */
  #fill(line, tag, count, draw) {
    while (line.childElementCount > count + 1) line.lastElementChild?.remove();
    for (let position = 0; position < count; position++) {
      if (line.childElementCount < position + 2) {
        const cell = make(tag, { "data-position": position });
        if (tag === "th") cell.setAttribute("scope", "col");
        line.append(cell);
      }
      draw(/** @type {HTMLElement} */ (line.children[position + 1]), position);
    }
  }

  /** Whether a cell must be drawn to show this. @param {Element} cell @param {string} content */
  #changes(cell, content) {
    if (this.shown.get(cell) === content) return false;
    this.shown.set(cell, content);
    return true;
  }
}

/**
 * The table's rows: names, and the likeliest characters of a position.
 * @param {Subject} subject
 * @returns {{name: string, guesses: (position: number) => Guess[]}[]}
 */
function rowsOf({ lens, layers }) {
  return Array.from({ length: layers + 1 }, (_, n) => ({
    name: n < layers ? `layer ${layers - 1 - n}` : "embedding",
    guesses: (position) => lens.at(layers - n, position, 5),
  }));
}
