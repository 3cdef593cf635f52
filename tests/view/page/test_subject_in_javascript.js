// @ts-check
// Functions for test_subject_in_javascript.py.

import { Subject } from "../../../gpt/view/page/assets/data.js";
import { matrixOf, termsOf } from "../../../gpt/view/page/assets/derive.js";
import { settled } from "../../../gpt/view/page/assets/state.js";

/** @import { Payload, SubjectPayload, Text } from "../../../gpt/view/page/assets/payload.js" */
/** @import { State } from "../../../gpt/view/page/assets/state.js" */

/** @typedef {Payload & Text & {subject: SubjectPayload}} Page */

/** @type {State} */
const START = {
  of: "a",
  view: "head",
  layer: 0,
  head: 0,
  stage: "weights",
  scale: "fixed",
  cell: null,
  pins: [],
  next: "",
  against: "",
  more: {},
};

/** @param {Page} payload */
function subjectOf(payload) {
  return new Subject(payload.subject, payload);
}

/** @param {Page} payload @param {Partial<State>} state */
export function matrix(payload, state) {
  return matrixOf(subjectOf(payload), { ...START, ...state });
}

/** The sum of a cell's terms. @param {Page} payload @param {Partial<State>} state
 * @param {number} row @param {number} column */
export function sum(payload, state, row, column) {
  const subject = subjectOf(payload);
  const name = (/** @type {number} */ key) => subject.labels[key];
  const found = termsOf(subject, { ...START, ...state }, row, column, name, String);
  const value = found?.terms.reduce((all, term) => all + term.value, 0);
  return { value, names: found?.terms.map((term) => term.name) };
}

/** The cell that stays pinned. @param {Page} payload @param {Partial<State>} state */
export function pinned(payload, state) {
  return settled({ ...START, ...state }, [subjectOf(payload)]).cell;
}
