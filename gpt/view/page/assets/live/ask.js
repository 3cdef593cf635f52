// @ts-check
// Changes of the model, and what they do to the prediction: heads that are switched off, one row of
// weights set by hand, an earlier step of training.

import { decimals, short, signed } from "../numbers.js";
import { bar, make, named, part, say, segments } from "../parts.js";
import { withWeight } from "./changes.js";

/** @typedef {import("../parts.js").App} App */
/** @typedef {import("../data.js").Subject} Subject */
/** @typedef {import("./changes.js").How} How */
/** @typedef {import("./session.js").Session} Session */

const MOST_NEXT = 6; // characters in the comparison
const NOTHING_COMPARED = "Change the model or pin a text to see a comparison here.";

/** @param {App} app @param {Session} session */
export function makeAsk(app, session) {
  const { model } = session;
  const host = part("switches");
  const showHow = segments(part("how"), [
    ["zero", "zero", "A head that is off writes 0 (zero ablation)"],
    ["mean", "mean", "A head that is off writes its mean over validation texts (mean ablation)"],
  ], (how) => {
    model.how = /** @type {How} */ (how);
    session.changed();
  });
  const [{ layers, heads }] = app.subjects;
  host.style.setProperty("--across", String(Math.min(heads, 12)));
  const buttons = Array.from({ length: layers * heads }, (_, n) => {
    const [layer, head] = [Math.floor(n / heads), n % heads];
    const button = make("button", { type: "button", role: "switch" }, `L${layer} H${head}`);
    button.addEventListener("click", () => {
      model.toggle(layer, head);
      session.changed();
    });
    return { button, name: `${layer}.${head}` };
  });
  const all = make("button", { type: "button", id: "all-on" }, "undo all");
  all.addEventListener("click", () => {
    model.off.clear();
    model.rows = [];
    session.changed();
  });
  host.replaceChildren(...buttons.map(({ button }) => button), all);
  const byHand = makeByHand(app, session);
  const showTime = makeTime(session);

  function render() {
    showHow(model.how, (how) => how === "mean" && !model.means[model.step].length);
    for (const { button, name } of buttons) {
      button.setAttribute("aria-checked", String(!model.off.has(name)));
    }
    all.disabled = !model.changed;
    byHand();
    showTime();
    if (app.subjects.length > 1) part("effect").replaceChildren(effect(app, session.begin > 0));
    else if (!part("effect").querySelector(".hint")) {
      part("effect").replaceChildren(make("p", { class: "hint" }, NOTHING_COMPARED));
    }
  }
  return { host, render };
}

/** The slider of the pinned weight. @param {App} app @param {Session} session */
function makeByHand(app, session) {
  const name = make("label", { for: "weight" });
  const slider = make("input", { type: "range", id: "weight", min: 0, max: 1, step: 0.01 });
  const value = make("output", null);
  const reset = make("button", { type: "button", id: "row-reset" }, "as computed");
  const hint = make("p", { class: "hint" });
  const tools = make("div", { class: "options" }, name, slider, value, reset);
  part("by-hand").replaceChildren(hint, tools);
  slider.addEventListener("input", () => {
    const { layer, head, cell } = app.state;
    if (!cell) return;
    const [query, key] = cell;
    const known = session.model.rowOf(layer, head, query);
    const now = app.subjects[app.subjects.length - 1].weights(layer, head);
    const first = query * (query + 1) / 2;
    const computed = known?.computed ?? now.slice(first, first + query + 1);
    const weights = withWeight(computed, key, Number(slider.value));
    const text = session.characters.slice(0, query + 1).join("");
    session.model.setRow({ layer, head, query, weights, computed, text });
    session.changed();
  });
  reset.addEventListener("click", () => {
    const { layer, head, cell } = app.state;
    session.model.dropRow(layer, head, cell?.[0] ?? -1);
    session.changed();
  });
  return () => {
    const { layer, head, cell, view, stage } = app.state;
    const subject = app.subjects[app.subjects.length - 1];
    const whole = session.begin === 0 && !session.pinned;
    const possible = view === "head" && stage === "weights" && cell !== null && whole &&
      cell[0] < subject.length;
    hint.hidden = tools.hidden = false;
    if (!possible) {
      tools.hidden = true;
      say(
        hint,
        whole
          ? "Click a cell of a head's weights to set its weight by hand."
          : "Weights can be set by hand while the text fits into the context and none is pinned.",
      );
      return;
    }
    hint.hidden = true;
    const [query, key] = cell;
    const weight = subject.weights(layer, head)[query * (query + 1) / 2 + key];
    name.textContent = `L${layer} H${head}: query ${named(subject, query)} → key ${
      named(subject, key)
    }`;
    if (document.activeElement !== slider) slider.value = String(weight);
    slider.disabled = query === 0;
    value.textContent = short(weight, 3);
    reset.hidden = !session.model.rowOf(layer, head, query);
  };
}

/** The slider of training steps. @param {Session} session */
function makeTime(session) {
  const { models } = session.data;
  const slider = /** @type {HTMLInputElement} */ (part("time"));
  part("steps").hidden = models.length < 2;
  slider.max = String(models.length - 1);
  slider.addEventListener("input", () => {
    session.model.step = Number(slider.value);
    session.model.rows = []; // they share out the weights of another step
    session.changed();
  });
  return () => {
    slider.value = String(session.model.step);
    const { step, loss } = models[session.model.step];
    const found = loss === null ? "" : ` · validation loss ${decimals(loss, 3)}`;
    say(part("time-said"), `${step.toLocaleString("en")}${found}`);
  };
}

/**
 * What the two subjects predict, side by side.
 * @param {App} app
 * @param {boolean} cut whether the text is longer than the context
 */
function effect(app, cut) {
  const [before, after] = app.subjects;
  const [first, second] = [before, after].map(meanOf);
  const change = first === null || second === null || before.labels.join() !== after.labels.join()
    ? ""
    : `${signed(second - first, 3)} nats/char`;
  const cell = (/** @type {number | null} */ nats) =>
    make("td", null, nats === null ? "–" : decimals(nats, 3));
  return make(
    "table",
    { class: "effect" },
    make(
      "thead",
      null,
      make(
        "tr",
        null,
        make("th", { scope: "col" }, make("span", { class: "unseen" }, "what")),
        make("th", { scope: "col" }, "A", make("small", null, before.name)),
        make("th", { scope: "col" }, "B", make("small", null, after.name)),
        make("th", { scope: "col" }, "B − A"),
      ),
    ),
    make(
      "tbody",
      null,
      make(
        "tr",
        { id: "loss" },
        make(
          "th",
          { scope: "row" },
          cut ? `loss of the last ${after.length} characters` : "loss of the text",
        ),
        cell(first),
        cell(second),
        make("td", null, change),
      ),
      ...nextRows(before, after),
    ),
  );
}

/** The likeliest next characters of both. @param {Subject} before @param {Subject} after */
function nextRows(before, after) {
  const [a, b] = [before, after].map((subject) => (subject.nextOf(null) ?? []).map(Math.exp));
  const order = Array.from(b.keys()).sort((x, y) =>
    Math.max(a[y], b[y]) - Math.max(a[x], b[x]) || x - y
  );
  return order.slice(0, MOST_NEXT).map((id) => {
    const label = after.payload.lens?.labels[id] ?? "";
    const share = (/** @type {number} */ chance) =>
      make(
        "td",
        { "data-value": chance },
        bar(chance),
        make("span", { class: "number" }, decimals(chance, 3)),
      );
    return make(
      "tr",
      null,
      make("th", { scope: "row" }, make("span", { class: "term" }, label)),
      share(a[id]),
      share(b[id]),
      make("td", null, signed(b[id] - a[id], 3)),
    );
  });
}

/** Mean nats of the characters after the first. @param {Subject} subject */
function meanOf({ surprises }) {
  if (!surprises.length) return null;
  return surprises.reduce((sum, nats) => sum + nats, 0) / surprises.length;
}
