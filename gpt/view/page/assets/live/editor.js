// @ts-check
// The text that the user types, and the model's continuation of it.

import { count, make, part } from "../parts.js";

/** @typedef {import("./session.js").Session} Session */

const PAUSE = 500; // milliseconds between two readings of a text that the model writes
const MOST_NAMED = 4; // unknown characters that are named

export class Editor {
  /** @param {Session} session @param {() => void} typed the text is another one */
  constructor(session, typed) {
    this.session = session;
    this.typed = typed;
    this.input = /** @type {HTMLTextAreaElement} */ (part("input"));
    /** @type {string[]} Texts before each continuation. */
    this.before = [];
    this.speed = "";
    this.input.addEventListener("input", () => {
      this.speed = "";
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
    part("unwrite").addEventListener("click", () => this.set(this.before.pop() ?? ""));
    part("pin").addEventListener("click", () => session.pin());
  }

  /** Shows another text. @param {string} text */
  set(text) {
    this.input.value = text;
    this.#take();
  }

  #take() {
    this.session.read(this.input.value);
    this.typed();
  }

  /** Lets the model continue the text, or stops it. @param {number} length */
  write(length) {
    const { session, input } = this;
    const { client, model, options } = session;
    if (client.writing) {
      client.stop();
      return;
    }
    this.before.push(input.value);
    input.readOnly = true;
    const begun = performance.now();
    let [written, read] = [0, begun];
    const request = {
      ids: session.encoded(session.characters),
      step: model.step,
      changes: model.changes(),
      options: options.drawing,
      length,
    };
    client.write(request, (ids) => {
      const now = performance.now();
      written += ids.length;
      input.value += ids.map((id) => session.all[id]).join("");
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
    }, () => {
      input.readOnly = false;
      this.#take();
    });
    this.render();
  }

  render() {
    const { session, input, before, speed } = this;
    const { characters, unknown, pinned, data, begin } = session;
    const { block_size: most } = data;
    const writing = session.client.writing !== null;
    part("write").textContent = writing ? "■ stop" : "▶ write";
    /** @type {HTMLButtonElement} */ (part("step")).disabled = writing;
    /** @type {HTMLButtonElement} */ (part("unwrite")).disabled = writing || !before.length;
    /** @type {HTMLButtonElement} */ (part("pin")).disabled = writing;
    part("pin").textContent = pinned ? "unpin" : "pin, to compare";
    const said = [count(characters.length, "character")];
    if (!characters.length) {
      said.push("an empty text starts after a line break, as gptx sample does");
    }
    if (begin) {
      const rule = `the model sees the last ${characters.length - begin}: at most ${most}`;
      said.push(`${rule}, and its window moves by half of that, as in gptx sample`);
    } else said[0] += ` of ${most}`;
    if (speed) said.push(speed);
    part("input-said").textContent = said.join(" · ");
    part("input-unknown").hidden = !unknown.length;
    if (!unknown.length) return;
    const all = Array.from(input.value);
    const places = new Map(unknown);
    const marked = all.map((character, n) =>
      places.has(n)
        ? make("mark", { title: `${codeOf(character)} is not among them` }, character)
        : character
    );
    const few = unknown.slice(0, MOST_NAMED).map(([n, character]) =>
      `${codeOf(character)} at ${n}`
    );
    if (unknown.length > MOST_NAMED) few.push(`${unknown.length - MOST_NAMED} more`);
    part("input-unknown").replaceChildren(
      make(
        "span",
        null,
        `The model knows ${session.all.length} characters, but not ${
          few.join(", ")
        }. It reads the text without them: `,
      ),
      make("span", { class: "history" }, ...marked),
    );
  }
}

/** "'é' (U+00E9)" @param {string} character */
function codeOf(character) {
  const code = character.codePointAt(0) ?? 0;
  return `'${character}' (U+${code.toString(16).toUpperCase().padStart(4, "0")})`;
}
