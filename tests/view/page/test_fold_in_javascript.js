// @ts-check
import { foldedNote, symbolsOf, unitsOf } from "../../../gpt/view/page/assets/live/fold.js";

/** What the page reads for a text, and where each character stood.
 * @param {string} text @param {string} characters @param {any} folds */
export function fold(text, characters, folds) {
  const ids = new Map(Array.from(characters).map((each, id) => [each, id]));
  const units = unitsOf(text, ids, folds);
  return [units.flatMap(({ read }) => read).join(""), foldedNote(units, ids) !== ""];
}

/** The same for a text of symbols. @param {string} text @param {string[]} symbols */
export function foldSymbols(text, symbols) {
  const ids = new Map(symbols.map((each, id) => [each, id]));
  const units = symbolsOf(text, ids);
  return [units.flatMap(({ read }) => read), foldedNote(units, ids) !== ""];
}
