// @ts-check
// What the model reads for characters that it does not know: those that mean the same. The twin of
// `fold` in gpt/vocabulary.py, whose table is in the page's data.

/** Unknown character -> the known one, where a quotation mark opens and elsewhere.
 * @typedef {Record<string, [string, string]>} Folds */
/** A part of a text, its place there, and the characters that the model reads for it.
 * @typedef {{place: number, typed: string, read: string[]}} Unit */

const LETTERS = /(?:[\u1100-\u11ff]+|[^])\p{M}*/gu; // with their marks; parts of Korean syllables
const LONGEST = 32; // characters of a letter with its marks
const QUOTES = "'’‘‚‛ʼ′´`\"”“„‟″";
const DASHES = "-‐‑–—―"; // quotation marks after these open in a word
const OPENING = /^[\s([{<¿¡]?$/; // what is before a quotation mark that opens

/**
 * @param {string} text
 * @param {Map<string, number>} ids of the known characters
 * @param {Folds} folds
 * @returns {Unit[]}
 */
export function unitsOf(text, ids, folds) {
  const known = (/** @type {string[]} */ part) => part.every((each) => ids.has(each));
  const units = [];
  let [place, index] = [0, 0]; // in characters, in UTF-16
  for (const letter of lettersOf(text, ids)) {
    const typed = letter.join("");
    let read = letter;
    if (!known(letter)) {
      const forms = ["NFC", "NFD"].map((form) => Array.from(typed.normalize(form)));
      const other = opensAt(text, index) ? 0 : 1;
      read = (forms.find(known) ?? forms[0])
        .map((each) => ids.has(each) ? each : folds[each]?.[other] ?? each);
    }
    units.push({ place, typed, read });
    place += letter.length;
    index += typed.length;
  }
  return units;
}

/** The characters of each letter with its marks; of longer ones, parts around unknown characters.
 * @param {string} text @param {Map<string, number>} ids @returns {Generator<string[]>} */
function* lettersOf(text, ids) {
  for (const [letter] of text.matchAll(LETTERS)) {
    let rest = Array.from(letter);
    while (rest.length) {
      const at = rest.findIndex((each) => !ids.has(each));
      const first = Math.max(0, at - LONGEST);
      const end = at < 0 ? rest.length : Math.max(at + 1, first + LONGEST);
      if (first) yield rest.slice(0, first);
      yield rest.slice(first, end);
      rest = rest.slice(end);
    }
  }
}

/** Whether a quotation mark at this index opens. @param {string} text @param {number} index */
function opensAt(text, index) {
  let first = index;
  while (first && QUOTES.includes(text[first - 1])) first--;
  const before = text.slice(Math.max(0, first - 1), first);
  if (before && DASHES.includes(before)) return /^\S/.test(text.slice(index + 1, index + 2));
  return OPENING.test(before);
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
