// @ts-check
// The text that the user types, and the model's continuation of it.

import { count, part } from "../parts.js";
import { markedText } from "./session.js";

/** @import { Session } from "./session.js" */

const PAUSE = 500; // milliseconds between two readings of a text that the model writes

export class Editor {
  /** @param {Session} session @param {() => void} typed the text is another one */
  constructor(session, typed) {
    this.session = session;
    this.typed = typed;
    this.input = /** @type {HTMLTextAreaElement} */ (part("input"));
    /** @type {string[]} Texts before each continuation. */
    this.before = [];
    this.speed = "";
    this.marked = ""; // the text whose unknown characters are marked
    this.input.addEventListener("input", () => {
      this.speed = "";
      this.before = []; // what the model wrote is no longer the end
      this.#take();
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        this.write(event.shiftKey ? 1 : session.options.length);
      } else if (event.key === "Escape") session.client.stop();
      else return;
      event.preventDefault();
    });
    part("write").addEventListener("click", () => this.write(session.options.length));
    part("step").addEventListener("click", () => this.write(1));
    part("unwrite").addEventListener("click", () => {
      const text = this.before.pop();
      if (text !== undefined) this.set(text); // none left: a second click came before the answer
    });
    part("pin").addEventListener("click", () => session.pin());
  }

  /** Shows the text that the session has read. */
  fill() {
    this.before = [];
    this.input.value = this.session.text;
  }

  /** Shows another text. @param {string} text */
  set(text) {
    this.speed = "";
    this.input.value = text;
    this.#take();
  }

  #take() {
    this.session.read(this.input.value);
    this.typed(); // render follows with the answer
  }

  /** Lets the model continue the text, or stops it. @param {number} length */
  write(length) {
    const { session, input } = this;
    const { client, model, options } = session;
    if (client.writing) {
      client.stop();
      return;
    }
    if (options.invalid) return;
    this.speed = "";
    this.before.push(input.value);
    input.readOnly = true;
    const begun = performance.now();
    let [written, read] = [0, begun];
    const request = {
      ids: session.encoded(session.characters),
      changes: model.changes(),
      options: options.drawing,
      length,
    };
    /** @type {number[]} */
    let arrived = []; // since the last frame
    const show = () => {
      if (!arrived.length) return;
      const now = performance.now();
      written += arrived.length;
      input.value += arrived.map((id) => session.all[id]).join("");
      arrived = [];
      input.scrollTop = input.scrollHeight;
      if (written > 1) {
        const speed = Math.round(1000 * written / (now - begun));
        this.speed = `${count(written, "character")} written, ${
          speed.toLocaleString("en")
        } a second`;
      }
      this.render();
      if (now - read > PAUSE) {
        read = now;
        this.#take();
      }
    };
    client.write(request, (ids) => {
      if (!arrived.length) requestAnimationFrame(show);
      arrived.push(...ids);
    }, () => {
      show();
      input.readOnly = false;
      this.#take();
    });
    this.render();
  }

  render() {
    const { session, before, speed } = this;
    const { characters, unknown, folded, pinned, data, begin, options } = session;
    const { block_size: most } = data;
    const writing = session.client.writing !== null;
    part("write").textContent = writing ? "■ stop" : "▶ write";
    /** @type {HTMLButtonElement} */ (part("write")).disabled = !writing && options.invalid;
    /** @type {HTMLButtonElement} */ (part("step")).disabled = writing || options.invalid;
    /** @type {HTMLButtonElement} */ (part("unwrite")).disabled = writing || !before.length;
    /** @type {HTMLButtonElement} */ (part("pin")).disabled = writing;
    part("pin").textContent = pinned ? "unpin" : "pin, to compare";
    const said = [count(characters.length, "character")];
    if (!characters.length) {
      said.push("the text is empty: the model predicts what follows a line break");
    }
    if (begin) {
      const rule = `the model sees the last ${characters.length - begin}: at most ${most}`;
      said.push(`${rule}, and its window moves by half of that, as in gptx sample`);
    } else said[0] += ` of ${most}`;
    if (folded) said.push(folded);
    if (speed) said.push(speed);
    part("input-said").textContent = said.join(" · ");
    if (this.marked === session.text) return;
    this.marked = session.text;
    part("input-unknown").hidden = !unknown.length;
    if (unknown.length) part("input-unknown").replaceChildren(...markedText(session));
  }
}
