// @ts-check
// The fields of the source and the target.

import { count, make, part, segments } from "../parts.js";
import { markedText } from "./session.js";
import { BEFORE_TARGET } from "./pair_session.js";

/** @import { PairSession } from "./pair_session.js" */

export class PairEditor {
  /** @param {PairSession} session @param {() => void} typed the pair is another one */
  constructor(session, typed) {
    this.session = session;
    this.typed = typed;
    this.source = /** @type {HTMLInputElement} */ (part("source"));
    this.target = /** @type {HTMLInputElement} */ (part("target"));
    this.marked = ""; // the texts whose unknown characters are marked
    this.source.addEventListener("input", () => {
      const [source, ...target] = this.source.value.split(BEFORE_TARGET);
      if (target.length) { // a pasted pair
        this.source.value = source;
        this.target.value = target.join("");
      }
      this.#take(session.own || target.length > 0);
    });
    this.target.addEventListener("input", () => this.#take(true));
    this.source.addEventListener("keydown", ({ key }) => {
      if (key === "Enter") this.#take(false);
    });
    this.showWho = segments(part("who"), [
      ["model", "the model writes", "The model writes the target: Enter in the source"],
      ["own", "as typed", "The target stays as it is; typing in it does the same"],
    ], (who) => this.#take(who === "own"));
    part("pin").addEventListener("click", () => session.pin());
  }

  /** Shows the pair that the session has read. */
  fill() {
    const { session } = this;
    this.source.value = session.source.text;
    this.target.value = session.own ? session.target.text : "";
  }

  /** @param {boolean} own whether the target is the user's */
  #take(own) {
    const { session, source, target } = this;
    session.row = null;
    session.take(source.value, own ? target.value : null);
    this.typed(); // render follows
  }

  render() {
    const { session, target } = this;
    const { source, own, problem, pinned, data } = session;
    this.showWho(own ? "own" : "model");
    const written = problem ? "" : session.target.text;
    if (!own && target.value !== written) target.value = written;
    document.documentElement.classList.toggle("unread", problem !== "");
    const button = /** @type {HTMLButtonElement} */ (part("pin"));
    button.disabled = problem !== "" && !pinned;
    button.textContent = pinned ? "unpin" : "pin, to compare";
    const { block_size: most } = data;
    part("input-said").textContent = problem ||
      `source: ${source.characters.length} of ${count(most, session.unit("source"))}, target: ` +
        `${session.target.characters.length} of ${count(most - 1, session.unit("target"))}` +
        [source, session.target].map(({ folded }) => folded && ` · ${folded}`).join("");
    part("input-said").classList.toggle("refused", problem !== "");
    const now = JSON.stringify([source.text, own && session.target.text]);
    if (now === this.marked) return;
    this.marked = now;
    const sides = own ? { source, target: session.target } : { source };
    const sentences = Object.entries(sides).filter(([, { unknown }]) => unknown.length)
      .map(([name, side]) =>
        make("p", null, ...markedText(name, side, name === "source" ? data.unread : []))
      );
    part("input-unknown").hidden = !sentences.length;
    part("input-unknown").replaceChildren(...sentences);
  }
}
