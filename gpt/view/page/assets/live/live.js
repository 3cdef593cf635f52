// @ts-check
// The page of a model: opens it, proves it, and draws what it computes of the text. Shows nothing but
// the reason if the file is damaged or this browser computes other numbers.

import { unpack } from "../numbers.js";
import { drawable, make, part } from "../parts.js";
import { makeView } from "../view.js";
import { makeAsk } from "./ask.js";
import { Client } from "./client.js";
import { Editor } from "./editor.js";
import { Session } from "./session.js";
import { makeWrite } from "./write.js";

/** @typedef {import("../payload.js").Payload} Payload */
/** @typedef {import("./session.js").Own} Own */

const SETTINGS = ["off", "how", "step", "only", "text"]; // in the address, beside the options

/** Shows nothing but a reason. @param {string} reason */
function refuse(reason) {
  document.querySelector("main")?.setAttribute("hidden", "");
  document.querySelector("footer")?.setAttribute("hidden", "");
  part("precision").textContent = "";
  const notice = part("notice");
  notice.hidden = false;
  notice.className = "failed";
  notice.replaceChildren(
    make("strong", null, "This page shows no numbers. "),
    reason,
    " Make the page again with gptx live.",
  );
}

/** @param {Payload & Own & {model: object}} data */
function start(data) {
  if (!drawable("␠")) {
    data.vocabulary_labels = data.vocabulary_labels.map((label) => label === "␠" ? "␣" : label);
    data.vocabulary_legend = data.vocabulary_legend.map((text) => text.replace("␠", "␣"));
  }
  if (!getComputedStyle(document.documentElement).getPropertyValue("--card")) {
    throw new Error("Its style is damaged.");
  }
  data.stored = [data.stored, ...data.left_out].join(". ");
  const means = data.models.map(({ means }) => means ? byHead(unpack(means), data) : []);
  /** @type {ReturnType<typeof makeView> | null} */
  let view = null;
  const client = new Client(/** @type {any} */ (globalThis).WORKER, refuse);
  const session = new Session(data, client, means, (subjects) => {
    data.legend = legendOf(data, subjects);
    if (view) view.show(subjects);
    else {
      part("notice").hidden = true;
      document.querySelector("main")?.removeAttribute("hidden");
      document.querySelector("footer")?.removeAttribute("hidden");
      view = makeView(data, subjects, "b", additions);
      addEventListener("hashchange", restore); // after the view, which reads the address
    }
    editor.render();
  });
  const editor = new Editor(session, () => session.changed());
  const additions = {
    settings: [...SETTINGS, ...data.options.map(({ name }) => name)],
    parts: (/** @type {import("../parts.js").App} */ app) => [
      makeAsk(app, session),
      makeWrite(app, session),
    ],
    keys: [{
      key: "x",
      name: "x",
      does: "switch the shown head off or on",
      act() {
        const state = view?.app.state;
        if (state?.view !== "head") return;
        session.model.toggle(state.layer, state.head);
        session.changed();
      },
    }],
  };
  const share = /** @type {HTMLInputElement} */ (part("share"));
  const write = () => {
    const app = view?.app;
    const more = toSettings(session, share.checked);
    if (app && JSON.stringify(app.state.more) !== JSON.stringify(more)) app.change({ more });
  };
  session.changed = () => {
    write();
    session.ask();
  };
  session.drawn = () => {
    write();
    editor.render();
  };
  share.addEventListener("change", write);
  /** Takes the settings of another address; its text only when the page opens. */
  function restore() {
    const more = view?.app.state.more;
    if (!more || JSON.stringify(more) === JSON.stringify(toSettings(session, share.checked))) {
      return;
    }
    client.stop();
    fromSettings(session, more);
    session.ask();
  }
  client.open(data.model).then(() => {
    const said = new URLSearchParams(location.hash.slice(1));
    const more = Object.fromEntries(additions.settings.map((name) => [name, said.get(name) ?? ""]));
    fromSettings(session, more);
    share.checked = more.text !== "";
    editor.input.value = more.text || data.text;
    session.read(editor.input.value);
    session.ask();
  });
}

/** @param {Float32Array} values (L, H, D) @param {Own} data */
function byHead(values, { layers, heads, head_size }) {
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) => {
      const first = (layer * heads + head) * head_size;
      return values.slice(first, first + head_size);
    }));
}

/** Explanations of the symbols that the texts need. @param {Own} data @param {import("../data.js").Subject[]} subjects */
function legendOf({ vocabulary, vocabulary_legend }, subjects) {
  const used = new Set(subjects.flatMap(({ codes }) => codes));
  const found = vocabulary_legend.filter((text, id) => text && used.has(vocabulary[id]));
  return [...new Set(found)];
}

/** @param {Session} session @param {boolean} share */
function toSettings({ model, options, data, text }, share) {
  /** @type {Record<string, string>} */
  const more = {
    off: [...model.off].join(),
    how: model.how === "zero" ? "" : model.how,
    step: model.step === data.models.length - 1 ? "" : String(data.models[model.step].step),
    only: options.only ?? "",
    text: share ? text : "",
  };
  for (const { name } of data.options) {
    const value = options.values[name];
    more[name] = value === options.defaults[name] ? "" : String(value ?? "none");
  }
  return more;
}

/** @param {Session} session @param {Record<string, string>} more */
function fromSettings({ model, options, data }, more) {
  const heads = more.off.split(",").filter((name) => /^\d{1,3}\.\d{1,3}$/.test(name));
  const inside = heads.filter((name) => {
    const [layer, head] = name.split(".").map(Number);
    return layer < data.layers && head < data.heads;
  });
  model.off = new Set(inside);
  const step = data.models.findIndex(({ step }) => String(step) === more.step);
  model.step = step < 0 ? data.models.length - 1 : step;
  model.how = more.how === "mean" && model.means[model.step].length ? "mean" : "zero";
  options.only = data.counts && (more.only === "gpt" || more.only === "counting")
    ? more.only
    : null;
  for (const { name } of data.options) {
    const text = more[name] === "none" ? "" : more[name];
    if (more[name] === "" || !options.take(name, text)) options.set(name, options.defaults[name]);
    else options.set(name, options.values[name]);
  }
}

addEventListener("error", ({ error, message }) => {
  if (error) refuse(`The program of the page failed: ${message}.`); // none: a ResizeObserver's note
});
addEventListener(
  "unhandledrejection",
  ({ reason }) => refuse(`The program of the page failed: ${reason}.`),
);
start(JSON.parse(part("data").textContent ?? ""));
