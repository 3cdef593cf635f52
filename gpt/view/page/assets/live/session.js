// @ts-check
// What the user does with the model: the text, the changes, what is pinned; and the questions to the
// worker that follow from it.

import { Subject } from "../data.js";
import { beforeAll, windowStart } from "../model/sampler.js";
import { Model } from "./changes.js";
import { Options } from "./write.js";

/** @typedef {import("../model/worker.js").Answer} Answer */
/** @typedef {import("../model/worker.js").Ask} Ask */
/** @typedef {import("./client.js").Client} Client */
/** One of the models in the file. loss: nats of the validation split, if known.
 * @typedef {{step: number, loss: number | null, origin: Record<string, string>,
 *   means: {base64: string, bits: number} | null}} ModelRecord */
/**
 * The data of a page that computes, beside the Payload of every page.
 * @typedef {object} Own
 * @property {string} text to begin with
 * @property {number[]} vocabulary code points, by id
 * @property {string[]} vocabulary_labels
 * @property {string[]} vocabulary_legend of the vocabulary's labels, "" if they need none
 * @property {number} layers
 * @property {number} heads
 * @property {number} head_size
 * @property {number} block_size
 * @property {import("../payload.js").Measure[]} measures
 * @property {(string | null)[][] | null} kinds
 * @property {import("./write.js").Option[]} options
 * @property {ModelRecord[]} models
 * @property {string[]} left_out what does not fit into the file
 * @property {boolean} counts
 */
/** A text, and the model that reads it. @typedef {{characters: string[], model: Model}} Case */

export class Session {
  /**
   * @param {import("../payload.js").Payload & Own} data
   * @param {Client} client
   * @param {Float32Array[][][]} means by step, layer and head; [] of a step without
   * @param {(subjects: Subject[]) => void} show
   */
  constructor(data, client, means, show) {
    this.data = data;
    this.client = client;
    this.show = show;
    this.all = data.vocabulary.map((code) => String.fromCodePoint(code));
    this.ids = new Map(this.all.map((character, id) => [character, id]));
    this.model = new Model(means);
    this.model.step = data.models.length - 1;
    this.options = new Options(data.options, () => this.drawn());
    /** @type {Case | null} */
    this.pinned = null;
    this.text = "";
    /** The characters of the text that the model knows. @type {string[]} */
    this.characters = [];
    /** Those that it does not know, with their places. @type {[number, string][]} */
    this.unknown = [];
    this.begin = 0; // of the context in the text
    /** Draws the parts that show the settings. */
    this.drawn = () => {};
    /** Writes the settings to the address. */
    this.changed = () => this.ask();
  }

  /** @param {string} text */
  read(text) {
    this.text = text;
    const all = Array.from(text);
    this.characters = all.filter((character) => this.ids.has(character));
    this.unknown = [...all.entries()].filter(([, character]) => !this.ids.has(character));
    const begin = windowStart(this.characters.length, this.data.block_size);
    this.begin = begin;
    this.model.keepRowsOf(begin ? [] : this.characters);
  }

  /** The text as ids; an empty one begins as that of `gptx sample`. @param {string[]} characters */
  encoded(characters) {
    const ids = characters.map((character) => /** @type {number} */ (this.ids.get(character)));
    return ids.length ? ids : [beforeAll(this.all)];
  }

  pin() {
    this.pinned = this.pinned
      ? null
      : { characters: [...this.characters], model: this.model.copy() };
    this.ask();
  }

  /** The text with what it is compared to: the pinned one, or the model as it was trained.
   * @returns {Case[]} */
  cases() {
    const now = { characters: this.characters, model: this.model.copy() };
    if (this.pinned) return [this.pinned, now];
    return now.model.changed ? [{ ...now, model: now.model.original() }, now] : [now];
  }

  /** Asks the worker, and shows the answers. */
  ask() {
    const cases = this.cases();
    const asks = cases.map(({ characters, model }) => ({
      ids: this.encoded(characters),
      step: model.step,
      changes: model.changes(),
    }));
    this.client.read(asks, (answers) => {
      const names = namesOf(cases, this.pinned !== null, this.data);
      this.show(answers.map((answer, n) => this.#subject(answer, asks[n], names[n])));
    });
  }

  /** @param {Answer} answer @param {Ask} asked @param {string} name */
  #subject(answer, { ids, step, changes }, name) {
    const { data } = this;
    const { vocabulary: codes, vocabulary_labels: labels } = data;
    const vocabulary = { codes, labels };
    const window = ids.slice(answer.begin);
    return new Subject({
      ...answer,
      name,
      origin: data.models[step].origin,
      layers: data.layers,
      heads: data.heads,
      headSize: data.head_size,
      measures: data.measures,
      kinds: data.kinds,
      checks: [...answer.proof.checks, {
        name: "rows sum to 1",
        error: answer.sums,
        bound: 1e-6,
        passed: answer.sums <= 1e-6,
      }],
      lens: { ...answer.lens, ...vocabulary },
      experts: answer.experts && { ...answer.experts, ...vocabulary },
      replaced: changes?.heads,
    }, { codes: window.map((id) => codes[id]), labels: window.map((id) => labels[id]) });
  }
}

/**
 * A name for each case: what distinguishes them.
 * @param {Case[]} cases
 * @param {boolean} pinned
 * @param {Own & {title: string}} data
 */
function namesOf(cases, pinned, { title, models }) {
  if (cases.length < 2) return [title];
  const [before, after] = cases;
  const steps = before.model.step !== after.model.step;
  return cases.map(({ characters, model }, n) => {
    const parts = [];
    if (pinned) parts.push(n ? "now" : "pinned");
    if (pinned && before.characters.join("") !== after.characters.join("")) {
      const shown = characters.slice(-12).join("").replace(/\s+/g, " ");
      parts.push(`“${characters.length > 12 ? "…" : ""}${shown}”`);
    }
    if (steps) parts.push(`step ${models[model.step].step.toLocaleString("en")}`);
    if (model.title) parts.push(model.title);
    else if (!pinned) parts.push("as trained");
    return parts.join(", ");
  });
}
