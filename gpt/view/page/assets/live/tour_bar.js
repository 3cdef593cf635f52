// @ts-check
// The bar of a tour: shows its stops one after the other, and edits its text.

import { short } from "../numbers.js";
import { expectedAt } from "../next.js";
import { make, part, positionOf, say } from "../parts.js";
import { deliver } from "../save.js";
import { toHash } from "../state.js";
import { titleOf } from "./changes.js";
import { parseTour, settingsFor, settingsIn } from "./tour.js";

/** @import { App } from "../parts.js" */
/** @import { Session } from "./session.js" */

const SCROLLS = "input, textarea, select, dialog, .matrix-box, .scroll, .terms"; // with Page Down
const CODED = /[%&+#\p{C}]|^\s|\s$/u; // characters that stay encoded in a line of settings

/**
 * @param {Session} session
 * @param {HTMLInputElement} share whether the address has the text
 * @param {() => void} fill shows the text of the session
 */
export function makeTour(session, share, fill) {
  const box = /** @type {HTMLTextAreaElement} */ (part("tour-source"));
  const names = Object.keys(session.toSettings(false));
  const blank = Object.fromEntries(names.map((name) => [name, ""]));
  /** @type {App} */
  let app;
  /** @type {import("./tour.js").Stop[]} */
  let stops = [];
  let read = "";

  /** The stop in the address, of those that this file can show; then: whether it goes on in itself. */
  function now() {
    const text = session.tour || session.data.tour || "";
    const several = session.data.models.length > 1;
    if (text !== read) {
      stops = parseTour(text, []).stops.filter(({ see, then }) =>
        several || !("step" in settingsIn([...see, ...then]))
      );
    }
    read = text;
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
    const { tour, stop: place } = session;
    const settings = settingsFor({ ...blank, ...said, tour, stop: place }, session);
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

  /** Takes the edited text; whether it is a tour. */
  function apply() {
    const { problem } = parseTour(box.value, [...names, ...Object.keys(app.state)]);
    say(part("tour-said"), problem);
    if (problem) return false;
    session.tour = box.value === session.data.tour ? "" : box.value;
    go(Math.min(now().n || 0, stops.length - 1));
    return true;
  }

  /** The settings of the view that the page does not open with. */
  function here() {
    const opening = toHash(app.stateOf("")).split("&");
    const more = { ...session.toSettings(true), tour: "", stop: "" };
    const said = toHash({ ...app.state, more }).split("&").filter((s) => !opening.includes(s));
    const plain = said.map(decodeURIComponent);
    return said.map((each, n) => CODED.test(plain[n]) ? each : plain[n]).join("&");
  }

  /** @type {Record<string, () => void>} */
  const acts = {
    show: goOn,
    next: () => go(now().n + 1),
    back: () => go(now().n - 1),
    close() {
      session.stop = "";
      part("tour-editor").hidden = true;
      session.changed();
      part("tour-open").focus();
    },
    edit() {
      part("tour-editor").hidden = !part("tour-editor").hidden;
      box.value ||= read || "# A tour\n";
      render();
    },
    add() {
      box.value += `\n## A new stop\nsee: ${here()}\nSay here what to look at.\n`;
      box.scrollTop = box.scrollHeight;
    },
    apply,
    link() {
      if (!apply()) return;
      const tour = session.tour && `tour=${encodeURIComponent(session.tour)}&`;
      const link = `${location.href.split("#")[0]}#${tour}stop=1`;
      const copied = () => say(part("tour-said"), "The link is copied.");
      say(part("tour-said"), link); // where the browser does not let the page copy
      navigator.clipboard?.writeText(link).then(copied, () => {});
    },
    save: () => deliver("tour.md", new Blob([box.value], { type: "text/markdown" })),
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

  /** What a caption has in braces: of the model now, or before it was changed.
   * @param {string | undefined} when @param {string} what */
  function valueOf(when, what) {
    const { state: { layer, head, cell }, subjects, digits } = app;
    const { step } = session.data.models[session.model.step];
    if (!when) {
      return what === "step"
        ? step.toLocaleString("en")
        : what === "head"
        ? titleOf({ layer, head })
        : null;
    }
    const subject = subjects[when === "now" ? subjects.length - 1 : 0];
    const [query, key] = cell ?? [0, 0];
    if (what === "loss") return short(subject.loss, digits);
    if (what === "weight") {
      const inside = query < subject.length && key <= query;
      return inside ? short(subject.weights(layer, head)[subject.begin(query) + key], 3) : "–";
    }
    const end = positionOf({ ...app, pointed: null, reading: null }, subject);
    const { vocabulary, vocabulary_labels: labels } = session.data;
    const character = vocabulary[labels.indexOf(what)];
    const share = character && expectedAt(app, subject, end).shareOf(character);
    return typeof share === "number" ? short(share, digits) : character && "–";
  }

  function render() {
    const { n, stop, shown, more } = now();
    const hidden = !stop && part("tour-editor").hidden;
    if (part("tour").hidden !== hidden) {
      part("tour").hidden = hidden;
      document.documentElement.toggleAttribute("data-tour", !hidden);
      dispatchEvent(new Event("resize")); // the matrix has another height
    }
    for (const name of /** @type {const} */ (["title", "text", "question", "answer"])) {
      const said = name === "answer" && !shown ? "" : stop?.[name].join(" ").trim() ?? "";
      const value = (/** @type {string[]} */ ...[all, when, what]) => valueOf(when, what) ?? all;
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
    key: { key: "n", name: "n, Page Down, Page Up", does: "the tour: go on, back", act: goOn },
    /** @param {App} shown */
    show(shown) {
      app = shown;
      const open = make("button", { type: "button", id: "tour-open" }, "tour");
      part("projector").before(open);
      open.addEventListener("click", () => stops.length ? go(0) : acts.edit());
      return { host: part("tour"), render };
    },
  };
}
