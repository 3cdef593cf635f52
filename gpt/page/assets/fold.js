// @ts-check
// Replaces characters that the model does not know by known ones with the same meaning, as `fold` in
// gpt/vocabulary.py does. The page's data has the table.

/** Unknown character -> the known one where a quotation mark opens, and the known one elsewhere.
 * @typedef {Record<string, [string, string]>} Folds */
/** A letter with its marks. place: its position in the text. typed: the letter in the text. read: the characters
 * that the model reads for the letter. @typedef {{place: number, typed: string, read: string[]}} Unit */

const LETTERS = /(?:[\u1100-\u11ff]+|[^])\p{M}*/gu; // a letter with its marks, or the parts of Korean syllables
/** Matches the text before an opening quotation mark. */
const OPENING = /(?:^|[\s([{<¿¡])['’‘‚‛ʼ′´`"”“„‟″]*$/;
/** Matches the text before a quotation mark that opens if no space follows it. */
const IN_WORD = /[-‐‑–—―]['’‘‚‛ʼ′´`"”“„‟″]*$/;

/**
 * @param {string} text
 * @param {Map<string, number>} ids of the known characters
 * @param {Folds} folds
 * @returns {Unit[]}
 */
export function unitsOf(text, ids, folds) {
  const known = (/** @type {string[]} */ letter) => letter.every((sign) => ids.has(sign));
  const units = [];
  let place = 0;
  for (const { 0: typed, index } of text.matchAll(LETTERS)) {
    const letter = Array.from(typed);
    const forms = [letter, ...["NFC", "NFD"].map((form) => Array.from(typed.normalize(form)))];
    const before = text.slice(Math.max(0, index - 9), index);
    const inWord = IN_WORD.test(before) && /^\S/.test(text.slice(index + 1));
    const other = OPENING.test(before) || inWord ? 0 : 1;
    const read = (forms.find(known) ?? forms[1])
      .map((sign) => ids.has(sign) ? sign : folds[sign]?.[other] ?? sign);
    units.push({ place, typed, read });
    place += letter.length;
  }
  return units;
}

/** Says which characters were replaced: "the model reads ' for ’"; "" if none was.
 * @param {Unit[]} units @param {Map<string, number>} ids */
export function foldedNote(units, ids) {
  const changed = units.filter(({ typed, read }) =>
    read.join("") !== typed && read.every((sign) => ids.has(sign))
  );
  const pairs = new Set(changed.map(({ typed, read }) => `${read.join("")} for ${typed}`));
  return pairs.size ? `the model reads ${[...pairs].slice(0, 8).join(", ")}` : "";
}
