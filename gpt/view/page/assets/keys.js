// @ts-check
// The keyboard: what each key does, and the list of keys.

import { STAGES } from "./data.js";
import { make, part } from "./parts.js";

/** @import { App } from "./parts.js" */
/** A key, its name in the list, and what it does. @typedef {{key: string, name: string, does: string,
 * act: () => void}} Key */

const KEYS = [
  ["← ↑ → ↓", "move between cells of the matrix, characters of the text, heads"],
  ["Enter, Space", "pin the cell or the character"],
  ["Escape", "let go of all that is pinned"],
  ["[ ]", "head before, next head"],
  ["{ }", "layer before, next layer; in the matrix also Page Up, Page Down"],
  ["1 – 8", "stages, from q·k to the stream after attention"],
  ["?", "this list"],
];

/** @param {App} app @param {Key[]} more keys of a page that computes */
export function listen(app, more) {
  const all = [...KEYS, ...more.map(({ name, does }) => [name, does])];
  part("help-keys").replaceChildren(
    ...all.flatMap(([keys, does]) => [make("dt", null, keys), make("dd", null, does)]),
  );
  part("help-open").addEventListener("click", () => {
    /** @type {HTMLDialogElement} */ (part("help")).showModal();
  });
  addEventListener("keydown", (event) => onKey(app, event, more));
}

/** @param {App} app @param {number} by */
function otherHead(app, by) {
  const [{ heads }] = app.subjects;
  app.change({ head: (app.state.head + by + heads) % heads, view: "head" });
}

/** @param {App} app @param {number} by */
function otherLayer(app, by) {
  const last = app.subjects[0].layers - 1;
  app.change({ layer: Math.min(last, Math.max(0, app.state.layer + by)) });
}

/** @param {App} app @param {KeyboardEvent} event @param {Key[]} more */
function onKey(app, event, more) {
  const composed = event.getModifierState("AltGraph"); // [ and { on many keyboards
  if ((event.ctrlKey || event.altKey || event.metaKey) && !composed) return;
  const target = /** @type {Element} */ (event.target);
  const help = /** @type {HTMLDialogElement} */ (part("help"));
  if (help.open || target.matches?.("select, input, textarea")) return;
  const inside = target.closest?.(".matrix-box");
  const stage = STAGES[Number(event.key) - 1]?.[0];
  const own = more.find(({ key }) => key === event.key);
  if (event.key === "[") otherHead(app, -1);
  else if (event.key === "]") otherHead(app, 1);
  else if (event.key === "{" || (inside && event.key === "PageUp")) otherLayer(app, -1);
  else if (event.key === "}" || (inside && event.key === "PageDown")) otherLayer(app, 1);
  else if (event.key === "Escape") app.change({ cell: null, pins: [] });
  else if (event.key === "?") help.showModal();
  else if (own) own.act();
  else if (stage) app.change({ stage });
  else return;
  event.preventDefault();
}
