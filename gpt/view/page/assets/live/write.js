// @ts-check
// How the model writes: the options of `gptx sample`, and what they make of the next character's
// distribution.

import { FILTERS, probabilities } from "../model/sampler.js";
import { decimals } from "../numbers.js";
import { bar, lengthen, make, part, say, segments } from "../parts.js";

/** @typedef {import("../parts.js").App} App */
/** @typedef {import("../model/sampler.js").SampleOptions} SampleOptions */
/** @typedef {import("./session.js").Session} Session */
/** An option of `gptx sample`: its field, its help, its default, and the numbers that it takes: whole
 * ones or all, from `least` or above `above`, up to `most` or below `below`, where these are not null.
 * @typedef {{name: string, help: string, default: number | null, whole: boolean, least: number | null,
 *  most: number | null, above: number | null, below: number | null}} Option */

const MOST_DRAWN = 10; // characters of the list

/** Whether an option takes a number. @param {Option} option @param {number} value */
export function optionTakes({ whole, least, most, above, below }, value) {
  return (whole ? Number.isSafeInteger(value) : Number.isFinite(value)) &&
    !(least !== null && value < least) && !(above !== null && value <= above) &&
    !(most !== null && value > most) && !(below !== null && value >= below);
}

/** The numbers that an option takes, in words. @param {Option} option */
export function optionRange({ whole, least, most, above, below }) {
  const begin = least === null ? `more than ${above}` : `from ${least}`;
  const last = whole && below !== null ? Math.min(below, Number.MAX_SAFE_INTEGER) : most ?? below;
  const end = last === null
    ? ""
    : least === null
    ? `, at most ${last}`
    : ` to ${last.toLocaleString("en")}`;
  return `a ${whole ? "whole " : ""}number ${begin}${end}`;
}

/** The fields of the options, and their values. */
export class Options {
  /** @param {Option[]} options @param {() => void} changed */
  constructor(options, changed) {
    /** @type {Record<string, number | null>} */
    this.values = {};
    /** @type {"gpt" | "counting" | null} */
    this.only = null;
    this.options = Object.fromEntries(options.map((option) => [option.name, option]));
    this.defaults = Object.fromEntries(options.map((option) => [option.name, option.default]));
    const said = make("p", { class: "refused", role: "alert", hidden: true });
    this.inputs = options.map(({ name, help, whole, most }) => {
      const step = whole ? "1" : most === 1 ? "0.05" : "0.1";
      const input = make("input", { id: `option-${name}`, type: "number", step, title: help });
      input.addEventListener("input", () => {
        this.take(name, input.value);
        changed();
      });
      return { name, input };
    });
    this.said = said;
    part("options").replaceChildren(
      ...this.inputs.map(({ name, input }) =>
        make("label", { title: input.title }, name.replace("_", "-"), input)
      ),
      said,
    );
    for (const { name } of options) this.set(name, this.defaults[name]);
  }

  /** Takes what is in a field; false if it is no value of this option. @param {string} name @param {string} text */
  take(name, text) {
    const value = text.trim() === "" ? null : Number(text);
    const input = /** @type {HTMLInputElement} */ (part(`option-${name}`));
    const empty = value === null && this.defaults[name] === null && !input.validity.badInput;
    const right = value === null ? empty : optionTakes(this.options[name], value);
    if (right) this.values[name] = value;
    this.#judge(input, right);
    return right;
  }

  /** @param {string} name @param {number | null} value */
  set(name, value) {
    this.values[name] = value;
    const input = /** @type {HTMLInputElement} */ (part(`option-${name}`));
    input.value = value === null ? "" : String(value);
    this.#judge(input, true);
  }

  /** Whether a field has no value of its option. */
  get invalid() {
    return !this.said.hidden;
  }

  /** Marks a field, and names what all wrong fields take. @param {HTMLInputElement} input @param {boolean} right */
  #judge(input, right) {
    input.setAttribute("aria-invalid", String(!right));
    const wrong = this.inputs.filter(({ input }) => input.ariaInvalid === "true");
    this.said.hidden = !wrong.length;
    this.said.textContent = wrong.map(({ name }) =>
      `${name.replace("_", "-")}: ${optionRange(this.options[name])}`
    ).join(" · ");
  }

  get length() {
    return this.values.length ?? 1;
  }

  /** @returns {SampleOptions} */
  get drawing() {
    const { length: _, ...drawing } = this.values;
    return /** @type {any} */ ({ ...drawing, only: this.only });
  }
}

/** @param {App} app @param {Session} session */
export function makeWrite(app, session) {
  const { options, data } = session;
  const showOnly = segments(
    part("only"),
    data.counts
      ? [
        ["", "together", "The GPT and counting"],
        ["gpt", "GPT", "The GPT alone"],
        ["counting", "counting", "Counting alone"],
      ]
      : [],
    (only) => {
      options.only = /** @type {"gpt" | "counting"} */ (only) || null;
      session.drawn();
    },
  );
  const showList = drawList();
  function render() {
    showOnly(options.only ?? "");
    const subject = app.subjects[app.subjects.length - 1];
    const chances = subject.nextOf(options.only);
    if (!chances) return;
    const labels = subject.payload.lens?.labels ?? [];
    const { first, chance, drawable } = showList(labels, chances, options.drawing);
    part("draw-said").textContent =
      `At temperature ${options.values.temperature} the likeliest next character is ` +
      `'${labels[first]}': ${decimals(chance, 3)}. ${drawable}.`;
  }
  return { host: part("draw"), render };
}

/**
 * A list of what sampling makes of the distribution of the next character. The function shows another
 * one: labels of the vocabulary, log-probabilities, options. It returns the likeliest id and its
 * probability at this temperature, and says how many characters can be drawn and what the filters
 * removed. It keeps the list's elements, as new ones would take the browser longer.
 */
export function drawList() {
  const items = Array.from({ length: MOST_DRAWN }, () => {
    const [term, number] = ["term", "number"].map((name) => make("span", { class: name }));
    const share = bar(0);
    return { item: make("li", null, term, share, number), term, share, number };
  });
  part("draw").replaceChildren(
    make("ol", { class: "guesses" }, ...items.map(({ item }) => item)),
  );
  return (
    /** @type {string[]} */ labels,
    /** @type {Float64Array} */ scores,
    /** @type {SampleOptions} */ options,
  ) => {
    const { before, chances, removed } = probabilities(scores, options);
    const names = ["temperature", ...Object.keys(FILTERS)].map((name) => name.replace("_", "-"));
    const left = chances.reduce((count, chance) => count + Number(chance > 0), 0);
    const taken = before.reduce((sum, chance, id) => chances[id] > 0 ? sum : sum + chance, 0);
    const order = Array.from(before.keys()).sort((a, b) => before[b] - before[a] || a - b);
    const [first] = order;
    items.forEach(({ item, term, share, number }, n) => {
      const id = order[n];
      item.hidden = id === undefined;
      if (item.hidden) return;
      const out = !(chances[id] > 0);
      item.className = out ? "out" : "";
      item.title = out ? `removed by ${names[removed[id]]}` : "";
      say(term, labels[id]);
      lengthen(share, out ? before[id] : chances[id]);
      say(number, out ? names[removed[id]] : decimals(chances[id], 3));
    });
    const removes = `; the filters removed ${decimals(100 * taken, 1) || "0"} % of the probability`;
    const drawable = `${left} of ${labels.length} characters can be drawn`;
    return { first, chance: before[first], drawable: drawable + (taken > 0 ? removes : "") };
  };
}
