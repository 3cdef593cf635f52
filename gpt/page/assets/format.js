// @ts-check
// Writes numbers as text and as colours.

/**
 * A number as the terminal writes it: .83, −.15, 4.8, 120. decimals: the digits after the point of
 * numbers below 1; larger numbers have fewer.
 * @param {number | null | undefined} value
 * @param {number} [decimals]
 */
export function format(value, decimals = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size < 1000 && Number.isInteger(size)) return `${value < 0 ? "−" : ""}${size}`;
  const whole = size < 1 ? 0 : Math.floor(Math.log10(size)) + 1;
  if (size === Infinity) return value < 0 ? "−∞" : "∞";
  const text = size.toFixed(Math.max(0, decimals - Math.ceil(whole / 2)));
  return (value < 0 && Number(text) ? "−" : "") + text.replace(/^0\./, ".");
}

/** A number as `format` writes it, with its sign. @param {number} value @param {number} [decimals] */
export function signed(value, decimals) {
  const text = format(value, decimals);
  return value > 0 && /[1-9∞]/.test(text) ? `+${text}` : text;
}

/** @typedef {[number, number, number]} Colour */
/** The colours of 0, of positive and negative values, and of text. @typedef {Record<"none" | "more" | "less" | "ink" | "soft", Colour>} Hues */

/** The colours of the present theme, which page.css defines. @returns {Hues} */
export function readHues() {
  const style = getComputedStyle(document.documentElement);
  const hue = (
    /** @type {string} */ name,
  ) => /** @type {Colour} */ (style.getPropertyValue(`--${name}`).trim().split(" ").map(Number));
  return {
    none: hue("none"),
    more: hue("more"),
    less: hue("less"),
    ink: hue("ink"),
    soft: hue("soft"),
  };
}

const FAINTEST = 0.04; // the colour's strength for 0, so that such a cell differs from an empty one

/** The colour of a value from −1 to 1. @param {Hues} hues @param {number} share @returns {Colour} */
export function tint({ none, more, less }, share) {
  const hue = share < 0 ? less : more;
  const part = FAINTEST + (1 - FAINTEST) * Math.min(1, Math.abs(share));
  const mixed = none.map((from, n) => Math.round(from + part * (hue[n] - from)));
  return /** @type {Colour} */ (mixed);
}

/** A colour for CSS. @param {Colour} colour */
export function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

/** Black or white, whichever is legible on this colour. @param {Colour} colour */
export function inkOn([red, green, blue]) {
  return 0.3 * red + 0.59 * green + 0.11 * blue > 135 ? "#14161a" : "#ffffff";
}
