// @ts-check
// Changes of the model, and what they do to the prediction: heads that are switched off, one row of
// weights set by hand, an earlier step of training.

import { decimals, short, signed } from "../numbers.js";
import { bar, make, makeColumn, makeRow, makeTable, named, part, say, segments } from "../parts.js";
import { headsOf, nameOf, titleOf, withWeight } from "./changes.js";

/** @typedef {import("../parts.js").App} App */
/** @typedef {import("../data.js").Subject} Subject */
/** @typedef {import("./changes.js").How} How */
/** @typedef {import("./session.js").Session} Session */

const MOST_NEXT = 6; // characters in the comparison
const NOTHING_COMPARED = "Change the model or pin a text to see a comparison here.";

/** Two subjects -> rows of the comparison. @typedef {(before: Subject, after: Subject) => HTMLElement[]} Rows */

/** @param {App} app @param {Session} session @param {Rows} rows */
export function makeAsk(app, session, rows = rowsOfTexts(session)) {
  const { model } = session;
  const host = part("switches");
  const showHow = segments(part("how"), [
    ["zero", "zero", "A head that is off writes 0 (zero ablation)"],
    ["mean", "mean", "A head that is off writes its mean over validation texts (mean ablation)"],
  ], (how) => {
    model.how = /** @type {How} */ (how);
    session.changed();
  });
  const rowsOfButtons = session.groups.map((group) =>
    headsOf(group).map((place) => {
      const label = titleOf({ ...place, kind: undefined });
      const named = { "aria-label": titleOf(place) };
      const button = make("button", { type: "button", role: "switch", ...named }, label);
      button.addEventListener("click", () => {
        model.toggle(place);
        session.changed();
      });
      return { button, name: nameOf(place) };
    })
  );
  const buttons = rowsOfButtons.flat();
  const all = make("button", { type: "button", id: "all-on" }, "undo all");
  all.addEventListener("click", () => {
    model.off.clear();
    model.rows = [];
    session.changed();
  });
  host.replaceChildren(
    ...rowsOfButtons.flatMap((row, n) => {
      const { kind } = session.groups[n];
      /** @type {HTMLElement[]} */
      const elements = row.map(({ button }) => button);
      return kind
        ? [make("div", null, make("span", { class: "hint" }, kind), ...elements)]
        : elements;
    }),
    all,
  );
  const byHand = makeByHand(app, session);
  const showTime = makeTime(session);

  function render() {
    showHow(model.how, (how) => how === "mean" && !model.knowsMeans);
    for (const { button, name } of buttons) {
      button.setAttribute("aria-checked", String(!model.off.has(name)));
    }
    all.disabled = !model.changed;
    byHand();
    showTime();
    if (app.subjects.length > 1) part("effect").replaceChildren(effect(app, rows));
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
    const place = session.place(layer, head);
    const known = session.model.rowOf(place, query);
    const subject = app.subjects[app.subjects.length - 1];
    const first = subject.begin(query);
    const computed = known?.computed ??
      subject.weights(layer, head).slice(first, first + subject.allowed(query));
    const weights = withWeight(computed, key, Number(slider.value));
    session.model.setRow({ ...place, query, weights, computed, text: session.upTo(query) });
    session.changed();
  });
  reset.addEventListener("click", () => {
    const { layer, head, cell } = app.state;
    session.model.dropRow(session.place(layer, head), cell?.[0] ?? -1);
    session.changed();
  });
  return () => {
    const { layer, head, cell, view, stage } = app.state;
    const subject = app.subjects[app.subjects.length - 1];
    const possible = view === "head" && stage === "weights" && cell !== null && !session.fixed &&
      cell[0] < subject.length;
    hint.hidden = tools.hidden = false;
    if (!possible) {
      tools.hidden = true;
      say(hint, session.fixed || "Click a cell of a head's weights to set its weight by hand.");
      return;
    }
    hint.hidden = true;
    const [query, key] = cell;
    const weight = subject.weights(layer, head)[subject.begin(query) + key];
    const place = session.place(layer, head);
    const [row, column] = subject.sides;
    name.textContent = `${titleOf(place)}: ${row} ${named(subject, query)} → ${column} ` +
      named(subject.columns, key);
    if (document.activeElement !== slider) slider.value = String(weight);
    slider.disabled = subject.allowed(query) === 1;
    value.textContent = short(weight, 3);
    reset.hidden = !session.model.rowOf(place, query);
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

/** What the two subjects predict, side by side. @param {App} app @param {Rows} rows */
function effect(app, rows) {
  const [before, after] = app.subjects;
  const what = makeColumn(make("span", { class: "unseen" }, "what"));
  const compared = [makeColumn("A", before.name), makeColumn("B", after.name)];
  return makeTable("effect", [what, ...compared, makeColumn("B − A")], rows(before, after));
}

/** The loss of the text, and the next characters. @param {Session} session @returns {Rows} */
function rowsOfTexts(session) {
  return (before, after) => {
    const name = session.begin > 0
      ? `loss of the last ${after.length} characters`
      : "loss of the text";
    const same = before.labels.join() === after.labels.join();
    const title = "probability of the next character, which that loss does not contain";
    const heading = make("th", { scope: "rowgroup", colspan: 4 }, title);
    return [
      lossRow(name, before, after, same),
      make("tr", { id: "next-said" }, heading),
      ...nextRows(before, after),
    ];
  };
}

/**
 * The mean surprisals of both, and their difference if the text is the same.
 * @param {string} name
 * @param {Subject} before
 * @param {Subject} after
 * @param {boolean} same
 */
export function lossRow(name, before, after, same) {
  const difference = after.loss - before.loss;
  const change = same && !isNaN(difference) ? `${signed(difference, 3)} nats/char` : "";
  const cells = [before, after].map(({ loss }) => isNaN(loss) ? "–" : decimals(loss, 3));
  return makeRow({ id: "loss" }, name, ...[...cells, change].map((text) => make("td", null, text)));
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
    const change = make("td", null, signed(b[id] - a[id], 3));
    return makeRow(
      null,
      make("span", { class: "term" }, label),
      share(a[id]),
      share(b[id]),
      change,
    );
  });
}
