// @ts-check
// How the model writes: the options of `gptx sample`, and what they make of the next character's
// distribution.

import { probabilities, SHAPING } from "../model/sampler.js";
import { MOST_BARS } from "../next.js";
import { decimals } from "../numbers.js";
import { make, part } from "../parts.js";

/** @import { SampleOptions } from "../model/sampler.js" */
/** @import { Expected } from "../next.js" */
/** An option of `gptx sample`: its field, its help, its default, and the numbers that it takes: whole
 * ones or all, from `least` or above `above`, up to `most`, where these are not null.
 * @typedef {{name: string, help: string, default: number | null, whole: boolean, least: number | null,
 *  most: number | null, above: number | null}} Option */
/** Whether an option takes a number. @param {Option} option @param {number} value */
function optionTakes({ whole, least, most, above }, value) {
  return (whole ? Number.isSafeInteger(value) : Number.isFinite(value)) &&
    !(least !== null && value < least) && !(above !== null && value <= above) &&
    !(most !== null && value > most);
}

/** The numbers that an option takes, in words. @param {Option} option */
function optionRange({ whole, least, most, above }) {
  const begin = least === null ? `more than ${above}` : `from ${least}`;
  const end = most === null
    ? ""
    : least === null
    ? `, at most ${most}`
    : ` to ${most.toLocaleString("en")}`;
  return `a ${whole ? "whole " : ""}number ${begin}${end}`;
}

/** The fields of the options, and their values. */
export class Options {
  /** @param {Option[]} options @param {() => void} changed */
  constructor(options, changed) {
    /** @type {Record<string, number | null>} */
    this.values = {};
    this.options = Object.fromEntries(options.map((option) => [option.name, option]));
    this.defaults = Object.fromEntries(options.map((option) => [option.name, option.default]));
    this.said = make("p", { class: "refused", role: "alert", hidden: true });
    this.inputs = options.map(({ name, help, whole, most }) => {
      const step = whole ? "1" : most === 1 ? "0.05" : "0.1";
      const input = make("input", { id: `option-${name}`, type: "number", step, title: help });
      input.addEventListener("input", () => {
        this.take(name, input.value);
        changed();
      });
      return { name, input };
    });
    part("options").replaceChildren(
      ...this.inputs.map(({ name, input }) =>
        make("label", { title: input.title }, name.replace("_", "-"), input)
      ),
      this.said,
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
    return /** @type {any} */ (drawing);
  }
}

/**
 * What sampling makes of the distribution of the next character.
 * @param {import("./session.js").Session} session
 * @param {Float64Array} scores (V,) log-probabilities of the vocabulary
 * @param {SampleOptions} options
 * @returns {Expected}
 */
export function drawnNext({ all, ids, data }, scores, options) {
  const { before, chances, removed } = probabilities(scores, options);
  const names = SHAPING.map((name) => name.replace("_", "-"));
  const order = Array.from(before.keys()).sort((a, b) => before[b] - before[a] || a - b);
  const first = order.slice(0, MOST_BARS).map((id) => {
    const drawn = chances[id] > 0;
    return {
      character: all[id],
      label: data.vocabulary_labels[id],
      share: drawn ? chances[id] : before[id],
      out: drawn ? "" : names[removed[id]],
    };
  });
  const left = chances.reduce((count, chance) => count + Number(chance > 0), 0);
  const taken = before.reduce((sum, chance, id) => chances[id] > 0 ? sum : sum + chance, 0);
  const removes = `; the filters removed ${decimals(100 * taken, 1) || "0"} % of the probability`;
  return {
    first,
    shareOf: (character) => chances[ids.get(character) ?? -1] ?? null,
    said:
      `At temperature ${options.temperature}, ${left} of ${all.length} characters can be drawn` +
      `${taken > 0 ? removes : ""}.`,
  };
}
