// @ts-check
// Draws the model from left to right: embedding, layers with a picture of every head, logit. A bar shows
// what a part adds to the logit. A click on a picture chooses the head. A switch turns the head off.

import { byId, choose, make, moveByArrows, quoted, setAttr, setText } from "./dom.js";
import { format, signed } from "./format.js";
import { same } from "./app.js";
import { paintTriangle } from "./triangle.js";

/** @import { App, Shown } from "./app.js" */
/** @import { Contributions, Head } from "./model/protocol.js" */
/** Shows what a part adds to the logit. bar: begins in the middle and grows to the left or right. value: the number.
 * @typedef {{bar: HTMLElement, value: HTMLElement}} Added */
/** @typedef {{at: Head, box: HTMLElement, picture: HTMLElement, canvas: HTMLCanvasElement,
 *   toggle: HTMLElement, added: Added, seen: boolean}} Tile */

const WIDE = 66; // the least width, in CSS pixels, of a head if all heads of a layer stand in one row
const NARROW = 46; // the least width of a head if they stand in several rows
const SMOOTH = 50; // the most rows of a picture whose cells are drawn with sharp edges
const ENDS = 330; // the width of embedding, logit, arrows and margins together

/** @param {App} app */
export function makeFlow(app) {
  const { n_layer, n_head, feed_forward } = app.data.model.config;
  const host = byId("flow");
  const embedding = makeAdded();
  const logit = makeAdded();
  const logitName = make("b", { class: "big" });
  const toggle = (/** @type {Head} */ at) => {
    const off = app.state.off.filter((head) => !same(head, at));
    app.set({ off: off.length < app.state.off.length ? off : [...off, at] });
  };
  /** @type {Tile[]} */
  const tiles = [];
  const layers = Array.from({ length: n_layer }, (_, layer) => {
    const heads = Array.from(
      { length: n_head },
      (_, head) => makeTile(app, { layer, head }, toggle),
    );
    tiles.push(...heads);
    const added = makeAdded();
    const names = ["feed-forward", "ff"].map((name) =>
      make("span", { title: "feed-forward" }, name)
    );
    const rest = make("div", { class: "rest" }, ...names, added.bar, added.value);
    const boxes = heads.map(({ box }) => box);
    const title = make("span", { class: "soft" }, `layer ${layer}`);
    const box = make("div", { class: "layer" }, title, ...boxes, ...(feed_forward ? [rest] : []));
    return { box, added };
  });
  const arrow = () => make("span", { class: "arrow", "aria-hidden": "true" }, "→");
  host.append(
    make("div", { class: "end" }, make("span", {}, "embedding"), embedding.bar, embedding.value),
    ...layers.flatMap(({ box }) => [arrow(), box]),
    arrow(),
    make("div", { class: "end" }, make("span", {}, "sum: logit of"), logitName, logit.value),
  );
  moveByArrows(host);
  host.addEventListener("keydown", (event) => {
    if (event.key === "x" && app.shown) toggle(app.shown.look);
  });
  watch(tiles, app);
  arrange(host, n_layer, n_head);
  addEventListener("resize", () => arrange(host, n_layer, n_head));

  /** The chosen head to which the strip of heads has been scrolled. @type {Tile | null} */
  let reached = null;
  app.parts.push((shown) => {
    const { parts, look } = shown;
    const most = Math.max(largestOf(parts), largestOf(shown.answer.before?.parts ?? parts));
    drawAdded(embedding, parts.embedding, most);
    layers.forEach(({ added }, n) => feed_forward && drawAdded(added, parts.layers[n], most));
    setText(logitName, `${quoted(app.data.vocabulary[parts.id])} ${format(parts.logit)}`);
    setText(logit.value, parts.biases ? `biases ${signed(parts.biases)}` : "");
    for (const tile of tiles) {
      const { at, box, picture, toggle, added } = tile;
      const off = shown.state.off.some((head) => same(head, at));
      const chosen = same(at, look);
      drawAdded(added, shown.added(at), most);
      if (off) setText(added.value, "off");
      setAttr(box, "class", `tile${chosen ? " chosen" : ""}${off ? " off" : ""}`);
      choose(picture, chosen);
      const says = off ? "off" : `adds ${signed(shown.added(at))}`;
      setAttr(picture, "aria-label", `layer ${at.layer} head ${at.head}, ${says}`);
      toggle.hidden = !chosen && !off;
      setAttr(toggle, "aria-checked", `${!off}`);
      if (tile.seen) drawTile(app, shown, tile);
      if (chosen && reached !== tile) show(host, (reached = tile).box);
    }
  });
}

/** The largest absolute value that a part adds to the logit. @param {Contributions} parts */
function largestOf({ embedding, heads, layers }) {
  return Math.max(...[embedding, ...heads.flat(), ...layers].map(Math.abs), 1e-9);
}

/** Scrolls a strip of heads sideways to the chosen one. @param {HTMLElement} host @param {HTMLElement} box */
function show(host, box) {
  if (host.scrollWidth <= host.clientWidth) return;
  const left = box.getBoundingClientRect().left - host.getBoundingClientRect().left;
  const room = host.clientWidth - box.clientWidth;
  if (left < 0 || left > room) host.scrollLeft += left - room / 2;
}

/** @param {App} app @param {Head} at @param {(at: Head) => void} flip @returns {Tile} */
function makeTile(app, at, flip) {
  const canvas = make("canvas");
  const name = app.data.kinds?.[at.layer]?.[at.head];
  const title = `layer ${at.layer}, head ${at.head}${name ? `: ${name}` : ""}`;
  const picture = make("div", { class: "picture", role: "radio", title }, canvas);
  const label = `layer ${at.layer} head ${at.head}`;
  const toggle = make("button", {
    class: "switch",
    role: "switch",
    "aria-label": label,
    hidden: true,
  });
  const number = make("span", { class: "number soft", "aria-hidden": "true" }, String(at.head));
  const added = makeAdded();
  const square = make("div", { class: "square" }, picture, number, toggle);
  const box = make("div", { class: "tile" }, square, added.bar, added.value);
  picture.addEventListener("click", () => app.set({ look: at, key: null }));
  toggle.addEventListener("click", () => flip(at));
  return { at, box, picture, canvas, toggle, added, seen: false };
}

/** @param {App} app @param {Shown} shown @param {Tile} tile */
function drawTile(app, shown, { canvas, at }) {
  canvas.style.imageRendering = shown.length > SMOOTH ? "auto" : "pixelated";
  paintTriangle(canvas, shown.answer.now.weights[at.layer][at.head], shown.length, app.hues);
}

/** Draws a picture when it scrolls into the window. @param {Tile[]} tiles @param {App} app */
function watch(tiles, app) {
  const byCanvas = new Map(tiles.map((tile) => [/** @type {Element} */ (tile.canvas), tile]));
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const tile = /** @type {Tile} */ (byCanvas.get(target));
      tile.seen = isIntersecting;
      if (isIntersecting && app.shown) drawTile(app, app.shown, tile);
    }
  });
  for (const { canvas } of tiles) observer.observe(canvas);
}

/** Sets how many heads of a layer stand side by side: all, or as many as leave room for all layers.
 * @param {HTMLElement} host @param {number} layers @param {number} heads */
function arrange(host, layers, heads) {
  const room = (host.clientWidth - ENDS) / layers;
  const oneRow = room / (heads + 1) >= WIDE;
  const columns = Math.max(Math.ceil(heads / 3), Math.min(heads, Math.floor(room / NARROW)));
  setAttr(host, "class", oneRow ? "wide" : null);
  host.style.setProperty("--columns", String(oneRow ? heads + 1 : columns));
}

/** @returns {Added} */
function makeAdded() {
  return { bar: make("div", { class: "added" }, make("i")), value: make("small") };
}

/** @param {Added} added @param {number} number @param {number} most */
function drawAdded({ bar, value }, number, most) {
  const inner = /** @type {HTMLElement} */ (bar.firstElementChild);
  const share = 50 * number / most;
  inner.className = number < 0 ? "less" : "more";
  inner.style.width = `${Math.abs(share)}%`;
  inner.style.left = `${Math.min(50, 50 + share)}%`;
  setText(value, signed(number));
}
