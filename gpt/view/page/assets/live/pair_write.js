// @ts-check
// What the next character of a target is drawn from, and what two models write.

import { SHAPING } from "../model/sampler.js";
import { make, makeRow, part, say } from "../parts.js";
import { lossRow } from "./ask.js";
import { BEFORE_TARGET } from "./pair_session.js";
import { drawList } from "./write.js";

/** @typedef {import("../data.js").Subject} Subject */
/** @typedef {import("../payload.js").Pair} Pair */
/** @typedef {import("./pair_session.js").PairSession} PairSession */

/** The card "How it writes". @param {PairSession} session */
export function makeDrawn(session) {
  const showList = drawList();
  /** @param {Subject} subject @param {(pair: Pair) => number} rowOf */
  return (subject, rowOf) => {
    const { pair } = subject.payload;
    if (!pair) return;
    const row = rowOf(pair);
    const size = session.data.vocabulary.length;
    const scores = Float64Array.from(pair.logits.subarray(row * size, (row + 1) * size));
    const { options } = session;
    const drawing = { ...options.drawing };
    const greedy = drawing.temperature === 0;
    if (greedy) { // the model's own probabilities, of which the largest is taken
      for (const name of SHAPING) Object.assign(drawing, { [name]: null });
      drawing.temperature = 1;
    } else { // these are never drawn
      for (const each of [BEFORE_TARGET, ...session.data.unwritten]) {
        scores[session.ids.get(each) ?? -1] = -Infinity;
      }
    }
    const labels = session.data.vocabulary_labels;
    const { first, drawable } = showList(labels, scores, drawing);
    const before = session.spell("target", pair.read.labels.slice(Math.max(0, row - 9), row + 1));
    const shaping = greedy
      ? "temperature 0 takes the likeliest; filters have no effect."
      : `at temperature ${options.values.temperature}, ${drawable}.`;
    say(part("draw-said"), `After ${before} the likeliest is '${labels[first]}'; ${shaping}`);
  };
}

/** The comparison of two subjects. @param {PairSession} session @returns {import("./ask.js").Rows} */
export function rowsOfPairs(session) {
  return (before, after) => {
    const pairs = [before, after].map(({ payload: { pair } }) => pair);
    const written = pairs.map((pair) => session.spell("target", pair?.expected ?? []));
    const sources = pairs.map((pair) => session.spell("source", pair?.source.labels ?? []));
    const same = written[0] === written[1] && sources[0] === sources[1];
    return [
      makeRow(
        { id: "written" },
        session.own ? "target" : "writes",
        ...written.map((text) => make("td", null, text)),
        make("td", null, written[0] === written[1] ? "the same" : "differs"),
      ),
      lossRow("loss of the target", before, after, same),
    ];
  };
}
