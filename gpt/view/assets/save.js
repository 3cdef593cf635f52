// @ts-check
// The shown matrix as a file: CSV like the command's, SVG and PNG with the characters along the sides.

import { css, ink, Scale } from "./colours.js";
import { brief, bytes } from "./numbers.js";
import { context, make, MONO, part } from "./parts.js";

/** @typedef {import("./parts.js").App} App */
/** @typedef {import("./parts.js").Panel} Panel */
/** @typedef {import("./data.js").Matrix} Matrix */

const MARGIN = 12;
const MOST_RECTANGLES = 10_000; // beyond it, cells are one picture in the SVG

/** @param {App} app */
export function makeSave(app) {
  /** @type {Record<string, (panel: Panel, matrix: Matrix) => Blob>} */
  const forms = {
    csv: (_, matrix) => new Blob([toCsv(app, matrix)], { type: "text/csv" }),
    svg: (panel, matrix) => new Blob([toSvg(app, panel, matrix)], { type: "image/svg+xml" }),
    png: (panel, matrix) => toPng(app, panel, matrix),
  };
  for (const [form, write] of Object.entries(forms)) {
    part(`save-${form}`).addEventListener("click", () => {
      for (const panel of app.panels) {
        if (typeof panel.matrix === "string") continue;
        deliver(`${fileName(app, panel)}.${form}`, write(panel, panel.matrix));
      }
    });
  }
  return {
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
 * A line a number; weights above the diagonal, which are all 0, are left out.
 * @param {App} app
 * @param {Matrix} matrix
 */
export function toCsv(app, matrix) {
  const { layer, head, view, stage, of } = app.state;
  const quoted = (/** @type {string} */ text) => `"${text.replaceAll('"', '""')}"`;
  const character = (/** @type {number} */ n) => quoted(String.fromCodePoint(app.data.codes[n]));
  const named = of === "diff" ? "difference" : stage === "weights" ? "weight" : stage;
  const columns = matrix.keys
    ? ["layer", "head", "q_pos", "q_char", "k_pos", "k_char", named]
    : ["layer", "head", "pos", "char", "dimension", named];
  const together = ["concat", "proj", "residual"].includes(stage);
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

/** Where everything is in a figure. @param {App} app @param {Matrix} matrix */
function layout(app, matrix) {
  const side = Math.max(4, Math.min(36, Math.floor(900 / Math.max(matrix.rows, matrix.columns))));
  const longest = app.data.labels.reduce((most, text) => Math.max(most, text.length), 1);
  const left = MARGIN + 34 + 8 * longest;
  const top = MARGIN + 22 + (matrix.keys ? 32 : 18);
  const [width, height] = [left + matrix.columns * side, top + matrix.rows * side];
  return { side, left, top, width: Math.max(width, 420) + MARGIN, height: height + MARGIN };
}

/**
 * Every text of a figure: what, where, how aligned.
 * @param {App} app
 * @param {Panel} panel
 * @param {Matrix} matrix
 */
function* texts(app, panel, matrix) {
  const { side, left, top } = layout(app, matrix);
  const { labels } = app.data;
  yield { text: panel.title, x: MARGIN, y: MARGIN + 8, anchor: "start", size: 13 };
  const every = side >= 10 ? 1 : Math.ceil(40 / side / 5) * 5;
  const size = Math.min(12, Math.max(8, side - 1));
  for (let row = 0; row < matrix.rows; row += every) {
    const y = top + (row + 0.5) * side;
    yield { text: `${row} ${labels[row]}`, x: left - 5, y, anchor: "end", size };
  }
  const steps = matrix.keys ? every : Math.max(every, 4);
  for (let column = 0; column < matrix.columns; column += steps) {
    const x = left + (column + 0.5) * side;
    if (matrix.keys) yield { text: labels[column], x, y: top - 9, anchor: "middle", size };
    const apart = side < 18 && column % Math.max(5, every) !== 0;
    if (!apart) {
      const y = top - (matrix.keys ? 24 : 9);
      yield { text: String(column), x, y, anchor: "middle", size: 9 };
    }
  }
}

/**
 * @param {App} app
 * @param {Panel} panel
 * @param {Matrix} matrix
 */
export function toSvg(app, panel, matrix) {
  const { side, left, top, width, height } = layout(app, matrix);
  const scale = new Scale(matrix, app.state.scale, false);
  const escaped = (/** @type {string} */ text) =>
    text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const shapes = [];
  if (matrix.rows * matrix.columns > MOST_RECTANGLES) {
    const picture = make("canvas", { width: matrix.columns, height: matrix.rows });
    context(picture).putImageData(scale.picture(), 0, 0);
    const size = `width="${matrix.columns * side}" height="${matrix.rows * side}"`;
    shapes.push(
      `<image x="${left}" y="${top}" ${size} style="image-rendering:pixelated" ` +
        `preserveAspectRatio="none" href="${picture.toDataURL()}"/>`,
    );
  } else {
    for (let row = 0; row < matrix.rows; row++) {
      for (let column = 0; column < matrix.columns; column++) {
        const step = scale.step(row, column);
        if (step < 0) continue;
        const [x, y] = [left + column * side, top + row * side];
        const fill = css(scale.rgb(step));
        shapes.push(`<rect x="${x}" y="${y}" width="${side}" height="${side}" fill="${fill}"/>`);
        if (side >= 34) {
          const value = brief(matrix.values[row * matrix.columns + column]);
          const middle = `x="${x + side / 2}" y="${y + side / 2}" dy=".35em" text-anchor="middle"`;
          shapes.push(
            `<text ${middle} fill="${ink(scale.rgb(step))}" font-size="10">${value}</text>`,
          );
        }
      }
    }
  }
  const words = Array.from(
    texts(app, panel, matrix),
    ({ text, x, y, anchor, size }) =>
      `<text x="${x}" y="${y}" dy=".35em" text-anchor="${anchor}" font-size="${size}">` +
      `${escaped(text)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="${escaped(MONO)}" fill="#1d2026">\n` +
    `<rect width="${width}" height="${height}" fill="#ffffff"/>\n` +
    `${shapes.join("\n")}\n${words.join("\n")}\n</svg>\n`;
}

/**
 * @param {App} app
 * @param {Panel} panel
 * @param {Matrix} matrix
 * @returns {Blob}
 */
function toPng(app, panel, matrix) {
  const { side, left, top, width, height } = layout(app, matrix);
  const scale = new Scale(matrix, app.state.scale, false);
  const sharp = Math.min(2, 8000 / Math.max(width, height));
  const canvas = make("canvas", {
    width: Math.round(width * sharp),
    height: Math.round(height * sharp),
  });
  const pen = context(canvas);
  pen.scale(sharp, sharp);
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, width, height);
  const picture = make("canvas", { width: matrix.columns, height: matrix.rows });
  context(picture).putImageData(scale.picture(), 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, left, top, matrix.columns * side, matrix.rows * side);
  pen.textBaseline = "middle";
  for (const { text, x, y, anchor, size } of texts(app, panel, matrix)) {
    pen.fillStyle = "#1d2026";
    pen.font = `${size}px ${MONO}`;
    pen.textAlign = anchor === "middle" ? "center" : /** @type {CanvasTextAlign} */ (anchor);
    pen.fillText(text, x, y);
  }
  for (let row = 0; side >= 34 && row < matrix.rows; row++) {
    for (let column = 0; column < matrix.columns; column++) {
      const step = scale.step(row, column);
      if (step < 0) continue;
      pen.fillStyle = ink(scale.rgb(step));
      pen.font = `10px ${MONO}`;
      pen.textAlign = "center";
      const value = brief(matrix.values[row * matrix.columns + column]);
      pen.fillText(value, left + (column + 0.5) * side, top + (row + 0.5) * side);
    }
  }
  // Not toBlob: what is saved later than the click counts as the page's own doing, and is blocked.
  const [, base64] = canvas.toDataURL("image/png").split(",");
  return new Blob([bytes(base64)], { type: "image/png" });
}
