// @ts-check
// Functions for test_counting_in_javascript.py.

import { Trie } from "../../../gpt/view/page/assets/model/counting.js";
import { Mixture } from "../../../gpt/view/page/assets/model/gate.js";
import { unpackCounting } from "../../../gpt/view/page/assets/model/tables.js";

/** @import { CountingRecord } from "../../../gpt/view/page/assets/model/tables.js" */
/** @typedef {CountingRecord & {base64: string, gate: number[][]}} Packed */

/** @param {Packed} record */
export function unpacked(record) {
  return unpackCounting(record.base64, record);
}

/** @param {Packed} record */
async function mixtureOf(record) {
  return new Mixture(new Trie(await unpacked(record), record.vocabSize), record.gate);
}

/**
 * What counting says before each character of a text and after the last: (T + 1, V) and (T + 1, 3).
 * @param {Packed} record
 * @param {Int32Array} ids
 */
export async function counted(record, ids) {
  const { trie } = await mixtureOf(record);
  let nodes = [0];
  const all = [trie.predict(nodes)];
  for (const id of ids) all.push(trie.predict(nodes = trie.followed(nodes, id)));
  const same = trie.nodesOf(ids).join() === nodes.join();
  return {
    same,
    chances: Float64Array.from(all.flatMap(({ chances }) => [...chances])),
    about: Float64Array.from(all.flatMap(({ depth, total, kinds }) => [depth, total, kinds])),
  };
}

/**
 * What the GPT, counting and both expect after each character.
 * @param {Packed} record
 * @param {Int32Array} ids
 * @param {Float32Array} logits (T, V)
 */
export async function expected(record, ids, logits) {
  const size = record.vocabSize;
  const mixture = await mixtureOf(record);
  const at = (/** @type {number} */ n) => logits.subarray(n * size, (n + 1) * size);
  let nodes = [0];
  const all = Array.from(ids, (id, n) => {
    nodes = mixture.trie.followed(nodes, id);
    return mixture.predict(at(n), nodes);
  });
  const joined = (/** @type {"gpt" | "counting" | "both"} */ name) =>
    Float64Array.from(all.flatMap((each) => [...each[name]]));
  return {
    gpt: joined("gpt"),
    counting: joined("counting"),
    both: joined("both"),
    weights: Float64Array.from(all.flatMap(({ weights }) => weights)),
    history: all.map(({ length, total, kinds, pairs }) => [length, total, kinds, pairs]),
    scores: mixture.scores(at(ids.length - 1), nodes),
  };
}
