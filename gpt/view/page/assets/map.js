// @ts-check
// The map of the model: the stages of the shown layer, in the order of the computation. It says which
// stage the matrix shows, and chooses another.

import { STAGES } from "./data.js";
import { part, segments } from "./parts.js";

/** @param {import("./parts.js").App} app */
export function makeMap(app) {
  const host = part("stages");
  const show = segments(
    host,
    STAGES.map(([name, title], n) => [name, title, `${name}: key ${n + 1}`]),
    (stage) => app.change({ stage }),
  );
  STAGES.forEach(([name], n) => host.children[n].setAttribute("data-stage", name));
  return {
    host,
    render() {
      const { stage, view } = app.state;
      show(stage, (each) => view === "rollout" && each !== "weights");
    },
  };
}
