// @ts-check
// Saves the matrix on the page as a file. CSV has the columns of gptx attn. SVG and PNG name the model,
// the head, the stage and the text, and have the scale and the characters at the sides.

import { byId, label, make, penOf } from "./dom.js";
import { css, format, inkOn, tint } from "./format.js";
import { nameOf } from "./app.js";
import { matrixOf, sharesOf, STAGES } from "./stages.js";
import { painted } from "./triangle.js";

/** @import { App, Shown } from "./app.js" */
/** @import { Hues } from "./format.js" */
/** @import { Matrix } from "./stages.js" */

const SHARPNESS = 2; // a pixel of the figure has SHARPNESS × SHARPNESS pixels in the PNG
const MOST_RECTANGLES = 10_000; // the most cells drawn as rectangles; more cells become an image
const [LEFT, WIDTH, STRIP] = [56, 480, 160]; // pixels: left margin, least width, width of the scale
const FONT = "DejaVu Sans Mono, ui-monospace, monospace";
/** The name of the CSV's last column, as in gptx attn. */
const COLUMNS = { dots: "scores", scaled: "scaled", masked: "masked", weights: "weight" };
/** The figure is light in every theme. @type {Hues} */
const LIGHT = {
  none: [255, 255, 255],
  more: [37, 99, 178],
  less: [190, 88, 28],
  ink: [27, 29, 33],
  soft: [98, 105, 115],
};

/** @param {App} app */
export function makeSave(app) {
  /** @type {Record<string, (shown: Shown, matrix: Matrix) => Blob | Promise<Blob>>} */
  const forms = {
    svg: (shown, matrix) => new Blob([toSvg(app, shown, matrix)], { type: "image/svg+xml" }),
    png: (shown, matrix) => toPng(toSvg(app, shown, matrix)),
    csv: (shown, matrix) => new Blob([toCsv(shown, matrix)], { type: "text/csv" }),
  };
  for (const [form, write] of Object.entries(forms)) {
    byId(`save-${form}`).addEventListener("click", async () => {
      const { shown } = app;
      if (!shown) return;
      const matrix = matrixOf(shown, app.data.model.config.head_size);
      const { layer, head } = shown.look;
      const blob = await write(shown, matrix);
      const address = URL.createObjectURL(blob);
      make("a", { href: address, download: `layer${layer}-head${head}-${matrix.stage}.${form}` })
        .click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    });
  }
}

/** CSV with a line for every cell that the mask does not hide. @param {Shown} shown @param {Matrix} matrix */
function toCsv({ look, typed: { characters } }, { stage, length, value }) {
  const quoted = (/** @type {string} */ text) => `"${text.replaceAll('"', '""')}"`;
  const names = ["layer", "head", "q_pos", "q_char", "k_pos", "k_char", COLUMNS[stage]];
  const lines = [names.map(quoted).join(",")];
  for (let row = 0; row < length; row++) {
    for (let key = 0; key < length; key++) {
      const number = value(row, key);
      if (number === null) continue;
      const [query, keyed] = [quoted(characters[row]), quoted(characters[key])];
      const digits = Number(number.toPrecision(9)); // nine digits distinguish all float32 numbers
      lines.push([look.layer, look.head, row, query, key, keyed, digits].join(","));
    }
  }
  return lines.join("\n") + "\n";
}

/** @param {App} app @param {Shown} shown @param {Matrix} matrix */
function toSvg({ data: { title, vocabulary } }, shown, matrix) {
  const { characters } = shown.typed;
  const { length, most, value, stage, signed } = matrix;
  const side = Math.max(4, Math.min(36, Math.floor(900 / length)));
  const extent = length * side;
  const width = Math.max(LEFT + extent + 16, WIDTH);
  /** @type {string[]} */
  const marks = [];
  const say = (
    /** @type {string} */ text,
    /** @type {number} */ x,
    /** @type {number} */ y,
    { anchor = "start", size = 12, fill = css(LIGHT.ink) } = {},
  ) => {
    marks.push(
      `<text x="${x}" y="${y}" dy=".35em" text-anchor="${anchor}" font-size="${size}" fill="${fill}">` +
        `${escaped(text)}</text>`,
    );
  };
  const fill = (
    /** @type {number} */ x,
    /** @type {number} */ y,
    /** @type {number} */ wide,
    /** @type {number} */ high,
    /** @type {number} */ share,
  ) =>
    marks.push(
      `<rect x="${x}" y="${y}" width="${wide}" height="${high}" fill="${
        css(tint(LIGHT, share))
      }"/>`,
    );
  const shareAt = sharesOf(matrix);
  const name = `${STAGES[stage].name} of ${nameOf(shown.look)}`;
  const off = shown.state.off.map(nameOf).join(", ");
  say(title, 16, 20, { size: 14 });
  say(off ? `${name}; off: ${off}` : name, 16, 40);
  const top = 84;
  const step = Math.max(1, Math.ceil(12 / side)); // rows from one label to the next
  for (let at = 0; at < length; at += step) {
    const middle = (at + 0.5) * side;
    say(`${at} ${label(characters[at])}`, LEFT - 6, top + middle, { anchor: "end", size: 10 });
    say(label(characters[at]), LEFT + middle, top - 10, { anchor: "middle", size: 10 });
  }
  if (length ** 2 > MOST_RECTANGLES) {
    marks.push(
      `<image x="${LEFT}" y="${top}" width="${extent}" height="${extent}" ` +
        `style="image-rendering:pixelated" href="${painted(length, LIGHT, shareAt).toDataURL()}"/>`,
    );
  } else {
    for (let row = 0; row < length; row++) {
      for (let key = 0; key < length; key++) {
        const share = shareAt(row, key);
        if (share === null) continue;
        fill(LEFT + key * side, top + row * side, side, side, share);
        if (side < 34) continue;
        const [x, y] = [LEFT + (key + 0.5) * side, top + (row + 0.5) * side];
        const on = { anchor: "middle", size: 10, fill: inkOn(tint(LIGHT, share)) };
        say(format(value(row, key)), x, y, on);
      }
    }
  }
  let y = top + extent + 20;
  for (let n = 0; n < 32; n++) {
    fill(16 + n * STRIP / 32, y, STRIP / 32, 10, signed ? n / 15.5 - 1 : n / 31);
  }
  y += 22;
  say(signed ? format(-most) : "0", 16, y, { size: 10 });
  say(format(most), 16 + STRIP, y, { anchor: "end", size: 10 });
  const wrap = Math.floor((width - 32) / 7.3);
  const text = `text: ${characters.map(label).join("")}`;
  for (let at = 0; at < text.length; at += wrap) say(text.slice(at, at + wrap), 16, y += 20);
  const next = [...shown.chances.keys()].sort((a, b) => shown.chances[b] - shown.chances[a]).slice(
    0,
    5,
  );
  const chances = next.map((id) => `${label(vocabulary[id])} ${format(shown.chances[id])}`);
  say(`next after ${label(characters[shown.row])}: ${chances.join("  ")}`, 16, y += 20);
  const height = y + 20;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="${FONT}" xml:space="preserve">\n` +
    `<rect width="${width}" height="${height}" fill="#fff"/>\n${marks.join("\n")}\n</svg>\n`;
}

/** Text for XML. @param {string} text */
function escaped(text) {
  return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** @param {string} svg @returns {Promise<Blob>} */
async function toPng(svg) {
  const figure = make("img", {
    src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`,
  });
  await figure.decode();
  const canvas = make("canvas", {
    width: figure.width * SHARPNESS,
    height: figure.height * SHARPNESS,
  });
  penOf(canvas).drawImage(figure, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(/** @type {Blob} */ (blob))));
}
