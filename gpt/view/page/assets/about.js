// @ts-check
// The head and the foot of the page: names and precision of the numbers, their origin and checks.

import { count, lead, make, part, say } from "./parts.js";

/** @import { App } from "./parts.js" */

/** Writes the head. @param {App} app */
export function introduce(app) {
  const { data, subjects } = app;
  say(part("title"), data.title);
  const [{ layers, heads, headSize }] = subjects;
  const shape = `${count(layers, "layer")} × ${count(heads, "head")} × ${headSize}`;
  const names = subjects.length > 1 // the title names a single one
    ? subjects.map(({ name }, n) => `${"AB"[n]} ${name}`)
    : [];
  say(part("subjects"), [...names, shape].join(" · "));
  say(part("symbols"), data.legend.join(" · "));
  const written = data.stored ??
    `numbers are float${data.bits}${data.bits === 16 ? " (about three digits)" : ""}`;
  say(part("precision"), `${count(lead(app).length, "character")} · ${written}`);
  part("gpt-alone").hidden = !data.counts;
  const left = [...Array(layers).keys()].filter((n) => !subjects[0].detailed(n));
  const [several, another] = left.length > 1 ? ["s", " (or another)"] : ["", ""];
  part("left-out").hidden = !left.length;
  say(
    part("left-out"),
    `To keep this file small, it has only the weights of layer${several} ${left.join(", ")}: ` +
      "no scores, context or resid_mid. For these, make a page with " +
      `--layer ${left[0] ?? 0}${another}.`,
  );
  const failed = subjects.flatMap(({ payload }) => payload.checks).some(({ passed }) => !passed);
  part("alarm").hidden = !failed;
}

/** The foot. @param {App} app */
export function makeChecks(app) {
  const host = part("checks");
  part("version").textContent = `made by gptx ${app.data.version}`;
  let shown = "";
  function render() {
    const now = JSON.stringify(app.subjects.map(({ name, payload: { checks, origin } }) => {
      return { name, checks, origin };
    }));
    if (now !== shown) host.replaceChildren(...checksOf(app));
    shown = now;
  }
  return { host, render };
}

/** @param {App} app */
function checksOf({ subjects }) {
  return subjects.flatMap(({ name, payload }) => {
    const title = subjects.length > 1 ? [make("h3", null, name)] : [];
    const items = payload.checks.map(({ name, error, bound, passed }) => {
      const written = (/** @type {number} */ number) =>
        number ? number.toExponential(1).replace("e-", "e−") : "0";
      const size = error === null ? "not finite" : written(error);
      let found = ` error ${size}`;
      if (passed && bound === null) found = ` ±${size}`;
      else if (passed) found = bound ? ` ${size} ≤ ${written(bound)}` : ""; // exactly 0: no number
      else if (bound !== null) found += `, allowed ${written(bound)}`;
      return make(
        "li",
        { class: passed ? "passed" : "failed" },
        `${passed ? "✓" : "✗ failed:"} ${name}`,
        make("small", null, found),
      );
    });
    const origin = Object.entries(payload.origin).map(([key, value]) => `${key} ${value}`);
    return [
      ...title,
      make("ul", null, ...items),
      make("p", { class: "origin" }, origin.join(" · ")),
    ];
  });
}
