// @ts-check
// Draws the text: a text field, with coloured characters behind it. A colour shows how much the chosen
// head looks at the character from the row, or the character's surprisal. The caret chooses the row.

import { byId, inputById, label, make, quoted, setAttr, setText } from "./dom.js";
import { css, format, inkOn, signed, tint } from "./format.js";
import { nameOf } from "./app.js";

/** @import { App, Shown } from "./app.js" */
/** @import { PageData } from "./model/protocol.js" */

const LONG = 44; // the most characters of a text in large type
const MOST_SURPRISAL = 8; // surprisal, in nats, with the strongest colour

/** @param {App} app */
export function makeText(app) {
  const input = inputById("input");
  const mirror = byId("mirror");
  const surprisal = byId("surprisal");
  input.value = app.state.text;
  let caret = input.value.length; // the last known position; a caret that an edit moves chooses no row

  input.addEventListener("input", () => {
    caret = input.selectionStart ?? 0;
    if (app.shown) draw(app.shown, Array.from(input.value));
    app.set({ text: input.value });
  });
  document.addEventListener("selectionchange", () => {
    const { shown } = app;
    const start = input.selectionStart ?? 0;
    if (document.activeElement !== input || start === caret || !shown) return;
    caret = start;
    if (input.value === shown.state.text) {
      app.set({ row: rowAt(shown, start), key: null, id: null });
    }
  });
  surprisal.addEventListener("click", () => app.set({ surprisal: !app.state.surprisal }));

  /** Replaces the text. @param {string} text */
  function write(text) {
    input.value = text;
    caret = text.length;
    input.setSelectionRange(caret, caret);
    app.set({ text });
    const paper = byId("paper");
    void app.drawn().then(() => (paper.scrollTop = paper.scrollHeight));
  }

  /** @param {Shown} shown @param {string[]} [characters] a newer text, before the worker's answer */
  function draw(shown, characters = shown.typed.typed) {
    const { places, unknown, begin } = shown.typed;
    const positions = new Map(places.map((place, position) => [place, position]));
    const spans = characters.map((character, place) => {
      const span = make("span", {}, character);
      const position = positions.get(place);
      const isNew = character !== shown.typed.typed[place];
      if (isNew) return span;
      if (unknown.has(place)) span.className = "unknown";
      else if (position === undefined) span.className = begin ? "past" : "";
      else {
        if (position === shown.row) span.className = "row";
        const share = shareAt(shown, position);
        if (share > 0.005) {
          const colour = tint(app.hues, shown.state.surprisal ? -share : share);
          span.style.backgroundColor = css(colour);
          span.style.color = inkOn(colour);
        }
      }
      if (character === "\n") span.classList.add("newline");
      return span;
    });
    const last = shown.row === shown.length - 1 && characters === shown.typed.typed;
    const ghost = last ? label(app.data.vocabulary[likeliest(shown)]) : "\u200b";
    mirror.replaceChildren(...spans, make("span", { class: "ghost" }, ghost));
    setAttr(byId("paper"), "class", characters.length > LONG ? "long" : null);
  }

  app.parts.push((shown) => {
    const { state, typed } = shown;
    if (input.value === typed.typed.join("")) draw(shown);
    setAttr(surprisal, "aria-pressed", `${state.surprisal}`);
    const shaded = state.surprisal
      ? "How little each character was expected"
      : "What this head looks at";
    setText(byId("shaded"), shaded);
    byId("say").replaceChildren(...sentence(shown, app.data));
    setText(byId("note"), typed.note);
  });
  return { write };
}

/** The row of the character before the caret. @param {Shown} shown @param {number} start in UTF-16 units */
function rowAt({ typed, state, length }, start) {
  const before = Array.from(state.text.slice(0, start)).length;
  const row = typed.places.findLastIndex((place) => place < before);
  return Math.min(Math.max(row, 0), length - 1);
}

/** The strength of a character's colour, from 0 to 1. @param {Shown} shown @param {number} position */
function shareAt(shown, position) {
  if (!shown.state.surprisal) return position > shown.row ? 0 : shown.weight(shown.row, position);
  return position ? Math.min(1, shown.answer.now.surprisals[position - 1] / MOST_SURPRISAL) : 0;
}

/** The id of the likeliest next character. @param {Shown} shown @returns {number} */
export function likeliest({ chances }) {
  return chances.reduce((best, chance, id) => chance > chances[best] ? id : best, 0);
}

/** The sentence below the text. @param {Shown} shown @param {PageData} data */
function sentence(shown, { vocabulary, kinds }) {
  const { characters } = shown.typed;
  const { row, key, look, parts, chances, before, state: { off } } = shown;
  const kind = kinds?.[look.layer]?.[look.head];
  const target = quoted(vocabulary[parts.id]);
  const weight = shown.weight(row, key);
  const where = key === row ? "itself" : whereIs(characters, row, key);
  const [query, keyed] = [quoted(characters[row]), quoted(characters[key])];
  const looks = weight * (row + 1) < 2 && row
    ? ` looks from ${query} everywhere; ${keyed} has a weight of ${format(weight, 3)}. `
    : ` looks from ${query} at ${keyed}, ${where}, with a weight of ${format(weight)}. `;
  const others = off.length > 1
    ? `With ${off.length} heads off`
    : `With ${nameOf(off[0] ?? look)} off`;
  const change = before
    ? `${shown.off && off.length === 1 ? "Switched off" : others}, ${target} goes from ` +
      `${format(before[parts.id])} to ${format(chances[parts.id])}.`
    : `It adds ${signed(shown.added(look))} directly to the logit of ${target}.`;
  const name = make("b", {}, nameOf(look).replace("h", "H") + (kind ? ` (${kind})` : ""));
  return [name, looks, make(before ? "b" : "span", { class: before ? null : "soft" }, change)];
}

/** Says where a key stands, seen from its query. @param {string[]} characters @param {number} row @param {number} key */
function whereIs(characters, row, key) {
  const query = quoted(characters[row]);
  if (key === row - 1) return "the character before";
  if (key && characters[key - 1] === characters[row]) {
    return `the character after an earlier ${query}`;
  }
  if (characters[key] === characters[row]) return "the same character, earlier";
  return key === 0 ? "the first character" : `${row - key} characters back`;
}
