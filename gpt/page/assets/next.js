// @ts-check
// Draws the probabilities of the next character as bars, with and without the heads that are switched
// off; sets temperature and filters; writes text, character by character.

import { byId, choose, inputById, label, make, moveByArrows, setAttr, setText } from "./dom.js";
import { format } from "./format.js";
import { draw } from "./model/sampler.js";

/** @import { App, Shown } from "./app.js" */

const MOST_BARS = 5;
const PACE = 80; // milliseconds from one written character to the next
const LONGEST = 200; // the most characters that one click on Write adds

/** @param {App} app @param {{write: (text: string) => void}} text */
export function makeNext(app, text) {
  const host = byId("bars");
  const bars = Array.from({ length: MOST_BARS }, () => {
    const name = make("code");
    const bar = make("span", { class: "bar" });
    const value = make("code");
    const row = make("div", { role: "radio" }, name, bar, value);
    row.addEventListener("click", () => app.set({ id: Number(row.dataset.id) }));
    host.append(row);
    return { row, name, bar, value };
  });
  moveByArrows(host);
  setOptions(app);
  setWriting(app, text);

  app.parts.push((shown) => {
    const { chances, before, parts } = shown;
    const ids = shownIds(shown);
    setText(byId("next-title"), `Next character${before ? "; dashed: with all heads" : ""}`);
    bars.forEach(({ row, name, bar, value }, n) => {
      const id = ids[n];
      row.hidden = id === undefined;
      if (row.hidden) return;
      const character = label(app.data.vocabulary[id]);
      row.dataset.id = String(id);
      setText(name, character);
      setText(value, format(chances[id]));
      bar.style.setProperty("--now", `${100 * chances[id]}%`);
      bar.style.setProperty("--before", `${100 * (before ?? chances)[id]}%`);
      setAttr(bar, "class", before ? "bar changed" : "bar");
      choose(row, id === parts.id);
      const was = before ? `, before ${format(before[id])}` : "";
      setAttr(row, "aria-label", `${character} ${format(chances[id])}${was}`);
    });
  });
}

/** The ids to show: the likeliest with or without the switched-off heads, and the explained one.
 * @param {Shown} shown */
function shownIds({ chances, before, parts }) {
  const most = chances.map((chance, id) => Math.max(chance, before ? before[id] : 0));
  const ids = [...most.keys()].sort((a, b) => most[b] - most[a]).slice(0, MOST_BARS);
  if (!ids.includes(parts.id)) ids[ids.length - 1] = parts.id;
  return ids;
}

/** @param {App} app */
function setOptions(app) {
  const temperature = inputById("temperature");
  temperature.addEventListener("input", () => {
    setText(byId("degrees"), format(Number(temperature.value)));
    app.set({ options: { ...app.state.options, temperature: Number(temperature.value) } });
  });
  for (const name of ["top_k", "top_p", "min_p"]) {
    const input = inputById(name.replace("_", "-"));
    input.addEventListener("input", () => {
      const value = input.value && input.validity.valid ? Number(input.value) : null;
      app.set({ options: { ...app.state.options, [name]: value } });
    });
  }
}

/** @param {App} app @param {{write: (text: string) => void}} text */
function setWriting(app, text) {
  const button = byId("write");
  let writing = false;
  async function write() {
    writing = true;
    setText(button, "■ Stop");
    app.set({ row: null });
    for (let left = LONGEST; left > 0 && writing; left--) {
      const { shown } = app;
      const begun = performance.now();
      if (shown && shown.row === shown.length - 1 && shown.state.text === app.state.text) {
        const id = draw(shown.chances, Math.random());
        text.write(app.state.text + app.data.vocabulary[id]);
      }
      await app.drawn();
      await new Promise((done) => setTimeout(done, PACE - (performance.now() - begun)));
    }
    writing = false;
    setText(button, "▶ Write");
  }
  button.addEventListener("click", () => writing ? writing = false : void write());
}
