// @ts-check
// The map of the model, and the page's table of contents. Above: the residual stream from the embedding
// to a logit, with what each part adds to that logit. Below: the stages of the shown layer, in the order
// of the computation; the pressed one is in the matrix.

import { AFTER, BEFORE, OF_FEED_FORWARD, STAGES } from "./data.js";
import { expectedAt } from "./next.js";
import { bySize, short, signed } from "./numbers.js";
import { keptPosition, lead, make, named, part, say } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @typedef {import("./model/contributions.js").Part} ModelPart */

/** @param {App} app */
export function makeMap(app) {
  const host = part("stages");
  const stages = [...BEFORE, ...STAGES, ...AFTER].map(([stage, label, means]) => {
    const shape = make("small", null);
    const n = STAGES.findIndex(([name]) => name === stage) + 1;
    const title = means + (n ? ` (key ${n})` : "");
    const button = make("button", { type: "button", "data-stage": stage, title }, label, shape);
    button.addEventListener("click", () => app.change({ stage }));
    return { stage, button, shape };
  });
  const name = make("span", { class: "hint" });
  host.replaceChildren(name, ...stages.map(({ button }) => button));
  const stream = makeStream(app);
  let shown = "";

  function render() {
    const { stage: chosen, layer } = app.state;
    const subject = lead(app);
    say(name, `layer ${layer}:`);
    for (const { stage, button, shape } of stages) {
      const columns = subject.columnsOf(stage, layer);
      const known = stage !== "ffn_hidden" || subject.knows(stage, layer);
      say(shape, known ? `${subject.length}×${columns}` : "\u00a0");
      button.setAttribute("aria-pressed", String(stage === chosen));
      button.hidden = subject.attentionOnly && OF_FEED_FORWARD.includes(stage);
      button.disabled = !app.drawing && subject.detailed(layer) && !subject.knows(stage, layer);
    }
    stream();
    if (shown === chosen) return;
    shown = chosen; // a narrow window has not room for all: the pressed one stands in the middle
    const pressed = stages.find(({ stage }) => stage === chosen)?.button;
    host.scrollLeft = (pressed?.offsetLeft ?? 0) - host.offsetLeft - host.clientWidth / 2;
  }
  return { host, render, late: true };
}

/** The residual stream: the function draws it again. @param {App} app */
function makeStream(app) {
  const host = part("stream");
  return () => {
    const subject = lead(app);
    const { layer: chosen, next, against } = app.state;
    const position = keptPosition(app);
    const found = subject.contributions(position, next, against);
    const parts = found?.parts ?? partsWithoutNumbers(subject);
    const most = Math.max(...parts.map(({ value }) => Math.abs(value)), 1e-9);
    /** @type {Map<number | null, HTMLElement[]>} */
    const groups = new Map();
    for (const each of parts) {
      const group = groups.get(each.layer) ?? [];
      group.push(partOf(app, each, most, found ? logitOf(found) : ""));
      groups.set(each.layer, group);
    }
    const grouped = (/** @type {Node[]} */ ...inside) => make("div", { class: "group" }, ...inside);
    const layers = [...groups].filter(([layer]) => layer !== null).map(([layer, inside]) => {
      const means = "its stages, in the row below";
      const how = { type: "button", class: "layer", title: means };
      const name = make("button", how, `layer ${layer}`);
      name.setAttribute("aria-pressed", String(layer === chosen));
      name.addEventListener("click", () => app.change({ layer: layer ?? 0, cell: null }));
      return grouped(name, make("div", null, ...inside));
    });
    const [embedding, ...bias] = groups.get(null) ?? [];
    const sum = found
      ? make(
        "div",
        { class: "sum" },
        make("strong", null, `${logitOf(found)} = ${short(found.logit, 4)}`),
        lessThan(app, subject, position, found),
        make(
          "small",
          null,
          `after ${named(subject, position)}; the parts sum to it`,
        ),
      )
      : null;
    const row = make(
      "div",
      { class: "row" },
      make("span", { class: "hint" }, found ? "each adds:" : "the model:"),
      ...embedding ? [grouped(embedding)] : [],
      ...layers,
      ...bias.length ? [grouped(...bias)] : [],
      ...sum ? [] : [grouped(make("small", null, "logits"))],
    );
    host.replaceChildren(row, ...sum ? [sum] : []);
  };
}

/** "logit of 'e' − logit of 'a'" @param {{label: string, less: string}} found */
function logitOf({ label, less }) {
  return `logit of '${label}'` + (less && ` − logit of '${less}'`);
}

/** Chooses the character whose logit is taken away. @param {App} app
 * @param {import("./data.js").Subject} subject @param {number} position
 * @param {{label: string, less: string}} found labels of the character, and of that one if there is one */
function lessThan(app, subject, position, { label: explained, less }) {
  const { against } = app.state;
  const likely = expectedAt(app, subject, position).first;
  /** @type {{character: string, label: string}[]} */
  const others = likely.filter(({ label }) => label !== explained);
  if (less && others.every(({ character }) => character !== against)) {
    others.push({ character: against, label: less });
  }
  const options = [{ character: "", label: "" }, ...others].map(({ character, label }) => {
    const option = make("option", { value: character }, label && `less that of '${label}'`);
    option.selected = character === against;
    return option;
  });
  const select = make("select", { "aria-label": "less the logit of" }, ...options);
  options[0].textContent = "less that of …";
  select.addEventListener("change", () => app.change({ against: select.value }));
  return select;
}

/** "5 'y' +1.770 · …": the characters from which a head takes most. @param {Float64Array} sources
 * @param {import("./data.js").Subject} subject */
function mostOf(sources, subject) {
  const most = bySize(sources).slice(0, 3);
  return most.map((at) => `${named(subject, at)} ${signed(sources[at], 3)}`).join(" · ");
}

/** The parts of a model whose contributions are not known. @param {import("./data.js").Subject} subject
 * @returns {ModelPart[]} */
function partsWithoutNumbers({ layers, heads, attentionOnly }) {
  const of = (/** @type {ModelPart["kind"]} */ kind, /** @type {Partial<ModelPart>} */ where) => {
    return { kind, layer: null, head: null, value: 0, ...where };
  };
  const inLayer = (/** @type {number} */ layer) => [
    ...Array.from({ length: heads }, (_, head) => of("head", { layer, head })),
    ...attentionOnly ? [] : [of("ffn", { layer })],
  ];
  return [of("embedding", {}), ...Array.from({ length: layers }, (_, n) => inLayer(n)).flat()];
}

/**
 * A part with what it adds: chooses the head, or the stage that it is.
 * @param {App} app
 * @param {ModelPart} part
 * @param {number} most of all parts
 * @param {string} logit to which it adds; "" if the values are not known
 */
function partOf(app, { kind, layer, head, value, sources }, most, logit) {
  const [name, long] = {
    embedding: ["embedding", "embedding"],
    head: [`H${head}`, `head ${head}`],
    bias: ["bias", "bias"],
    ffn: ["ff", "feed-forward"],
    ffn_bias: ["bias", "bias of feed-forward"],
  }[kind];
  const title = (layer === null ? "" : `layer ${layer} `) +
    long +
    (logit ? `: adds ${signed(value, 4)} to the ${logit}` : "") +
    (sources ? `; ${mostOf(sources, lead(app))}` : "");
  const button = make(
    "button",
    { type: "button", class: value < 0 ? "part negative" : "part", title, "aria-label": title },
    name,
    ...logit ? [make("small", null, signed(value, 2))] : [],
  );
  button.style.setProperty("--share", `${Math.round(60 * Math.abs(value) / most)}%`);
  button.dataset.value = String(value);
  const { state } = app;
  const here = state.view === "head" && head === state.head && layer === state.layer;
  button.setAttribute("aria-pressed", String(here));
  button.disabled = kind.endsWith("bias");
  button.addEventListener("click", () => {
    const stage = kind === "head" ? "weights" : kind === "ffn" ? "ffn" : "resid_pre";
    const chosen = head ?? app.state.head;
    app.change({ layer: layer ?? 0, head: chosen, view: "head", stage, cell: null });
  });
  return button;
}
