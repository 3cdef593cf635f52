// @ts-check
// A sortable table of every head's measures and the values of a uniform head.

import { short, uniformOf } from "./numbers.js";
import { make, makeRow, part, placesOf } from "./parts.js";

/** @import { App } from "./parts.js" */

/** @param {App} app */
export function makeMeasures(app) {
  const host = part("measures");
  const [{ measures, payload: { kinds } }] = app.subjects;
  part("measures-card").hidden = !measures.length;
  part("measures-of").textContent = app.data.measured;
  part("measures-explained").replaceChildren(
    ...measures.flatMap(({ title, explained }) => [
      make("dt", null, title),
      make("dd", null, explained),
    ]),
  );
  let sort = -1;
  let drawn = NaN;

  function render() {
    const { layer, head, view } = app.state;
    if (sort !== drawn && measures.length) build();
    drawn = sort;
    for (const line of host.querySelectorAll("tbody tr[data-layer]")) {
      const { dataset } = /** @type {HTMLElement} */ (line);
      const same = Number(dataset.layer) === layer && Number(dataset.head) === head;
      line.classList.toggle("here", same && view === "head");
    }
  }

  function build() {
    const head = make("tr", null, heading("head", "By layer and head", -1));
    const even = makeRow({ class: "even" }, "uniform");
    measures.forEach(({ title, explained, uniform, windows }, n) => {
      head.append(
        heading(title, `${explained} (${windows === 1 ? "this text" : `${windows} texts`})`, n),
      );
      even.append(make("td", null, Array.isArray(uniform) ? "/" : short(uniform, 3)));
    });
    const places = placesOf(app, (layer, h) => sort < 0 ? null : measures[sort].values[layer][h]);
    const lines = places.map(({ layer, head: h }) => {
      const kind = kinds?.[layer]?.[h];
      const open = make("button", { type: "button" }, `L${layer} H${h}`);
      const line = makeRow({ "data-layer": layer, "data-head": h }, open);
      if (kind) open.after(make("small", null, ` ${kind}`));
      open.addEventListener("click", () => {
        app.change({ layer, head: h, view: "head", cell: null });
      });
      for (const measure of measures) {
        const { offsets, values, errors } = measure;
        const offset = offsets ? `${offsets[layer][h]}: ` : "";
        const cell = make("td", null, offset + short(values[layer][h], 3));
        const error = errors[layer][h];
        if (error !== null) cell.append(make("small", null, ` ± ${short(error, 2)}`));
        if (offset) cell.append(` / ${short(uniformOf(measure, layer, h), 3)}`);
        line.append(cell);
      }
      return line;
    });
    host.replaceChildren(make("thead", null, head), make("tbody", null, even, ...lines));
  }

  /** @param {string} title @param {string} explained @param {number} n */
  function heading(title, explained, n) {
    const button = make("button", { type: "button", title: explained }, title);
    button.addEventListener("click", () => {
      sort = n;
      render();
    });
    const order = sort === n ? (n < 0 ? "ascending" : "descending") : "none";
    return make("th", { scope: "col", "aria-sort": order }, button);
  }
  return { host, render };
}
