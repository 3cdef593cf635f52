// @ts-check
// From what is in the text field to what the model reads.

import { foldedNote, unitsOf } from "./fold.js";
import { beforeAll, windowStart } from "./model/sampler.js";

/** @import { PageData } from "./model/protocol.js" */
/**
 * A text as the model reads it. typed: its characters; ids: of the window; characters: of the window,
 * as the model knows them; places: of the window's characters in `typed`, -1 for a line break that is
 * read before an empty text; unknown: places of characters that the model does not know; begin: how
 * many read characters are before the window; note: what is said about all this.
 * @typedef {{typed: string[], ids: number[], characters: string[], places: number[],
 *   unknown: Set<number>, begin: number, note: string}} Typed
 */

/** Reads texts for one model. @param {PageData} data @returns {(text: string) => Typed} */
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
      const found = read.map((character) => known.get(character));
      if (found.every((id) => id !== undefined)) {
        ids.push(.../** @type {number[]} */ (found));
        places.push(...found.map((_, n) => place + Math.min(n, Array.from(typed).length - 1)));
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
        `the model sees the last ${ids.length - begin} characters; it moves on by half a context`,
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
