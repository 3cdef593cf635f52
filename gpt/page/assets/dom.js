// @ts-check
// Makes and changes elements, and labels characters. Texts become text nodes, never HTML.

/** @typedef {Record<string, string | number | boolean | null>} Attributes */

/** The element of page.html with this id. @param {string} id */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** The field of page.html with this id. @param {string} id */
export function inputById(id) {
  return /** @type {HTMLInputElement} */ (document.getElementById(id));
}

/**
 * A new element. An attribute with the value false or null is left out; true gives an empty attribute.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} kids
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, attributes = {}, ...kids) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttr(element, name, value);
  element.append(...kids);
  return element;
}

/** Sets or removes an attribute. @param {Element} element @param {string} name
 * @param {Attributes[string]} value */
export function setAttr(element, name, value) {
  if (value === false || value === null) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Replaces the text of an element, unless it is the same. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The drawing context of a canvas. @param {HTMLCanvasElement} canvas */
export function penOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/**
 * Lets arrow keys, Home and End choose another radio or tab of a group.
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

/** Marks a radio or tab as chosen or not chosen. @param {Element} element @param {boolean} chosen */
export function choose(element, chosen) {
  setAttr(
    element,
    element.getAttribute("role") === "tab" ? "aria-selected" : "aria-checked",
    `${chosen}`,
  );
  setAttr(element, "tabindex", chosen ? 0 : -1);
}

const NAMED = new Map([[" ", "␣"], ["\n", "⏎"], ["\t", "⇥"]]);
const JOINED = /[\u{1f1e6}-\u{1f1ff}\u{1f3fb}-\u{1f3ff}\ufe00-\ufe0f]/u; // by browsers to neighbours
const INVISIBLE = /[\p{C}\p{Z}\u034f\u115f\u1160\u2800\u3164\uffa0]/u;

/** A visible label of a character. @param {string} character */
export function label(character) {
  const named = NAMED.get(character);
  if (named) return named;
  if (INVISIBLE.test(character) || JOINED.test(character)) return codeOf(character);
  return /\p{M}/u.test(character) ? `◌${character}` : character;
}

/** A character's label in quotation marks. @param {string} character */
export function quoted(character) {
  return `“${label(character)}”`;
}

/** A character's code point, as "U+00E9". @param {string} character */
function codeOf(character) {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
