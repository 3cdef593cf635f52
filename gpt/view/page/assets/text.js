// @ts-check
// The text: selecting a character shades the characters that it attends to, or that attend to it; or
// each character is shaded by its surprisal.

import { css, ink, Scale } from "./colours.js";
import { oneRow } from "./data.js";
import { bySize, codeOf, decimals, short, signed } from "./numbers.js";
import { followCharacters, lead, make, named, part, segments, showLegend } from "./parts.js";

/** @import { App } from "./parts.js" */
/** @import { Matrix, Subject } from "./data.js" */
/** What the shades are. @typedef {"from" | "to" | "surprisal"} Direction */

const LEAST_NATS = 5; // of the scale of surprisals: ln 148

/** @param {App} app */
export function makeText(app) {
  const host = part("text");
  const said = part("text-said");
  /** @type {Direction} */
  let direction = "from";
  let drawn = "";
  /** @type {App["weights"]} */
  let shaded = "";
  let limit = 1; // of the scale: the matrix's, so that a colour means the same in both
  /** @type {string[]} */
  let written = []; // the text's characters
  /** @type {HTMLElement[]} */
  let characters = [];
  /** @type {HTMLElement[]} What separates them. */
  let breaks = [];
  /** @type {string[]} Their shades. */
  let shades = [];
  const show = segments(part("direction"), [
    ["from", "attends to", "Shades the keys that a character looks at"],
    ["to", "is attended by", "Shades the queries that look at a character"],
    ["surprisal", "surprisal", "Shades each character by −ln of its probability, in nats"],
  ], (value) => {
    direction = /** @type {Direction} */ (value);
    render();
  });

  followCharacters(host, () => characters, (position) => app.read(position), app.togglePin);

  /** Rows (or columns) to take the mean of. */
  function chosen() {
    const { state: { pins, cell }, reading, pointed } = app;
    if (reading !== null) return [reading];
    if (pointed && direction !== "to") return [pointed[0]];
    if (pointed && app.panels.every(({ matrix }) => typeof matrix !== "string" && matrix.keys)) {
      return [pointed[1]];
    }
    if (pins.length) return pins;
    return [direction === "from" && cell ? cell[0] : lead(app).length - 1];
  }

  /** Writes another text, of which only the end may be new. @param {Subject} subject */
  function write({ characters: text, labels }) {
    const same = text.findIndex((each, n) => each !== written[n]);
    const kept = same < 0 ? Math.min(text.length, written.length) : same;
    for (const each of [...characters.slice(kept), ...breaks.slice(kept)]) each.remove();
    const added = labels.slice(kept).map((label, n) =>
      characterOf(label, text[kept + n], kept + n)
    );
    const ends = text.slice(kept).map((each) => make(each === "\n" ? "br" : "wbr", null));
    host.append(...added.flatMap((character, n) => [character, ends[n]]));
    characters = [...characters.slice(0, kept), ...added];
    breaks = [...breaks.slice(0, kept), ...ends];
    shades = shades.slice(0, kept);
    written = text;
  }

  function render() {
    const subject = lead(app);
    show(direction);
    const { weights } = app;
    const rows = chosen();
    const { scale: mode, pins } = app.state;
    const now = [app.changes, app.state.of, direction, app.dark, mode, rows, pins.join("+")].join();
    if (now === drawn && weights === shaded) return;
    if (subject.characters !== written) write(subject);
    if (weights !== shaded && typeof weights !== "string") {
      limit = new Scale(weights, "fixed", app.dark).limit;
    }
    drawn = now;
    shaded = weights;
    const nats = direction === "surprisal";
    const line = nats
      ? oneRow(Float64Array.from([NaN, ...subject.surprisals]), "nats") // the first has none
      : weightsLine(weights, rows, direction, subject.length);
    const least = nats ? LEAST_NATS : limit;
    const scale = new Scale(line, nats ? "fixed" : mode, app.dark, least);
    showLegend(part("text-legend"), scale, app.digits);
    const masked = maskOf(direction, rows);
    characters.forEach((character, position) => {
      const colour = scale.rgb(Math.max(0, scale.step(0, position)));
      const empty = masked(position);
      const shade = empty ? "" : css(colour);
      if (shades[position] !== shade) {
        character.style.background = shade;
        character.style.color = empty ? "" : ink(colour);
        shades[position] = shade;
      }
      character.classList.toggle("masked", empty);
      character.classList.toggle("here", rows.includes(position));
      const selected = String(pins.includes(position));
      if (character.ariaSelected !== selected) character.ariaSelected = selected;
    });
    if (!host.querySelector('[tabindex="0"]')) characters[0].tabIndex = 0;
    said.textContent = nats
      ? surprisalSummary(subject, rows, app.digits)
      : summary(app, subject, rows, line.values, direction);
  }
  return { host, render };
}

/** @param {string} label @param {string} character @param {number} position */
function characterOf(label, character, position) {
  return make("span", {
    class: " \n\t".includes(character) ? "character blank" : "character",
    role: "option",
    "data-position": position,
    title: `position ${position}, ${codeOf(character)}`,
  }, label);
}

/** Which characters have no shade. @param {Direction} direction @param {number[]} rows */
function maskOf(direction, rows) {
  const [first, last] = [Math.min(...rows), Math.max(...rows)];
  return (/** @type {number} */ position) => {
    if (direction === "surprisal") return position === 0;
    return direction === "from" ? position > last : position < first;
  };
}

/**
 * The mean of rows, or of columns, of the weights.
 * @param {App["weights"]} weights
 * @param {number[]} rows
 * @param {Direction} direction
 * @param {number} T
 * @returns {Matrix}
 */
function weightsLine(weights, rows, direction, T) {
  const values = new Float64Array(T);
  if (typeof weights !== "string") {
    for (const row of rows) {
      for (let j = 0; j < T; j++) {
        const at = direction === "from" ? row * T + j : j * T + row;
        values[j] += weights.values[at] / rows.length;
      }
    }
  }
  return oneRow(values, typeof weights === "string" ? "share" : weights.kind);
}

/** @param {Subject} subject @param {number[]} rows @param {number} digits */
function surprisalSummary(subject, rows, digits) {
  const { surprisals } = subject;
  if (!surprisals.length) return "The first character has no surprisal: nothing comes before it.";
  const each = rows.filter((row) => row > 0).slice(0, 6).map((row) =>
    `${named(subject, row)} ${short(surprisals[row - 1], digits)} nats`
  );
  const [nats, bits] = [subject.loss, subject.loss / Math.LN2].map((mean) => decimals(mean, 3));
  return [...each, `mean ${nats} nats/char = ${bits} bits/char`].join(" · ");
}

/**
 * @param {App} app
 * @param {Subject} subject
 * @param {number[]} rows
 * @param {Float64Array} values
 * @param {Direction} direction
 */
function summary({ weights, digits }, subject, rows, values, direction) {
  if (typeof weights === "string") return weights;
  const many = rows.slice(0, 6).map((row) => named(subject, row)).join(", ") +
    (rows.length > 6 ? ` and ${rows.length - 6} more` : "");
  const differs = weights.kind === "difference";
  const write = differs ? signed : short;
  const order = bySize(values).filter((j) => values[j] !== 0);
  const top = order.slice(0, 4).map((j) => `${named(subject, j)} ${write(values[j], digits)}`);
  const rest = order.slice(4).reduce((sum, j) => sum + values[j], 0);
  if (order.length > 4 && direction === "from" && !differs) {
    top.push(`rest ${short(rest, digits)}`);
  }
  const verb = direction === "from" ? "→" : "←";
  return `${rows.length > 1 ? "mean of " : ""}${many} ${verb} ${top.join(" · ") || "nothing"}`;
}
