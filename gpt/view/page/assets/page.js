// @ts-check
// The page of a fixed text: reads its data and draws it.

import { Subject } from "./data.js";
import { drawable, part } from "./parts.js";
import { makeView } from "./view.js";

/** @type {import("./payload.js").Payload & import("./payload.js").Text} */
const data = JSON.parse(part("data").textContent ?? "");
if (!drawable("␠")) {
  const others = data.subjects.flatMap(({ lens, experts, columns }) => [lens, experts, columns]);
  for (const labelled of [data, ...others]) {
    if (!labelled) continue;
    labelled.labels = labelled.labels.map((text, n) => labelled.codes[n] === 32 ? "␣" : text);
  }
  data.legend = data.legend.map((text) => text.replace("␠ space", "␣ space"));
}
makeView(data, data.subjects.map((subject) => new Subject(subject, data)), "diff", {
  settings: [],
  parts: () => [],
  keys: [],
});
