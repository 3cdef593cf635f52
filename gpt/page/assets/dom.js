// @ts-check
// Elements, and characters as labels. Texts of the model and of the user only ever become text nodes.

/** @typedef {Record<string, string | number | boolean | null>} Attributes */

/** The element of page.html with this id. @param {string} id */
export function part(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** The field of page.html with this id. @param {string} id */
export function field(id) {
  return /** @type {HTMLInputElement} */ (document.getElementById(id));
}

/**
 * A new element. An attribute that is false or null is left out, one that is true is empty.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} kids
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, attributes = {}, ...kids) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) mark(element, name, value);
  element.append(...kids);
  return element;
}

/** Sets or removes an attribute. @param {Element} element @param {string} name
 * @param {Attributes[string]} value */
export function mark(element, name, value) {
  if (value === false || value === null) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Replaces the text of an element, if it is another one. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The pen of a canvas. @param {HTMLCanvasElement} canvas */
export function penOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/**
 * Arrow keys move among the radios or tabs of a group, of which one is chosen and in the tab order.
 * @param {HTMLElement} group
 */
export function moveByArrows(group) {
  group.addEventListener("keydown", (event) => {
    const all =
      /** @type {HTMLElement[]} */ ([...group.querySelectorAll("[role=radio], [role=tab]")]);
    const at = all.indexOf(/** @type {HTMLElement} */ (event.target));
    const next = {
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      Home: 0,
      End: all.length - 1,
    }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    const target = all[(next + all.length) % all.length];
    target.focus();
    target.click();
  });
}

/** Marks a radio or tab as the chosen one of its group. @param {Element} element @param {boolean} chosen */
export function choose(element, chosen) {
  mark(
    element,
    element.getAttribute("role") === "tab" ? "aria-selected" : "aria-checked",
    `${chosen}`,
  );
  mark(element, "tabindex", chosen ? 0 : -1);
}

const NAMED = new Map([[" ", "␣"], ["\n", "⏎"], ["\t", "⇥"]]);
const JOINED = /[\u{1f1e6}-\u{1f1ff}\u{1f3fb}-\u{1f3ff}\ufe00-\ufe0f]/u; // to their neighbours
const UNSEEN = /[\p{C}\p{Z}\u034f\u115f\u1160\u2800\u3164\uffa0]/u;

/** A character as something visible. @param {string} character */
export function label(character) {
  const named = NAMED.get(character);
  if (named) return named;
  if (UNSEEN.test(character) || JOINED.test(character)) return codeOf(character);
  return /\p{M}/u.test(character) ? `◌${character}` : character;
}

/** @param {string} character */
export function quoted(character) {
  return `“${label(character)}”`;
}

/** "U+00E9" @param {string} character */
function codeOf(character) {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
