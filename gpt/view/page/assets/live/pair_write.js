// @ts-check
// What the next character of a target is drawn from, and what two models write.

import { SHAPING } from "../model/sampler.js";
import { lossRow } from "../next.js";
import { make, makeRow } from "../parts.js";
import { BEFORE_TARGET } from "./pair_session.js";
import { drawnNext } from "./write.js";

/** @import { Subject } from "../data.js" */
/** @import { Pair } from "../payload.js" */
/** @import { PairSession } from "./pair_session.js" */

/**
 * What a character of a target is drawn from.
 * @param {PairSession} session
 * @param {Pair} pair
 * @param {number} row of the decoder
 */
export function drawnTarget(session, pair, row) {
  const size = session.data.vocabulary.length;
  const scores = Float64Array.from(pair.logits.subarray(row * size, (row + 1) * size));
  const drawing = { ...session.options.drawing };
  const right = pair.expected[row];
  if (drawing.temperature !== 0) { // these are never drawn
    for (const each of [BEFORE_TARGET, ...session.data.unwritten]) {
      scores[session.ids.get(each) ?? -1] = -Infinity;
    }
    return { ...drawnNext(session, scores, drawing, null), right };
  }
  // The model's own probabilities, of which the largest is taken.
  for (const name of SHAPING) Object.assign(drawing, { [name]: null });
  drawing.temperature = 1;
  const said = "Temperature 0 takes the likeliest; filters have no effect.";
  return { ...drawnNext(session, scores, drawing, null), said, right };
}

/** The comparison of two subjects. @param {PairSession} session */
export function rowsOfPairs(session) {
  return (/** @type {Subject} */ before, /** @type {Subject} */ after) => {
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
