// @ts-check
// The bar of a tour: shows its stops one after the other.

import { short } from "../numbers.js";
import { expectedAt } from "../next.js";
import { make, part, positionOf, say } from "../parts.js";
import { titleOf } from "./changes.js";
import { settingsFor, settingsIn, stopsOf } from "./tour.js";

/** @import { App } from "../parts.js" */
/** @import { Session } from "./session.js" */

const SCROLLS = "input, textarea, select, dialog, .matrix-box, .scroll, .terms"; // with Page Down

/**
 * @param {Session} session
 * @param {HTMLInputElement} share whether the address has the text
 * @param {() => void} fill shows the text of the session
 */
export function makeTour(session, share, fill) {
  const names = Object.keys(session.toSettings(false));
  const blank = Object.fromEntries(names.map((name) => [name, ""]));
  const stops = stopsOf(session.data.tour);
  /** @type {App} */
  let app;

  /** The stop in the address; more: whether it goes on in itself. */
  function now() {
    const [, number, shown] = /^(\d{1,5})(!?)$/.exec(session.stop) ?? [];
    const stop = stops[Number(number) - 1];
    return {
      n: Number(number) - 1,
      stop,
      shown,
      more: !shown && stop?.answer.concat(stop.then).join(""),
    };
  }

  /** Takes the settings of the stop in the address; the next answer shows them. */
  function begin() {
    const { stop, shown } = now();
    if (!stop) {
      session.stop = "";
      return;
    }
    const said = settingsIn([...stop.see, ...shown ? stop.then : []]);
    const settings = settingsFor({ ...blank, ...said, stop: session.stop }, session);
    session.open(settings.text);
    session.fromSettings(settings);
    fill();
    session.after = () => {
      app.state = app.stateOf(String(new URLSearchParams(settings)));
      app.change({ more: session.toSettings(share.checked) });
    };
  }

  /** @param {number} n @param {string} [shown] "!" with its answer */
  function go(n, shown = "") {
    if (!stops[n]) return;
    if (session.client.writing) { // what it writes belongs to the text before
      session.client.stop();
      setTimeout(() => go(n, shown), 20);
      return;
    }
    session.stop = `${n + 1}${shown}`;
    begin();
    app.change({ cell: null, pins: [], more: session.toSettings(share.checked) });
    session.ask();
  }

  /** Shows the answer, or the next stop. */
  function goOn() {
    const { n, more } = now();
    if (more) go(n, "!");
    else go(n + 1 || 0);
  }

  /** @type {Record<string, () => void>} */
  const acts = {
    show: goOn,
    next: () => go(now().n + 1),
    back: () => go(now().n - 1),
    close() {
      session.stop = "";
      session.changed();
      part("tour-open").focus();
    },
  };
  for (const [name, act] of Object.entries(acts)) {
    part(`tour-${name}`).addEventListener("click", act);
  }
  addEventListener("keydown", (event) => {
    const inside = /** @type {Element} */ (event.target).closest?.(SCROLLS);
    const act = { PageDown: goOn, PageUp: acts.back }[event.key];
    if (!act || inside || !now().stop) return;
    event.preventDefault();
    act();
  });

  /** What a caption has in braces: the head, or a number of the model now, or before it was changed.
   * @param {string | undefined} when @param {string} what */
  function valueOf(when, what) {
    const { state: { layer, head, cell }, subjects, digits } = app;
    if (!when) return titleOf({ layer, head });
    const subject = subjects[when === "now" ? subjects.length - 1 : 0];
    const [query, key] = cell ?? [0, 0];
    if (what === "weight") {
      const inside = query < subject.length && key <= query;
      return inside ? short(subject.weights(layer, head)[subject.begin(query) + key], 3) : "–";
    }
    const end = positionOf({ ...app, pointed: null, reading: null }, subject);
    const { vocabulary, vocabulary_labels: labels } = session.data;
    const character = vocabulary[labels.indexOf(what)];
    return short(expectedAt(app, subject, end).shareOf(character), digits);
  }

  function render() {
    const { n, stop, shown, more } = now();
    if (part("tour").hidden === Boolean(stop)) {
      part("tour").hidden = !stop;
      document.documentElement.toggleAttribute("data-tour", Boolean(stop));
      dispatchEvent(new Event("resize")); // the matrix has another height
    }
    for (const name of /** @type {const} */ (["title", "text", "question", "answer"])) {
      const said = name === "answer" && !shown ? "" : stop?.[name].join(" ").trim() ?? "";
      const value = (/** @type {string[]} */ ...[, when, what]) => valueOf(when, what);
      say(part(`tour-${name}`), said.replace(/\{(?:(now|before) )?([^{}]+)\}/g, value));
    }
    part("tour-show").hidden = !more;
    say(part("tour-place"), stop ? `${n + 1} / ${stops.length}` : "");
    for (const [name, by] of /** @type {const} */ ([["back", -1], ["next", 1]])) {
      /** @type {HTMLButtonElement} */ (part(`tour-${name}`)).disabled = !stops[n + by];
    }
  }

  return {
    begin,
    keys: stops.length
      ? [{ key: "n", name: "n, Page Down, Page Up", does: "the tour: go on, back", act: goOn }]
      : [],
    /** @param {App} shown */
    show(shown) {
      app = shown;
      const open = make("button", { type: "button", id: "tour-open" }, "tour");
      open.hidden = !stops.length;
      part("projector").before(open);
      open.addEventListener("click", () => go(0));
      return { host: part("tour"), render };
    },
  };
}
