// @ts-check
// Fills the panels that buttons open: the logit lens, the measures of all heads, the help.

import { byId, label, make, setAttr, setText } from "./dom.js";
import { css, format, inkOn, tint } from "./format.js";
import { same } from "./app.js";

/** @import { App, Shown } from "./app.js" */
/** @import { Measure } from "./model/protocol.js" */

const KEYS = {
  "← →":
    "in the text, move the caret, which chooses the row; elsewhere, choose another head, bar or stage",
  "arrows": "in the matrix, choose another cell",
  "x": "on the heads, switches the chosen head off or on",
  "Esc": "closes a panel",
};

/** @param {App} app */
export function makePanels(app) {
  for (const name of ["lens", "measures", "save", "help"]) {
    const panel = /** @type {HTMLDialogElement} */ (byId(name));
    const close = make("button", { class: "close", "aria-label": "close" }, "✕");
    close.addEventListener("click", () => panel.close());
    panel.addEventListener("click", ({ target }) => target === panel && panel.close());
    panel.append(close);
    byId(`${name}-open`).addEventListener("click", () => panel.showModal());
  }
  byId("lens-open").addEventListener("click", () => app.set({ lens: true }));
  byId("lens").addEventListener("close", () => app.set({ lens: false }));
  app.parts.push((shown) => drawLens(app, shown));
  makeMeasures(app);
  makeHelp(app);
}

/** Draws the logit lens, from the embedding to the output. @param {App} app @param {Shown} shown */
function drawLens(
  { data: { vocabulary }, hues },
  { answer: { lens }, typed: { characters }, length, row },
) {
  if (!lens) return;
  const depths = lens.ids.length / length;
  const head = make(
    "tr",
    {},
    make("td"),
    ...characters.map((character, at) => {
      return make("th", { scope: "col", class: at === row ? "row" : null }, label(character));
    }),
  );
  const rows = Array.from({ length: depths }, (_, depth) => {
    const name = depth ? `layer ${depth - 1}` : "embedding";
    const cells = characters.map((_, at) => {
      const chance = lens.chances[depth * length + at];
      const cell = make(
        "td",
        { title: format(chance) },
        label(vocabulary[lens.ids[depth * length + at]]),
      );
      const colour = tint(hues, chance);
      cell.style.backgroundColor = css(colour);
      cell.style.color = inkOn(colour);
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, `after ${name}`), ...cells);
  });
  byId("lens-table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  head.querySelector(".row")?.scrollIntoView({ block: "nearest", inline: "center" });
}

/** Makes the table of all heads' measures. The first row is a head with equal weights. @param {App} app */
function makeMeasures(app) {
  const { measures, kinds, measured } = app.data;
  byId("measures-open").hidden = !measures.length;
  if (!measures.length) return;
  setText(
    byId("measured"),
    `Measured on ${measured}. Compare the numbers with “uniform”, a head with equal weights everywhere.`,
  );
  const titles = measures.map(({ title }) => make("th", { scope: "col" }, title));
  const uniform = measures.map((measure) =>
    make("td", {}, Array.isArray(measure.uniform) ? "" : format(measure.uniform, 3))
  );
  const { values } = measures[0];
  const rows = values.flatMap((heads, layer) =>
    heads.map((_, head) => {
      const at = { layer, head };
      const open = make("button", { class: "plain" }, `layer ${layer} head ${head}`);
      open.addEventListener("click", () => {
        app.set({ look: at, key: null });
        /** @type {HTMLDialogElement} */ (byId("measures")).close();
      });
      const kind = make("td", {}, kinds?.[layer]?.[head] ?? "");
      const cells = measures.map((measure) => make("td", {}, cellOf(measure, layer, head)));
      const row = make("tr", {}, make("th", { scope: "row" }, open), kind, ...cells);
      app.parts.push(({ look }) => setAttr(row, "class", same(look, at) ? "row" : null));
      return row;
    })
  );
  byId("measures-table").append(
    make("thead", {}, make("tr", {}, make("td"), make("th", { scope: "col" }, "name"), ...titles)),
    make(
      "tbody",
      {},
      make("tr", {}, make("th", { scope: "row" }, "uniform"), make("td"), ...uniform),
      ...rows,
    ),
  );
  for (const { title, explained } of measures) {
    byId("measures-explained").append(make("dt", {}, title), make("dd", {}, explained));
  }
}

/** The text of a measure's cell. @param {Measure} measure @param {number} layer @param {number} head */
function cellOf({ values, errors, uniform, offsets }, layer, head) {
  const back = offsets ? `${offsets[layer][head]}: ` : "";
  const error = errors[layer][head];
  const even = Array.isArray(uniform) ? ` (${format(uniform[layer][head], 3)})` : "";
  return back + format(values[layer][head], 3) + (error === null ? "" : ` ± ${format(error, 3)}`) +
    even;
}

/** @param {App} app */
function makeHelp(app) {
  const { about, counts, stored, version, origin } = app.data;
  const facts = [
    `${about} This file contains the model. It computes in your browser and sends nothing anywhere.`,
    counts ? "Here the GPT works alone; gptx sample adds counts of the training text to it." : "",
    "The weights show where a head looks, not what effect it has. To see its effect, switch it off: the " +
    "model then uses the head’s average output.",
    `When the page opened, it computed the stored logits again. They differ by at most ${
      app.proof?.error.toExponential(1)
    }; ${app.proof?.bound.toExponential(1)} is allowed. ${stored}`,
    `gptx ${version} · ${
      Object.entries(origin).map(([name, value]) => `${name} ${value}`).join(" · ")
    }`,
  ];
  byId("help-facts").append(...facts.filter(Boolean).map((fact) => make("p", {}, fact)));
  for (const [key, does] of Object.entries(KEYS)) {
    byId("help-keys").append(make("dt", {}, key), make("dd", {}, does));
  }
}
