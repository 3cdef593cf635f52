// @ts-check
// A sortable table of every head's measures and the values of a uniform head.

import { short, signed, uniformOf } from "./numbers.js";
import { make, makeRow, part, placesOf } from "./parts.js";

/** @import { App } from "./parts.js" */

/** @param {App} app */
export function makeMeasures(app) {
  const host = part("measures");
  part("measures-card").hidden = !app.subjects[0].measures.length;
  let sort = -1;
  let drawn = "";

  function render() {
    const { of, layer, head, view } = app.state;
    const now = `${app.changes} ${of} ${sort}`;
    if (now !== drawn && app.subjects[0].measures.length) build();
    drawn = now;
    for (const line of host.querySelectorAll("tbody tr[data-layer]")) {
      const { dataset } = /** @type {HTMLElement} */ (line);
      const same = Number(dataset.layer) === layer && Number(dataset.head) === head;
      line.classList.toggle("here", same && view === "head");
    }
  }

  /** @param {number} n @param {number} layer @param {number} head */
  function numbers(n, layer, head) {
    const pick = (/** @type {"values" | "errors"} */ what) =>
      app.subjects.map((subject) => subject.measures[n]?.[what][layer]?.[head] ?? null);
    const [values, errors] = [pick("values"), pick("errors")];
    if (app.state.of === "b") return { value: values[1], error: errors[1] };
    if (app.state.of !== "diff") return { value: values[0], error: errors[0] };
    const [first, second] = values;
    return { value: first === null || second === null ? null : second - first, error: null };
  }

  function build() {
    const { of } = app.state;
    const [a, b] = app.subjects;
    const subject = of === "b" ? b : a;
    const head = make("tr", null, heading("head", "By layer and head", -1));
    const even = makeRow({ class: "even" }, "uniform");
    subject.measures.forEach(({ title, explained, uniform, windows }, n) => {
      head.append(
        heading(title, `${explained} (${windows === 1 ? "this text" : `${windows} texts`})`, n),
      );
      even.append(
        make("td", null, of === "diff" ? "" : Array.isArray(uniform) ? "/" : short(uniform, 3)),
      );
    });
    const places = placesOf(app, (layer, h) => sort < 0 ? null : numbers(sort, layer, h).value);
    const lines = places.map(({ layer, head: h }) => {
      const kind = subject.payload.kinds?.[layer]?.[h];
      const open = make("button", { type: "button" }, `L${layer} H${h}`);
      const line = makeRow({ "data-layer": layer, "data-head": h }, open);
      if (kind) open.after(make("small", null, ` ${kind}`));
      open.addEventListener("click", () => {
        app.change({ layer, head: h, view: "head", cell: null });
      });
      subject.measures.forEach((measure, n) => {
        const { offsets } = measure;
        const { value, error } = numbers(n, layer, h);
        const offset = offsets && of !== "diff" ? `${offsets[layer][h]}: ` : "";
        const cell = make("td", null, of === "diff" ? signed(value, 3) : offset + short(value, 3));
        if (error !== null) cell.append(make("small", null, ` ± ${short(error, 2)}`));
        if (offset) cell.append(` / ${short(uniformOf(measure, layer, h), 3)}`);
        line.append(cell);
      });
      return line;
    });
    host.replaceChildren(make("thead", null, head), make("tbody", null, even, ...lines));
    part("measures-explained").replaceChildren(
      ...subject.measures.flatMap(({ title, explained }) => [
        make("dt", null, title),
        make("dd", null, explained),
      ]),
    );
    const shown = { a: a.name, b: b?.name, both: a.name, diff: `${b?.name} − ${a.name}` }[of];
    const compared = b && b.measures !== a.measures ? [String(shown)] : [];
    part("measures-of").textContent = [...compared, app.data.measured].join(" · ");
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
