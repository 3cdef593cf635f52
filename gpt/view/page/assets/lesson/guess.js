// @ts-check
// Numbers as texts: as the tables show them, as one enters them, and guesses of them.

const FEWEST = 2; // digits after the point of a guess

/** A number as Python's tables show it, halves rounded to even. @param {number} value @param {number} digits */
export function shown(value, digits) {
  if (Number.isNaN(value)) return "nan";
  const size = Math.abs(value);
  if (size === Infinity) return value < 0 ? "−∞" : "∞";
  const [exact, short] = [size.toFixed(Math.min(100, digits + 60)), size.toFixed(digits)];
  const cut = exact.slice(0, exact.indexOf(".") + (digits && digits + 1));
  const half = /^\.?50*$/.test(exact.slice(cut.length)) && /[02468]$/.test(cut);
  const large = size.toExponential(1).replace(/\+(\d)$/, "+0$1");
  const text = size >= 1e6 ? large : half ? cut : short;
  return (value < 0 && /[1-9]/.test(text) ? "−" : "") + text;
}

/** What one entered as a number, with a comma or a point; NaN for anything else. @param {string} text */
export function entered(text) {
  const plain = text.trim().replace(/^−/, "-").replace(",", ".");
  if (/^-?(∞|inf)$/.test(plain)) return plain[0] === "-" ? -Infinity : Infinity;
  return /^[-+]?(\d+\.?\d*|\.\d+)$/.test(plain) ? Number(plain) : NaN;
}

/** Whether a guess is right to its own digits or those of the table, and what to say of it.
 * @param {string} text @param {number} value @param {number} digits @returns {[boolean, string]} */
export function judged(text, value, digits) {
  const guess = entered(text);
  if (Number.isNaN(guess)) return [false, `“${text}” is not a number.`];
  const given = text.split(/[.,]/)[1]?.length ?? 0;
  const least = Math.min(FEWEST, digits);
  const compared = Number.isFinite(guess) ? Math.min(given, digits) : digits;
  if (shown(guess, compared) !== shown(value, compared)) {
    return [false, `✗ ${text} is too ${guess < value ? "small" : "large"}. Try again, or show it.`];
  }
  if (compared < least) {
    return [false, `Give ${text} with at least ${least} digits after the point.`];
  }
  const precision = compared < digits ? ` to ${compared} digits` : "";
  return [true, `✓ Right${precision}: ${shown(value, digits)}`];
}
