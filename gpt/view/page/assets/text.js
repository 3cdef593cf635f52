// @ts-check
// The text: selecting a character shades the characters that it attends to, or that attend to it.

import { css, ink, Scale } from "./colours.js";
import { short, signed } from "./numbers.js";
import { legend, make, named, part, segments } from "./parts.js";

/** @typedef {import("./parts.js").App} App */

/** @param {App} app */
export function makeText(app) {
  const host = part("text");
  const said = part("text-said");
  /** @type {"from" | "to"} */
  let direction = "from";
  let drawn = "";
  /** @type {App["weights"]} */
  let shaded = "";
  let limit = 1; // of the scale: the matrix's, so that a colour means the same in both
  const characters = app.data.labels.map((label, position) => {
    const code = app.data.codes[position];
    const blank = code === 32 || code === 10 || code === 9;
    return make("span", {
      class: blank ? "character blank" : "character",
      role: "option",
      "data-position": position,
      title: `position ${position}, U+${code.toString(16).toUpperCase().padStart(4, "0")}`,
    }, label);
  });
  characters.forEach((character, position) => {
    host.append(character);
    if (app.data.codes[position] === 10) host.append(make("br", null));
    else host.append(document.createElement("wbr"));
  });
  const show = segments(part("direction"), [
    ["from", "attends to", "Shades the keys that a character looks at"],
    ["to", "is attended by", "Shades the queries that look at a character"],
  ], (value) => {
    direction = /** @type {"from" | "to"} */ (value);
    render();
  });

  /** @param {Event} event */
  const positionAt = (event) => {
    const character = /** @type {Element} */ (event.target).closest?.(".character");
    return character ? Number(/** @type {HTMLElement} */ (character).dataset.position) : null;
  };
  host.addEventListener("pointerover", (event) => app.read(positionAt(event)));
  host.addEventListener("pointerleave", () => app.read(null));
  host.addEventListener("focusin", (event) => {
    if (host.querySelector(":focus-visible")) app.read(positionAt(event));
  });
  host.addEventListener("focusout", () => app.read(null));
  host.addEventListener("click", (event) => toggle(positionAt(event)));
  host.addEventListener("keydown", (event) => {
    const position = positionAt(event);
    if (position === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") toggle(position);
    else if (step) {
      const next = characters[position + step];
      if (next) {
        characters[position].tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    } else return;
    event.preventDefault();
  });
  /** @param {number | null} position */
  function toggle(position) {
    if (position === null) return;
    const { pins } = app.state;
    const others = pins.filter((pin) => pin !== position);
    app.change({ pins: others.length < pins.length ? others : [...pins, position] });
  }

  /** Rows (or columns) to take the mean of. */
  function chosen() {
    const { state: { pins, cell }, reading, pointed } = app;
    if (reading !== null) return [reading];
    if (pointed && direction === "from") return [pointed[0]];
    if (pointed && app.panels.every(({ matrix }) => typeof matrix !== "string" && matrix.keys)) {
      return [pointed[1]];
    }
    if (pins.length) return pins;
    return [direction === "from" && cell ? cell[0] : app.data.codes.length - 1];
  }

  function render() {
    show(direction);
    const { weights } = app;
    const T = characters.length;
    const rows = chosen();
    const now = [direction, app.dark, app.state.scale, rows, app.state.pins.join("+")].join();
    if (now === drawn && weights === shaded) return;
    if (weights !== shaded && typeof weights !== "string") {
      limit = new Scale(weights, "fixed", app.dark).limit;
    }
    drawn = now;
    shaded = weights;
    const values = new Float64Array(T);
    if (typeof weights !== "string") {
      for (const row of rows) {
        for (let j = 0; j < T; j++) {
          const at = direction === "from" ? row * T + j : j * T + row;
          values[j] += weights.values[at] / rows.length;
        }
      }
    }
    const kind = typeof weights === "string" ? "share" : weights.kind;
    const line = { rows: 1, columns: T, values, causal: false, keys: true, kind };
    const scale = new Scale(line, app.state.scale, app.dark, limit);
    part("text-legend").replaceChildren(...legend(scale, app.digits));
    const [first, last] = [Math.min(...rows), Math.max(...rows)];
    characters.forEach((character, position) => {
      const masked = direction === "from" ? position > last : position < first;
      const colour = scale.rgb(scale.step(0, position));
      character.style.background = masked ? "" : css(colour);
      character.style.color = masked ? "" : ink(colour);
      character.classList.toggle("masked", masked);
      character.classList.toggle("here", rows.includes(position));
      character.setAttribute("aria-selected", String(app.state.pins.includes(position)));
    });
    if (!host.querySelector('[tabindex="0"]')) characters[0].tabIndex = 0;
    said.textContent = summary(app, weights, rows, values, direction);
  }
  return { render };
}

/**
 * @param {App} app
 * @param {App["weights"]} weights
 * @param {number[]} rows
 * @param {Float64Array} values
 * @param {"from" | "to"} direction
 */
function summary(app, weights, rows, values, direction) {
  if (typeof weights === "string") return weights;
  const many = rows.slice(0, 6).map((row) => named(app, row)).join(", ") +
    (rows.length > 6 ? ` and ${rows.length - 6} more` : "");
  const differs = weights.kind === "difference";
  const write = differs ? signed : short;
  const order = Array.from(values.keys()).filter((j) => values[j] !== 0);
  order.sort((i, j) => Math.abs(values[j]) - Math.abs(values[i]) || i - j);
  const top = order.slice(0, 4).map((j) => `${named(app, j)} ${write(values[j], app.digits)}`);
  const rest = order.slice(4).reduce((sum, j) => sum + values[j], 0);
  if (order.length > 4 && direction === "from" && !differs) {
    top.push(`rest ${short(rest, app.digits)}`);
  }
  const verb = direction === "from" ? "→" : "←";
  return `${rows.length > 1 ? "mean of " : ""}${many} ${verb} ${top.join(" · ") || "nothing"}`;
}
