// @ts-check
// Changes of the model: heads that are switched off, one row of weights set by hand.

import { short } from "../numbers.js";
import { make, named, part, say, segments } from "../parts.js";
import { nameOf, titleOf } from "./changes.js";

/** @import { App } from "../parts.js" */
/** @import { How } from "./changes.js" */
/** @import { Session } from "./session.js" */

/** The switches of heads, which stand beside their pictures, and what belongs to them.
 * @param {App} app @param {Session} session */
export function makeAsk(app, session) {
  const { model } = session;
  const host = part("changes-said");
  const showHow = segments(part("how"), [
    ["zero", "zero", "A head that is off writes 0 (zero ablation)"],
    ["mean", "mean", "A head that is off writes its mean over validation texts (mean ablation)"],
  ], (how) => {
    model.how = /** @type {How} */ (how);
    session.changed();
  });
  const all = /** @type {HTMLButtonElement} */ (part("all-on"));
  all.addEventListener("click", () => {
    model.off.clear();
    model.rows = [];
    session.changed();
  });
  app.switches = {
    toggle(layer, head) {
      model.toggle({ layer, head });
      session.changed();
    },
    off: (layer, head) => model.off.has(nameOf({ layer, head })),
  };

  function render() {
    showHow(model.how, (how) => how === "mean" && !model.knowsMeans);
    all.disabled = !model.changed;
    say(host, model.title || "A dot, or key x, switches its head off.");
  }
  return { host, render };
}

/** The slider of the pinned weight, beside its cell. @param {App} app @param {Session} session */
export function makeByHand(app, session) {
  const name = make("label", { for: "weight" });
  const slider = make("input", { type: "range", id: "weight", min: 0, max: 1, step: 0.01 });
  const value = make("output", null);
  const reset = make("button", { type: "button", id: "row-reset" }, "as computed");
  const host = make("div", { id: "by-hand", hidden: true }, name, slider, value, reset);
  part("matrices").after(host);
  slider.addEventListener("input", () => {
    const { layer, head, cell } = app.state;
    if (!cell) return;
    const subject = app.subjects[app.subjects.length - 1];
    session.setByHand(subject, { layer, head }, ...cell, Number(slider.value));
    session.changed();
  });
  reset.addEventListener("click", () => {
    const { layer, head, cell } = app.state;
    session.model.dropRow({ layer, head }, cell?.[0] ?? -1);
    session.changed();
  });
  function render() {
    const { layer, head, cell, view, stage } = app.state;
    const subject = app.subjects[app.subjects.length - 1];
    host.hidden = !(view === "head" && stage === "weights" && cell && cell[0] < subject.length);
    if (host.hidden || !cell) return;
    const [query, key] = cell;
    const weight = subject.weights(layer, head)[subject.begin(query) + key];
    const place = { layer, head };
    say(
      name,
      session.fixed || `${titleOf(place)}: query ${named(subject, query)} → key ` +
          named(subject, key),
    );
    if (document.activeElement !== slider) slider.value = String(weight);
    slider.disabled = session.fixed !== "" || query === 0;
    say(value, short(weight, 3));
    reset.hidden = !session.model.rowOf(place, query);
  }
  return { host, render };
}
