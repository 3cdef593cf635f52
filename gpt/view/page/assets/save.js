// @ts-check
// The shown matrix as a file: CSV like the command's; SVG and PNG of one figure with all its facts:
// run, step, layer, head, stage, the text, the characters along the sides, the scale with numbers.

import { css, ink, Scale } from "./colours.js";
import { LAYER_STAGES } from "./data.js";
import { brief } from "./numbers.js";
import { context, make, MONO, part, scaleTexts } from "./parts.js";

/** @import { App, Panel } from "./parts.js" */
/** @import { Matrix } from "./data.js" */

/** Adds a text to the figure.
 * @typedef {(text: string, x: number, y: number, anchor: "start" | "middle" | "end", size: number,
 *   fill?: string) => unknown} Say */

const MARGIN = 12;
const NARROWEST = 480;
const MOST_RECTANGLES = 10_000; // beyond it, cells are one picture
const SHARPEST = 2; // pixels of the PNG in one of the figure
const MOST_PIXELS = 8000; // of a side of the PNG
const [STRIP, STRIP_HEIGHT, STRIP_STEPS] = [192, 11, 64];
const RULER = context(make("canvas", null));
const [INK, FAINT] = ["#1d2026", "#626973"];
/** @type {Record<string, string>} */
const MODES = {
  fixed: "",
  root: " · colours by the square root",
  row: " · colours relative to each row's largest",
};

/** @param {App} app */
export function makeSave(app) {
  /** @type {Record<string, (panel: Panel, matrix: Matrix) => Blob | Promise<Blob>>} */
  const forms = {
    csv: (panel, matrix) => new Blob([toCsv(app, panel, matrix)], { type: "text/csv" }),
    svg: (panel, matrix) => new Blob([toSvg(app, panel, matrix)], { type: "image/svg+xml" }),
    png: (panel, matrix) => toPng(app, panel, matrix),
  };
  for (const [form, write] of Object.entries(forms)) {
    part(`save-${form}`).addEventListener("click", async () => {
      for (const panel of app.panels) {
        if (typeof panel.matrix === "string") continue;
        const name = `${fileName(app, panel)}.${form}`;
        deliver(name, await write(panel, panel.matrix));
      }
    });
  }
  return {
    host: part("matrices"),
    render() {
      const empty = app.panels.every(({ matrix }) => typeof matrix === "string");
      for (const form of Object.keys(forms)) {
        /** @type {HTMLButtonElement} */ (part(`save-${form}`)).disabled = empty;
      }
    },
  };
}

/** @param {string} name @param {Blob} blob */
function deliver(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** @param {App} app @param {Panel} panel */
function fileName(app, panel) {
  const { view, layer, head, stage, of } = app.state;
  const which = of === "diff" ? "-difference" : "";
  const side = app.panels.length > 1 ? `-${"ab"[app.panels.indexOf(panel)]}` : "";
  return `layer${layer}-${view === "head" ? `head${head}` : view}-${stage}${which}${side}`;
}

/**
 * One line per number; weights above the diagonal, which are all 0, are left out.
 * @param {App} app
 * @param {Panel} panel
 * @param {Matrix} matrix
 */
function toCsv(app, { subject }, matrix) {
  const { layer, head, view, stage, of } = app.state;
  const quoted = (/** @type {string} */ text) => `"${text.replaceAll('"', '""')}"`;
  const character = (/** @type {number} */ n) => quoted(subject.characters[n]);
  const named = of === "diff" ? "difference" : stage === "weights" ? "weight" : stage;
  const columns = matrix.keys
    ? ["layer", "head", "q_pos", "q_char", "k_pos", "k_char", named]
    : ["layer", "head", "pos", "char", "dimension", named];
  const together = LAYER_STAGES.includes(stage);
  const of_head = together ? '"all"' : view === "head" ? String(head) : quoted(view);
  const digits = app.data.bits === 32 ? 9 : 5; // enough to tell all numbers of that size apart
  const lines = [columns.map(quoted).join(",")];
  for (let row = 0; row < matrix.rows; row++) {
    const stop = matrix.causal && stage === "weights" ? row + 1 : matrix.columns;
    for (let column = 0; column < stop; column++) {
      const value = matrix.values[row * matrix.columns + column];
      const number = Number.isFinite(value) ? String(Number(value.toPrecision(digits))) : "-inf";
      const where = matrix.keys ? `${column},${character(column)}` : String(column);
      lines.push(`${layer},${of_head},${row},${character(row)},${where},${number}`);
    }
  }
  return lines.join("\n") + "\n";
}

/** The width of a text in CSS pixels. @param {string} text @param {number} size */
function widthOf(text, size) {
  RULER.font = `${size}px ${MONO}`;
  return RULER.measureText(text).width;
}

/**
 * Pieces of a text joined into lines of at most `width` pixels.
 * @param {string[]} pieces
 * @param {number} size
 * @param {number} width
 */
function wrapped(pieces, size, width) {
  const lines = [""];
  let room = width;
  for (const piece of pieces) {
    const taken = widthOf(piece, size);
    if (taken > room && lines[lines.length - 1]) {
      lines.push("");
      room = width;
    }
    lines[lines.length - 1] += piece;
    room -= taken;
  }
  return lines;
}

/**
 * The figure with all its facts.
 * @param {App} app
 * @param {Panel} panel
 * @param {Matrix} matrix
 */
function toSvg(app, panel, matrix) {
  const { data, state, limit } = app;
  const { labels } = panel.subject;
  const scale = new Scale(matrix, state.scale, false, limit);
  const side = Math.max(4, Math.min(36, Math.floor(900 / Math.max(matrix.rows, matrix.columns))));
  const left = MARGIN + 34 + 8 * Math.max(...labels.map((text) => text.length));
  const [wide, high] = [matrix.columns * side, matrix.rows * side];
  const width = Math.max(left + wide, NARROWEST) + MARGIN;
  /** @type {string[]} */
  const words = [];
  /** @type {Say} */
  const say = (text, x, y, anchor, size, fill = INK) =>
    words.push(
      `<text x="${x}" y="${y}" dy=".35em" text-anchor="${anchor}" font-size="${size}" ` +
        `fill="${fill}">${escaped(text)}</text>`,
    );
  let y = MARGIN + 8;
  const paragraph = (
    /** @type {string[]} */ pieces,
    /** @type {number} */ size,
    /** @type {string} */ fill,
  ) => {
    for (const line of wrapped(pieces, size, width - 2 * MARGIN)) {
      say(line, MARGIN, y, "start", size, fill);
      y += size + 5;
    }
  };
  paragraph(Array.from(panel.title), 13, INK);
  paragraph(Array.from(data.title), 11, INK);
  paragraph([part("axes").textContent ?? ""], 11, FAINT);
  const top = y + (matrix.keys ? 32 : 18);
  nameSides(matrix, labels, side, left, top, say);
  const few = matrix.rows * matrix.columns <= MOST_RECTANGLES;
  const cells = few ? cellsOf(scale, side, left, top, say) : [];
  const picture = few ? "" : `<image ${area(left, top, wide, high)} ` +
    'style="image-rendering:pixelated" preserveAspectRatio="none" ' +
    `href="${scale.paint(make("canvas", null)).toDataURL()}"/>\n`;
  y = top + high + 14;
  const strip = Array.from({ length: STRIP_STEPS }, (_, n) => {
    const place = area(MARGIN + n * STRIP / STRIP_STEPS, y, STRIP / STRIP_STEPS, STRIP_HEIGHT);
    return `<rect ${place} fill="${css(scale.rgb(Math.round(n * 255 / (STRIP_STEPS - 1))))}"/>`;
  });
  const value = state.of === "diff" ? `difference of ${state.stage}` : state.stage;
  say(value + MODES[state.scale], MARGIN + STRIP + 12, y + STRIP_HEIGHT / 2, "start", 11);
  const [least, middle, most] = scaleTexts(scale, app.digits);
  y += STRIP_HEIGHT + 9;
  say(least, MARGIN, y, "start", 10);
  say(middle, MARGIN + STRIP / 2, y, "middle", 10);
  say(most, MARGIN + STRIP, y, "end", 10);
  y += 20;
  paragraph(["text: ", ...labels], 11, INK);
  if (data.legend.length) paragraph([data.legend.join(" · ")], 11, FAINT);
  const height = y + MARGIN - 8;
  const group = (/** @type {string} */ id, /** @type {string[]} */ boxes) =>
    `<g id="${id}">\n${boxes.join("\n")}\n</g>\n`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="${escaped(MONO)}" xml:space="preserve">\n` +
    `<rect width="${width}" height="${height}" fill="#ffffff"/>\n${picture}` +
    `${group("cells", cells)}${group("scale", strip)}${words.join("\n")}\n</svg>\n`;
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** Attributes of a rectangle. @param {number} x @param {number} y @param {number} width @param {number} height */
function area(x, y, width, height) {
  return `x="${x}" y="${y}" width="${width}" height="${height}"`;
}

/**
 * A rectangle for each cell; large cells also have their number.
 * @param {Scale} scale
 * @param {number} side of a cell
 * @param {number} left
 * @param {number} top
 * @param {Say} say
 */
function cellsOf(scale, side, left, top, say) {
  const { rows, columns, values } = scale.matrix;
  const cells = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const step = scale.step(row, column);
      if (step < 0) continue;
      const [x, y, colour] = [left + column * side, top + row * side, scale.rgb(step)];
      cells.push(`<rect ${area(x, y, side, side)} fill="${css(colour)}"/>`);
      if (side < 34) continue;
      const value = brief(values[row * columns + column]);
      say(value, x + side / 2, y + side / 2, "middle", 10, ink(colour));
    }
  }
  return cells;
}

/**
 * Characters and positions along the sides, if they fit.
 * @param {Matrix} matrix
 * @param {string[]} labels of the rows, and of columns that are keys
 * @param {number} side of a cell
 * @param {number} left
 * @param {number} top
 * @param {Say} say
 */
function nameSides(matrix, labels, side, left, top, say) {
  const every = side >= 10 ? 1 : Math.ceil(40 / side / 5) * 5;
  const size = Math.min(12, Math.max(8, side - 1));
  for (let row = 0; row < matrix.rows; row += every) {
    say(`${row} ${labels[row]}`, left - 5, top + (row + 0.5) * side, "end", size);
  }
  const steps = matrix.keys ? every : Math.max(every, 4);
  for (let column = 0; column < matrix.columns; column += steps) {
    const x = left + (column + 0.5) * side;
    if (matrix.keys && widthOf(labels[column], size) <= steps * side) {
      say(labels[column], x, top - 9, "middle", size);
    }
    if (side >= 18 || column % Math.max(5, every) === 0) {
      say(String(column), x, top - (matrix.keys ? 24 : 9), "middle", 9);
    }
  }
}

/**
 * The SVG as a picture.
 * @param {App} app
 * @param {Panel} panel
 * @param {Matrix} matrix
 * @returns {Promise<Blob>}
 */
async function toPng(app, panel, matrix) {
  const svg = encodeURIComponent(toSvg(app, panel, matrix));
  const figure = make("img", { src: `data:image/svg+xml;charset=utf-8,${svg}` });
  await figure.decode();
  const { width, height } = figure;
  const sharp = Math.min(SHARPEST, MOST_PIXELS / Math.max(width, height));
  const canvas = make("canvas", {
    width: Math.round(width * sharp),
    height: Math.round(height * sharp),
  });
  context(canvas).drawImage(figure, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(/** @type {Blob} */ (blob))));
}
