// @ts-check
// The tour: four stops, each beside the part of the page that it is about.

import { part, quoted, say } from "./dom.js";
import { format } from "./format.js";
import { nameOf, same } from "./app.js";

/** @import { App, Shown } from "./app.js" */

/** at: the part. off: whether the chosen head is off there.
 * @type {{at: string, off?: boolean, text: (shown: Shown, vocabulary: string[]) => string}[]} */
const STOPS = [
  {
    at: "text-part",
    text: ({ row, look, typed: { characters } }) =>
      "The model has read the text up to " + quoted(characters[row]) +
      ". The stronger the colour of " +
      "a character, the more " + nameOf(look) +
      " looks at it from there. Type, or move the caret, " +
      "and all follows.",
  },
  {
    at: "flow",
    text: ({ parts }, vocabulary) =>
      "Each picture is a head: from every character (row) to those it looks at (columns). The bar " +
      "below is what it adds to the logit of " + quoted(vocabulary[parts.id]) + ". Click another " +
      "head; its matrix is below.",
  },
  {
    at: "next-part",
    off: true,
    text: ({ before, chances, parts, look }, vocabulary) =>
      "Now " + nameOf(look) + " is switched off. " + quoted(vocabulary[parts.id]) + " went from " +
      format(before?.[parts.id]) + " to " + format(chances[parts.id]) +
      ": the dashed bars are the " +
      "model before. Later layers read the head, too, so more changes than what it adds directly.",
  },
  {
    at: "next-part",
    text: () =>
      "The head is on again. Press Write: the model draws one character from these bars after the " +
      "other. A higher temperature makes them more even.",
  },
];

/** @param {App} app */
export function makeTour(app) {
  const box = part("tour");
  let stop = -1;

  /** @param {number} next */
  function go(next) {
    const left = STOPS[stop];
    stop = next < STOPS.length ? next : -1;
    const at = STOPS[stop];
    const { look, off } = app.state;
    if (look && (left?.off || at?.off)) {
      const others = off.filter((each) => !same(each, look));
      app.set({ off: at?.off ? [...others, look] : others });
    }
    box.hidden = !at;
    for (const { at: id } of STOPS) part(id).classList.toggle("toured", id === at?.at);
    if (!at) return part("tour-open").focus();
    part(at.at).scrollIntoView({ block: "nearest" });
    part("tour-next").focus();
    if (app.shown) draw(app.shown);
  }
  /** @param {Shown} shown */
  function draw(shown) {
    const at = STOPS[stop];
    if (!at || Boolean(at.off) !== Boolean(shown.before)) return;
    say(part("tour-text"), at.text(shown, app.data.vocabulary));
    say(part("tour-stop"), `${stop + 1} of ${STOPS.length}`);
    say(part("tour-next"), stop + 1 < STOPS.length ? "Next" : "Done");
    /** @type {HTMLButtonElement} */ (part("tour-back")).disabled = stop === 0;
  }
  app.parts.push(draw);
  part("tour-open").addEventListener("click", () => go(0));
  part("tour-next").addEventListener("click", () => go(stop + 1));
  part("tour-back").addEventListener("click", () => go(stop - 1));
  part("tour-close").addEventListener("click", () => go(STOPS.length));
  box.addEventListener("keydown", ({ key }) => key === "Escape" && go(STOPS.length));
}
