// @ts-check
// Turns the text of the text field into the ids that the model reads.

import { foldedNote, unitsOf } from "./fold.js";
import { beforeAll, windowStart } from "./model/sampler.js";

/** @import { PageData } from "./model/protocol.js" */
/**
 * A text and its window, which is the end that the model reads. typed: the text's characters. ids,
 * characters: those of the window. places: the positions of these in `typed`; -1: the line break that
 * stands for an empty text. unknown: positions of unknown characters. begin: the number of known
 * characters before the window. note: what the page tells the user about the reading.
 * @typedef {{typed: string[], ids: number[], characters: string[], places: number[],
 *   unknown: Set<number>, begin: number, note: string}} Typed
 */

/** Makes the function that reads texts for a model. @param {PageData} data @returns {(text: string) => Typed} */
export function makeTyped({ vocabulary, folds, model }) {
  const known = new Map(vocabulary.map((character, id) => [character, id]));
  return (text) => {
    const units = unitsOf(text, known, folds);
    /** @type {number[]} */
    let ids = [];
    /** @type {number[]} */
    let places = [];
    /** @type {Set<number>} */
    const unknown = new Set();
    for (const { place, typed, read } of units) {
      const readIds = read.map((character) => known.get(character));
      if (readIds.every((id) => id !== undefined)) {
        ids.push(.../** @type {number[]} */ (readIds));
        places.push(...readIds.map((_, n) => place + Math.min(n, Array.from(typed).length - 1)));
      } else Array.from(typed).forEach((_, n) => unknown.add(place + n));
    }
    const typed = Array.from(text);
    const notes = [foldedNote(units, known)];
    if (unknown.size) {
      const names = [...new Set([...unknown].map((place) => typed[place]))].slice(0, 4);
      notes.push(`not in this model’s vocabulary, left out: ${names.join(" ")}`);
    }
    if (!ids.length) [ids, places] = [[beforeAll(vocabulary)], [-1]];
    const begin = windowStart(ids.length, model.config.block_size);
    if (begin) {
      notes.push(
        `the model reads only the last ${ids.length - begin} characters`,
      );
    }
    return {
      typed,
      ids: ids.slice(begin),
      characters: ids.slice(begin).map((id) => vocabulary[id]),
      places: places.slice(begin),
      unknown,
      begin,
      note: notes.filter(Boolean).join(" · "),
    };
  };
}
