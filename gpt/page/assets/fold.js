// @ts-check
// What the model reads for characters that it does not know: those that mean the same. The twin of
// `fold` in gpt/vocabulary.py, whose table is in the page's data.

/** Unknown character -> the known one, where a quotation mark opens and elsewhere.
 * @typedef {Record<string, [string, string]>} Folds */
/** A part of a text, its place there, and the characters that the model reads for it.
 * @typedef {{place: number, typed: string, read: string[]}} Unit */

const LETTERS = /(?:[\u1100-\u11ff]+|[^])\p{M}*/gu; // with their marks; parts of Korean syllables
/** What stands before a quotation mark that opens; before one that may open in a word. */
const OPENING = /(?:^|[\s([{<¿¡])['’‘‚‛ʼ′´`"”“„‟″]*$/;
const IN_WORD = /[-‐‑–—―]['’‘‚‛ʼ′´`"”“„‟″]*$/;

/**
 * @param {string} text
 * @param {Map<string, number>} ids of the known characters
 * @param {Folds} folds
 * @returns {Unit[]}
 */
export function unitsOf(text, ids, folds) {
  const known = (/** @type {string[]} */ part) => part.every((each) => ids.has(each));
  const units = [];
  let place = 0;
  for (const { 0: typed, index } of text.matchAll(LETTERS)) {
    const letter = Array.from(typed);
    const forms = [letter, ...["NFC", "NFD"].map((form) => Array.from(typed.normalize(form)))];
    const before = text.slice(Math.max(0, index - 9), index);
    const inWord = IN_WORD.test(before) && /^\S/.test(text.slice(index + 1));
    const other = OPENING.test(before) || inWord ? 0 : 1;
    const read = (forms.find(known) ?? forms[1])
      .map((each) => ids.has(each) ? each : folds[each]?.[other] ?? each);
    units.push({ place, typed, read });
    place += letter.length;
  }
  return units;
}

/** "the model reads ’ for '", of parts that it knows; nothing if there are none.
 * @param {Unit[]} units @param {Map<string, number>} ids */
export function foldedNote(units, ids) {
  const changed = units.filter(({ typed, read }) =>
    read.join("") !== typed && read.every((each) => ids.has(each))
  );
  const pairs = new Set(changed.map(({ typed, read }) => `${read.join("")} for ${typed}`));
  return pairs.size ? `the model reads ${[...pairs].slice(0, 8).join(", ")}` : "";
}
