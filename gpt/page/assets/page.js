// @ts-check
// Starts the page: reads its data, and makes its parts.

import { App } from "./app.js";
import { byId, quoted, setAttr, setText } from "./dom.js";
import { format } from "./format.js";
import { makeFlow } from "./flow.js";
import { makeMatrix } from "./matrix.js";
import { makeNext } from "./next.js";
import { makePanels } from "./panels.js";
import { makeProducts } from "./products.js";
import { makeSave } from "./save.js";
import { makeText } from "./text.js";
import { makeTour } from "./tour.js";

/** @import { PageData } from "./model/protocol.js" */

const QUIET = 600; // milliseconds without a change after which a screen reader hears the new sentence

/** Shows an error in place of the page. @param {string} reason */
function fail(reason) {
  byId("page").hidden = true;
  byId("tour").hidden = true;
  document.querySelector("nav")?.remove();
  const notice = byId("notice");
  notice.hidden = false;
  setText(notice, reason);
}

/** Shows the system's theme until the user presses the button. @param {() => void} changed */
function makeTheme(changed) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (/** @type {boolean} */ dark) => {
    setAttr(root, "data-theme", dark ? "dark" : "light");
    changed();
  };
  set(system.matches);
  system.addEventListener("change", () => set(system.matches));
  byId("theme").addEventListener("click", () => set(root.dataset.theme !== "dark"));
}

/** @param {PageData} data */
function start(data) {
  const { n_layer, n_head } = data.model.config;
  const alone = data.counts ? "here without the counts that gptx sample adds" : "on its own";
  setText(byId("title"), data.title);
  setText(byId("about"), `a GPT of ${n_layer} layers × ${n_head} heads, ${alone}`);
  const app = new App(data, /** @type {any} */ (globalThis).WORKER, fail);
  makeTheme(() => app.recolour());
  app.begin = () => {
    byId("notice").hidden = true;
    byId("page").hidden = false;
    const text = makeText(app);
    makeNext(app, text);
    makeFlow(app);
    makeMatrix(app);
    makeProducts(app);
    makePanels(app);
    makeSave(app);
    makeTour(app);
    makeSpoken(app);
    addEventListener("resize", () => app.draw());
  };
}

/** Writes the sentence that a screen reader hears after a change. @param {App} app */
function makeSpoken(app) {
  let timer = 0;
  let before = byId("say").textContent;
  app.parts.push(({ chances, parts: { id } }) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const now = byId("say").textContent;
      const next = `Next ${quoted(app.data.vocabulary[id])} ${format(chances[id])}. ${
        byId("cell").textContent
      }`;
      if (now !== before) setText(byId("spoken"), `${now} ${next}`);
      before = now;
    }, QUIET);
  });
}

try {
  start(JSON.parse(byId("data").textContent ?? ""));
} catch {
  fail("The data in this file is damaged.");
}
