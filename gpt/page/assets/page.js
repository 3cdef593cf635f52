// @ts-check
// Starts the page.

import { App } from "./app.js";
import { mark, part, quoted, say } from "./dom.js";
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

const QUIET = 600; // milliseconds after which a screen reader hears what has changed

/** Shows one line in place of all numbers. @param {string} reason */
function fail(reason) {
  part("page").hidden = true;
  part("tour").hidden = true;
  document.querySelector("nav")?.remove();
  const notice = part("notice");
  notice.hidden = false;
  say(notice, reason);
}

/** The theme: the system's, until the button changes it. @param {() => void} changed */
function makeTheme(changed) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (/** @type {boolean} */ dark) => {
    mark(root, "data-theme", dark ? "dark" : "light");
    changed();
  };
  set(system.matches);
  system.addEventListener("change", () => set(system.matches));
  part("theme").addEventListener("click", () => set(root.dataset.theme !== "dark"));
}

/** @param {PageData} data */
function start(data) {
  const { n_layer, n_head } = data.model.config;
  const alone = data.counts ? "here without the counts that gptx sample adds" : "on its own";
  say(part("title"), data.title);
  say(part("about"), `a GPT of ${n_layer} layers × ${n_head} heads, ${alone}`);
  const app = new App(data, /** @type {any} */ (globalThis).WORKER, fail);
  makeTheme(() => app.recolour());
  app.begin = () => {
    part("notice").hidden = true;
    part("page").hidden = false;
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

/** What a screen reader hears when the page has changed. @param {App} app */
function makeSpoken(app) {
  let timer = 0;
  let before = part("say").textContent;
  app.parts.push(({ chances, parts: { id } }) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const now = part("say").textContent;
      const next = `Next ${quoted(app.data.vocabulary[id])} ${format(chances[id])}. ${
        part("cell").textContent
      }`;
      if (now !== before) say(part("spoken"), `${now} ${next}`);
      before = now;
    }, QUIET);
  });
}

try {
  start(JSON.parse(part("data").textContent ?? ""));
} catch {
  fail("The data in this file is damaged.");
}
