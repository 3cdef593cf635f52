// @ts-check
// Functions for test_lesson_page.py.

import { judged, shown } from "../../../gpt/view/page/assets/lesson/guess.js";
import { evaluate, nested } from "../../../gpt/view/page/assets/lesson/rules.js";

/** The numbers of a rule, one after the other. @param {any} rule
 * @param {Record<string, {shape: number[], values: Float64Array}>} tables */
export function ruled(rule, tables) {
  const value = evaluate(rule, (key) => nested([...tables[key].values], tables[key].shape));
  return Float64Array.from([value].flat(Infinity));
}

/** @param {Float64Array} values @param {number} digits */
export function texts(values, digits) {
  return Array.from(values, (value) => shown(value, digits));
}

export { judged };
