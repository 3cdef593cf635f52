// @ts-check
// The page of a fixed text: reads its data and draws it.

import { Subject } from "./data.js";
import { part } from "./parts.js";
import { makeView } from "./view.js";

/** @type {import("./payload.js").Payload & import("./payload.js").Text &
 *   {subject: import("./payload.js").SubjectPayload}} */
const data = JSON.parse(part("data").textContent ?? "");
makeView(data, [new Subject(data.subject, data)], {
  settings: [],
  opening:
    "What every head of this model reads of the text. Point at a character, or click one to keep it; " +
    "click a head, a cell.",
  parts: () => [],
  keys: [],
});
