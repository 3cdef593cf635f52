// @ts-check
// What does not change while one looks: names, origin, how exact the numbers are, their checks, keys.

import { make, part } from "./parts.js";

/** @typedef {import("./parts.js").App} App */

const KEYS = [
  ["← ↑ → ↓", "move between cells of the matrix, characters of the text, heads"],
  ["Enter, Space", "pin the cell or the character"],
  ["Escape", "let go of all that is pinned"],
  ["[ ]", "head before, next head"],
  ["{ }", "layer before, next layer; in the matrix also Page Up, Page Down"],
  ["1 – 8", "stages, from q·k to the residual"],
  ["?", "this list"],
];
/** @param {App} app */
export function introduce({ data, subjects }) {
  part("title").textContent = data.title;
  const shapes = subjects.map((subject) => {
    const shape = `${subject.layers} layers × ${subject.heads} heads × ${subject.headSize}`;
    return `${subject.name} · ${shape}`;
  });
  const tags = subjects.length > 1 ? ["A  ", "B  "] : [""];
  const lines = shapes.map((shape, n) => make("p", null, tags[n] + shape));
  part("subjects").replaceChildren(...lines);
  part("symbols").textContent = data.legend.join(" · ");
  const T = data.codes.length;
  part("precision").textContent = `${T} character${T > 1 ? "s" : ""} · ` +
    `numbers are float${data.bits}${data.bits === 16 ? " (about three digits)" : ""}`;
  const left = [
    ...new Set(
      subjects.flatMap((subject) =>
        Array.from({ length: subject.layers }, (_, n) => n).filter((n) => !subject.detailed(n))
      ),
    ),
  ].sort((a, b) => a - b);
  part("left-out").hidden = !left.length;
  part("left-out").textContent = "To keep this file small, it has only the weights of layer" +
    `${left.length > 1 ? "s" : ""} ${left.join(", ")}: no scores, context or residual. ` +
    `For these, make a page with --layer ${left[0] ?? 0}${left.length > 1 ? " (or another)" : ""}.`;
  part("checks").replaceChildren(...subjects.flatMap(({ name, payload }) => {
    const title = subjects.length > 1 ? [make("h3", null, name)] : [];
    const items = payload.checks.map(({ name, error, bound, passed }) => {
      const size = error === null ? "not finite" : error.toExponential(1).replace("e-", "e−");
      const limit = bound ? `≤ ${bound.toExponential(1).replace("e-", "e−")}` : "exactly";
      return make(
        "li",
        { class: passed ? "passed" : "failed" },
        `${passed ? "✓" : "✗ failed:"} ${name}`,
        make("small", null, ` ${error ? size : "0"} ${limit}`),
      );
    });
    const origin = Object.entries(payload.origin).map(([key, value]) => `${key} ${value}`);
    return [
      ...title,
      make("ul", null, ...items),
      make("p", { class: "origin" }, origin.join(" · ")),
    ];
  }));
  const failed = subjects.flatMap(({ payload }) => payload.checks).some(({ passed }) => !passed);
  part("alarm").hidden = !failed;
  part("version").textContent = `made by gptx ${data.version}`;
  part("help-keys").replaceChildren(
    ...KEYS.flatMap(([keys, does]) => [make("dt", null, keys), make("dd", null, does)]),
  );
}
