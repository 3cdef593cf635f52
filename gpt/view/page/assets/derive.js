// @ts-check
// Computes from one or two subjects' stages: means of heads, differences, and the terms of a number.

import { LAYER_STAGES, SQUARE } from "./data.js";

/** @import { Matrix, Subject } from "./data.js" */
/** @import { Panel } from "./parts.js" */
/** @import { State } from "./state.js" */
/** @typedef {{name: string, value: number, factors: string}} Term */

/**
 * The matrix that the state selects of a subject, or the reason why the page cannot show it.
 * @param {Subject} subject
 * @param {State} state
 * @returns {Matrix | string}
 */
export function matrixOf(subject, state) {
  const { layer, head, stage, view } = state;
  if (subject.detailed(layer) && !subject.knows(stage, layer)) {
    return "This file does not have this stage; the page of gptx live computes it.";
  }
  if (stage !== "weights" && !subject.detailed(layer)) {
    return `To keep this file small, layer ${layer} has its weights only. ` +
      `For its other stages make a page with --layer ${layer}.`;
  }
  if (view === "mean" && !LAYER_STAGES.includes(stage)) return mean(subject, stage, layer);
  return subject.matrix(stage, layer, head);
}

/**
 * The matrices that the state selects: one, or two side by side.
 * @param {Subject[]} subjects
 * @param {State} state
 * @returns {Panel[]}
 */
export function panelsOf(subjects, state) {
  const [a, b] = subjects;
  const { layer, head, stage, view } = state;
  const shared = LAYER_STAGES.includes(stage);
  const which = shared ? "all heads" : view === "mean" ? "mean of heads" : `head ${head}`;
  const title = `layer ${layer} · ${which} · ${stage}`;
  const of = (/** @type {Subject} */ subject) => {
    const off = view === "head" && !shared && subject.replacement(layer, Number(head));
    return off ? title.replace(which, `${which}, switched off`) : title;
  };
  const single = (/** @type {Subject} */ subject) => ({
    title: (subjects.length > 1 ? `${subject.name} · ` : "") + of(subject),
    subject,
    matrix: matrixOf(subject, state),
  });
  if (state.of === "a") return [single(a)];
  if (state.of === "b") return [single(b)];
  if (state.of === "both") return [single(a), single(b)];
  const [before, after] = [matrixOf(a, state), matrixOf(b, state)];
  const matrix = typeof before === "string"
    ? before
    : typeof after === "string"
    ? after
    : difference(before, after);
  return [{ title: `${b.name} − ${a.name} · ${title}`, subject: b, matrix }];
}

/**
 * The mean of a layer's heads.
 * @param {Subject} subject
 * @param {string} stage
 * @param {number} layer
 * @returns {Matrix}
 */
export function mean(subject, stage, layer) {
  return subject.remember(`mean ${stage} ${layer}`, () => {
    const first = subject.matrix(stage, layer, 0);
    const values = new Float64Array(first.values.length);
    for (let head = 0; head < subject.heads; head++) {
      const added = subject.matrix(stage, layer, head).values;
      for (let i = 0; i < values.length; i++) values[i] += added[i];
    }
    for (let i = 0; i < values.length; i++) values[i] /= subject.heads;
    return { ...first, values };
  });
}

/** b − a. @param {Matrix} a @param {Matrix} b @returns {Matrix} */
function difference(a, b) {
  const values = b.values.map((value, i) => value === a.values[i] ? 0 : value - a.values[i]);
  return { ...a, values, kind: "difference" };
}

/**
 * The terms of a cell and the name of their sum; null if the cell is not a plain sum.
 * @param {Subject} subject
 * @param {State} state
 * @param {number} row
 * @param {number} column
 * @param {(position: number) => string} name of a key
 * @param {(value: number) => string} written
 * @returns {{sum: string, of: string, terms: Term[]} | null}
 */
export function termsOf(subject, state, row, column, name, written) {
  const { layer, stage } = state;
  const D = subject.headSize;
  if (!subject.detailed(layer)) return null;
  if (stage === "resid_mid") {
    const at = row * subject.width + column;
    const terms = ["resid_pre", "proj"].map((name) => {
      return { name, value: subject.detail(name, layer)[at], factors: name };
    });
    return { sum: "resid_mid", of: "resid_pre + proj", terms };
  }
  const joined = stage === "concat";
  const head = joined ? Math.floor(column / D) : state.head;
  if ((joined || stage === "context") && subject.replacement(layer, head)) return null;
  if (stage === "context" || joined) {
    const d = joined ? column % D : column;
    const [weights, v] = [subject.weights(layer, head), subject.detail("v", layer, head)];
    const count = row + 1;
    const terms = Array.from({ length: count }, (_, j) => {
      const [weight, value] = [weights[subject.begin(row) + j], v[j * D + d]];
      const factors = `weight ${written(weight)} × v ${written(value)}`;
      return { name: name(j), value: weight * value, factors };
    });
    return { sum: stage, of: `weight × v over ${count} keys`, terms };
  }
  if (!SQUARE.includes(stage)) return null;
  const [q, k] = [subject.detail("q", layer, head), subject.detail("k", layer, head)];
  const terms = Array.from({ length: D }, (_, d) => {
    const [query, key] = [q[row * D + d], k[column * D + d]];
    const factors = `q ${written(query)} × k ${written(key)}`;
    return { name: `dimension ${d}`, value: query * key, factors };
  });
  return { sum: "q·k", of: `q ⊙ k over ${D} dimensions`, terms };
}
