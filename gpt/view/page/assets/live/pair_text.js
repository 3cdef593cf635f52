// @ts-check
// The source and the target, character by character: how probable each character of the target is, and
// what it reads.

import { css, ink, Scale } from "../colours.js";
import { oneRow } from "../data.js";
import { bySize, short, signed } from "../numbers.js";
import { followCharacters, lead, make, part, say, segments, showLegend } from "../parts.js";
import { KINDS } from "./pair_session.js";
import { drawnTarget } from "./pair_write.js";

/** @import { App } from "../parts.js" */
/** @import { Subject } from "../data.js" */
/** @import { Pair } from "../payload.js" */
/** @import { PairSession } from "./pair_session.js" */
/** "source" or "target", and a place in it; in the target 0 is the TAB. @typedef {{side: string, place: number}} Place */

const MOST_SURPRISAL = Math.LN10; // nats, of the scale
const MOST_READ = 4; // keys that are named

/** Each line of characters, its elements kept while they are the same. */
class Line {
  /** @param {HTMLElement} host @param {string} side */
  constructor(host, side) {
    this.host = host;
    this.side = side;
    /** @type {HTMLElement[]} */
    this.tiles = [];
  }

  /** @param {readonly string[]} labels @param {(place: number) => number | null} chance */
  write(labels, chance) {
    labels.forEach((label, place) => {
      const tile = this.tiles[place] ??= this.#add(place);
      const [glyph, number] = /** @type {HTMLElement[]} */ ([...tile.children]);
      const share = chance(place);
      say(glyph, label);
      say(number, share === null ? "" : short(share, 2));
    });
    for (const tile of this.tiles.splice(labels.length)) tile.remove();
    if (this.tiles.every(({ tabIndex }) => tabIndex < 0)) this.tiles[0].tabIndex = 0;
  }

  /** @param {number} place */
  #add(place) {
    const tile = make(
      "span",
      { class: "character", role: "option", tabindex: place ? -1 : 0, "data-position": place },
      make("span", null),
      make("small", null),
    );
    this.host.append(tile);
    return tile;
  }

  /**
   * @param {(place: number) => import("../colours.js").Colour | null} colour of a character
   * @param {(place: number) => string} below the colour of the number below it
   * @param {number} here the character that is described
   */
  shade(colour, below, here) {
    this.tiles.forEach((tile, place) => {
      const [glyph, number] = /** @type {HTMLElement[]} */ ([...tile.children]);
      const found = colour(place);
      glyph.style.background = found ? css(found) : "";
      glyph.style.color = found ? ink(found) : "";
      number.style.borderColor = below(place);
      tile.classList.toggle("here", place === here);
      tile.ariaSelected = String(place === here);
    });
  }
}

/** @param {App} app @param {PairSession} session */
export function makePair(app, session) {
  const host = part("pair");
  const lines = ["source", "target"].map((side) => new Line(part(`pair-${side}`), side));
  /** @type {Place | null} */
  let pointed = null;
  const showKind = segments(part("kind"), [
    ["cross", "target → source", "Cross-attention: what the target reads of the source"],
    ["encoder", "source → source", "Self-attention of the encoder"],
    ["decoder", "target → target", "Self-attention of the decoder"],
  ], (kind) => {
    session.kind = /** @type {PairSession["kind"]} */ (kind);
    pointed = null;
    app.change({ cell: null });
    session.changed();
  });

  for (const { host, side, tiles } of lines) {
    const point = (/** @type {number | null} */ place) => {
      if (place === (pointed?.side === side ? pointed.place : null)) return;
      pointed = place === null ? null : { side, place };
      app.follow();
    };
    followCharacters(host, () => tiles, point, (place) => keep({ side, place }));
  }

  /** Keeps the row of a character of the target. @param {Place} place */
  function keep({ side, place }) {
    if (side !== "target" || !place) return;
    session.row = session.row === place - 1 ? null : place - 1;
    app.follow();
    app.rendered?.();
  }

  /** The row of the decoder whose character is described. @param {Pair} pair */
  function rowOf({ kind, expected }) {
    const { pointed: cell } = app;
    let row = session.kept;
    if (cell && kind !== "encoder") [row] = cell;
    if (pointed?.side === "target" && pointed.place) row = pointed.place - 1;
    return Math.max(0, Math.min(row, expected.length - 1));
  }

  function render() {
    const subject = lead(app);
    const { pair } = subject.payload;
    if (!pair) return;
    const { kind, source, read, expected } = pair;
    const [first, second] = lines;
    showKind(session.kind);
    say(part("heads-title"), `Heads: ${KINDS[kind]}`);
    part("heads-why").hidden = kind !== "cross"; // it is about the page as it opens
    first.write(source.labels, () => null);
    second.write(
      [read.labels[0], ...expected],
      (place) => place ? Math.exp(-subject.surprisals[place - 1]) : null,
    );
    const row = rowOf(pair);
    const found = shadesOf(app, subject, pair, row, pointed);
    const nats = oneRow(Float64Array.from(subject.surprisals), "nats");
    const surprisal = new Scale(nats, "root", app.dark, MOST_SURPRISAL);
    const below = (/** @type {number} */ place) =>
      place ? css(surprisal.rgb(Math.max(0, surprisal.step(0, place - 1)))) : "transparent";
    first.shade(
      found.source,
      () => "transparent",
      found.here.side === "source" ? found.here.place : -1,
    );
    second.shade(found.target, below, row + 1);
    if (found.scale) showLegend(part("pair-legend"), found.scale, app.digits);
    say(part("pair-symbols"), app.data.legend.join(" · "));
    say(part("pair-said"), sentence(app, subject, pair, row, found));
  }

  app.drawing = ({ payload: { pair } }, _, row) =>
    pair ? drawnTarget(session, pair, row ?? rowOf(pair)) : null;
  app.after = ({ payload: { pair } }) => {
    if (!pair) return "";
    const row = rowOf(pair);
    const before = pair.read.labels.slice(Math.max(0, row - 9), row + 1);
    const goesOn = pair.expected[row] === undefined ? "" : `; here comes '${pair.expected[row]}'`;
    return `after ${session.spell("target", before)}${goesOn}`;
  };
  return { host, render, follows: true };
}

/**
 * The colours of both texts: what a row reads, or which rows read a character.
 * @param {App} app
 * @param {Subject} subject
 * @param {Pair} pair
 * @param {number} row of the decoder
 * @param {Place | null} pointed
 */
function shadesOf(app, subject, { kind }, row, pointed) {
  const { weights, state } = app;
  const none = () => null;
  const here = { side: "target", place: row + 1 };
  const plain = { source: none, target: none, scale: null, here, row: -1, values: [] };
  if (typeof weights === "string") return plain;
  const scale = new Scale(weights, state.scale, app.dark);
  const colour = (/** @type {number} */ query, /** @type {number} */ key) => {
    const inside = query >= 0 && query < weights.rows && key >= 0 && key < weights.columns;
    const step = inside ? scale.step(query, key) : -1;
    return step < 0 ? null : scale.rgb(step);
  };
  const valuesOf = (/** @type {number} */ query) =>
    Array.from(
      { length: subject.allowed(query) },
      (_, key) => weights.values[query * weights.columns + key],
    );
  const at = Math.min(pointed?.place ?? 0, subject.keys - 1); // the texts may have become shorter
  if (kind === "encoder") {
    const query = pointed?.side === "source" ? at : app.pointed?.[0] ?? state.cell?.[0] ?? 0;
    const source = (/** @type {number} */ key) => colour(query, key);
    const place = { side: "source", place: query };
    return { ...plain, source, scale, here: place, row: query, values: valuesOf(query) };
  }
  if (kind === "cross" && pointed?.side === "source") {
    const target = (/** @type {number} */ place) => colour(place - 1, at);
    return { ...plain, target, scale, here: { side: "source", place: at } };
  }
  const read = (/** @type {number} */ key) => colour(row, key);
  const shaded = kind === "cross" ? { source: read } : { target: read };
  return { ...plain, ...shaded, scale, row, values: valuesOf(row) };
}

/**
 * The line that describes the character.
 * @param {App} app
 * @param {Subject} subject
 * @param {Pair} pair
 * @param {number} row
 * @param {ReturnType<typeof shadesOf>} found
 */
function sentence({ digits, weights }, subject, { kind, source, expected }, row, found) {
  const nats = subject.surprisals[row];
  const chance = expected.length
    ? `'${expected[row]}' is written with probability ${short(Math.exp(-nats), digits)}, ` +
      `surprisal ${short(nats, digits)} nats`
    : "the model ends the target at once";
  const columns = subject.columns.labels;
  if (found.row < 0 && found.here.side === "source") {
    return `shaded: how much each character of the target reads source ${found.here.place} ` +
      `'${source.labels[found.here.place]}'`;
  }
  const write = typeof weights !== "string" && weights.kind === "difference" ? signed : short;
  const most = bySize(found.values).slice(0, MOST_READ).map((key) =>
    `${key} '${columns[key]}' ${write(found.values[key], digits)}`
  );
  const side = kind === "decoder" ? "target" : "source";
  if (kind === "encoder") {
    return `source ${found.row} '${source.labels[found.row]}' reads source ${most.join(" · ")}`;
  }
  return most.length ? `${chance}; it reads ${side} ${most.join(" · ")}` : chance;
}
