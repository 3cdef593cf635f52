// @ts-check
// When the parts of the page are drawn. Another state draws all of them at once. Another text draws
// those in the window at once, and the others, and what may be late, when no further text has come.

import { inWindow, watchCards } from "./cards.js";

/** @import { Part } from "./parts.js" */

const WAIT = 200; // milliseconds without another text: longer than between two keys

export class Schedule {
  /** @param {Part[]} parts in the order in which they are drawn */
  constructor(parts) {
    this.parts = parts;
    /** @type {Set<Part>} Those that show the text before. */
    this.waiting = new Set();
    this.timer = 0;
    watchCards(() => this.#drawSeen());
  }

  /** Draws all parts. */
  drawAll() {
    this.waiting.clear();
    for (const each of this.parts) each.render();
    markDrawn();
    performance.mark("settled");
  }

  /** Draws the parts in the window, and the others later. */
  drawSoon() {
    performance.clearMarks("settled");
    this.waiting = new Set(this.parts);
    this.#drawSeen();
    markDrawn();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#drawRest(), WAIT);
  }

  #drawSeen() {
    for (const each of this.waiting) if (!each.late && inWindow(each.host)) this.#draw(each);
  }

  /** Draws one waiting part after the other; keys come between them. */
  #drawRest() {
    const [next] = this.waiting;
    if (next) this.#draw(next);
    if (this.waiting.size) this.timer = setTimeout(() => this.#drawRest());
    else performance.mark("settled"); // for tests
  }

  /** @param {Part} each */
  #draw(each) {
    this.waiting.delete(each);
    each.render();
  }
}

/** For benchmarks/live.py. */
function markDrawn() {
  performance.clearMarks("drawn");
  performance.mark("drawn");
}
