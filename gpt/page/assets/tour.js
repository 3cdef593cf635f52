// @ts-check
// Makes the tour: four stops, each of which explains a part of the page.

import { byId, quoted, setText } from "./dom.js";
import { format } from "./format.js";
import { nameOf, same } from "./app.js";

/** @import { App, Shown } from "./app.js" */

/** at: the id of the part. off: whether the chosen head is switched off at this stop.
 * @type {{at: string, off?: boolean, text: (shown: Shown, vocabulary: string[]) => string}[]} */
const STOPS = [
  {
    at: "text-part",
    text: ({ row, look, typed: { characters } }) =>
      `The model has read the text up to ${
        quoted(characters[row])
      }. The stronger the colour of a ` +
      `character, the more ${nameOf(look)} looks at it from there. Type, or move the caret.`,
  },
  {
    at: "flow",
    text: ({ parts }, vocabulary) =>
      "Each picture is a head: a row is a character, its columns the characters that it looks at. " +
      `The bar below is what the head adds to the logit of ${
        quoted(vocabulary[parts.id])
      }. Click ` +
      "another head: its matrix stands below.",
  },
  {
    at: "next-part",
    off: true,
    text: ({ before, chances, parts: { id }, look }, vocabulary) =>
      `Now ${nameOf(look)} is switched off. ${quoted(vocabulary[id])} went from ` +
      `${format(before?.[id])} to ${
        format(chances[id])
      }. The dashed bars show the model with all ` +
      "heads. Later layers read the head’s output, too, so the head has more effect than what it adds.",
  },
  {
    at: "next-part",
    text: () =>
      "The head is on again. Press Write: the model draws one character after the other from " +
      "these probabilities. A higher temperature makes them more equal.",
  },
];

/** @param {App} app */
export function makeTour(app) {
  const box = byId("tour");
  let stop = -1;

  /** @param {number} next */
  function go(next) {
    const left = STOPS[stop];
    stop = next < STOPS.length ? next : -1;
    const at = STOPS[stop];
    const { look, off } = app.state;
    if (look && (left?.off || at?.off)) {
      const others = off.filter((head) => !same(head, look));
      app.set({ off: at?.off ? [...others, look] : others });
    }
    box.hidden = !at;
    for (const { at: id } of STOPS) byId(id).classList.toggle("toured", id === at?.at);
    if (!at) return byId("tour-open").focus();
    byId(at.at).scrollIntoView({ block: "nearest" });
    byId("tour-next").focus();
    if (app.shown) draw(app.shown);
  }
  /** @param {Shown} shown */
  function draw(shown) {
    const at = STOPS[stop];
    if (!at || Boolean(at.off) !== Boolean(shown.before)) return;
    setText(byId("tour-text"), at.text(shown, app.data.vocabulary));
    setText(byId("tour-stop"), `${stop + 1} of ${STOPS.length}`);
    setText(byId("tour-next"), stop + 1 < STOPS.length ? "Next" : "Done");
    /** @type {HTMLButtonElement} */ (byId("tour-back")).disabled = stop === 0;
  }
  app.parts.push(draw);
  byId("tour-open").addEventListener("click", () => go(0));
  byId("tour-next").addEventListener("click", () => go(stop + 1));
  byId("tour-back").addEventListener("click", () => go(stop - 1));
  byId("tour-close").addEventListener("click", () => go(STOPS.length));
  box.addEventListener("keydown", ({ key }) => key === "Escape" && go(STOPS.length));
}
