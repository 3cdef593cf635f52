// @ts-check
// Which areas of the page are in the window, and which cards are so far from it that the browser skips
// them.

const AREAS = ".card, footer";

/** @type {Set<Element>} Cards that the browser skips (content-visibility). */
const skipped = new Set();
/** @type {Set<Element>} Areas of which no pixel is in the window. */
const outside = new Set();

/** Follows the areas. @param {() => void} entered one has come into the window */
export function watchCards(entered) {
  addEventListener("contentvisibilityautostatechange", (event) => {
    const card = /** @type {Element} */ (event.target);
    if (/** @type {any} */ (event).skipped) skipped.add(card);
    else skipped.delete(card);
  }, true);
  const observer = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      if (isIntersecting) outside.delete(target);
      else outside.add(target);
    }
    if (changes.some(({ isIntersecting }) => isIntersecting)) entered();
  });
  for (const area of document.querySelectorAll(AREAS)) observer.observe(area);
}

/** Whether the browser draws the card that the element is in. @param {Element} element */
export function visible(element) {
  const card = element.closest(".card");
  return !card || !skipped.has(card);
}

/** Whether a part of the element's area is in the window; the head always counts. @param {Element} element */
export function inWindow(element) {
  const area = element.closest(AREAS);
  return !area || !outside.has(area);
}
