// @ts-check
import { foldedNote, unitsOf } from "../../../gpt/view/page/assets/live/fold.js";

/** What the page reads for a text, and where each character stood.
 * @param {string} text @param {string} characters @param {any} folds */
export function fold(text, characters, folds) {
  const ids = new Map(Array.from(characters).map((each, id) => [each, id]));
  const units = unitsOf(text, ids, folds);
  return [units.flatMap(({ read }) => read).join(""), foldedNote(units, ids) !== ""];
}
