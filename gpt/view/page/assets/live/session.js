// @ts-check
// What the user does with the model: the text, the changes, what is pinned; and the questions to the
// worker that follow from it.

import { ASKED, Subject } from "../data.js";
import { beforeAll, windowStart } from "../model/sampler.js";
import { codeOf, unpack } from "../numbers.js";
import { make } from "../parts.js";
import { headsOf, Model, nameOf, withWeight } from "./changes.js";
import { foldedNote, unitsOf } from "./fold.js";
import { Options } from "./write.js";

/** @import { Answer, Ask } from "../model/worker.js" */
/** @import { Head } from "./changes.js" */
/** @import { Client } from "./client.js" */
/**
 * The data of a page that computes, beside the Payload of every page.
 * @typedef {object} Own
 * @property {string} about whose model it is
 * @property {string} text to begin with
 * @property {string[]} vocabulary characters, by id
 * @property {import("./fold.js").Folds} folds
 * @property {string[]} vocabulary_labels
 * @property {string[]} vocabulary_legend of the vocabulary's labels, "" if they need none
 * @property {number} layers
 * @property {number} heads
 * @property {number} head_size
 * @property {boolean} attention_only
 * @property {number} block_size
 * @property {import("../payload.js").Measure[]} measures
 * @property {(string | null)[][] | null} kinds
 * @property {import("./write.js").Option[]} options
 * @property {Record<string, string>} origin
 * @property {import("../numbers.js").Packed | null} means (L, H, D), the mean output of each head, if
 *   known
 * @property {string} tour its text, see tour.js
 */
/** A text, and the model that reads it. @typedef {{characters: string[], model: Model}} Case */

const MOST_MARKED = 400; // characters of a text with marks
const MOST_NAMED = 4; // unknown characters that are named
const ROW = /^(.+):(\d{1,7}):(\d{1,7})=([\d.]{1,9})$/; // head, query, key, weight

export class Session {
  /**
   * @param {import("../payload.js").Payload & Own} data
   * @param {Client} client
   * @param {(subjects: Subject[]) => void} show
   */
  constructor(data, client, show) {
    this.data = data;
    this.client = client;
    this.show = show;
    this.all = data.vocabulary;
    this.ids = new Map(this.all.map((character, id) => [character, id]));
    this.model = new Model(data.means ? byHead(unpack(data.means), data) : {});
    this.options = new Options(data.options, () => this.drawn());
    /** @type {Case | null} */
    this.pinned = null;
    this.text = "";
    /** The characters of the text that the model knows. @type {string[]} */
    this.characters = [];
    /** Those that it does not know, with their places. @type {[number, string][]} */
    this.unknown = [];
    this.folded = ""; // what the model reads for what was typed
    this.begin = 0; // of the context in the text
    /** The state of the view, once there is one. @type {() => import("../state.js").State | null} */
    this.state = () => null;
    /** Rows of weights to set by hand when the numbers have arrived, as in the address.
     * @type {string[]} */
    this.pending = [];
    this.stop = ""; // of the tour: "3", "3!" if its answer is shown
    /** What to do once, when the answer to the next question is shown. */
    this.after = () => {};
    /** Draws the parts that show the settings. */
    this.drawn = () => {};
    /** Writes the settings to the address. */
    this.changed = () => this.ask();
  }

  /** Why weights cannot be set by hand now; nothing if they can. @returns {string} */
  get fixed() {
    return this.begin === 0 && !this.pinned
      ? ""
      : "Weights can be set by hand while the text fits into the context and none is pinned.";
  }

  /** The text up to a query. @param {number} query */
  #upTo(query) {
    return this.characters.slice(0, query + 1).join("");
  }

  /** Sets a weight by hand; the others of its row share the rest as the model computed them.
   * @param {Subject} subject
   * @param {Head} place
   * @param {number} query
   * @param {number} key
   * @param {number} weight 0 … 1
   */
  setByHand(subject, place, query, key, weight) {
    const first = subject.begin(query);
    const computed = this.model.rowOf(place, query)?.computed ??
      subject.weights(place.layer, place.head).slice(first, first + query + 1);
    const weights = withWeight(computed, key, weight);
    const text = this.#upTo(query);
    this.model.setRow({ ...place, query, key, weight, weights, computed, text });
  }

  /** Sets the next pending row, if the answer has its place. @param {Subject} subject of the answer */
  #setNext(subject) {
    const [, name, ...numbers] = ROW.exec(this.pending.shift() ?? "") ?? [];
    const [query, key, weight] = numbers.map(Number);
    const place = headsOf(this.data).find((each) => nameOf(each) === name);
    const inside = query < subject.length && key <= query && weight <= 1;
    if (place && inside && !this.fixed) this.setByHand(subject, place, query, key, weight);
  }

  /** @param {string} text */
  read(text) {
    this.text = text;
    this.pending = [];
    const units = unitsOf(text, this.ids, this.data.folds);
    const known = (/** @type {string} */ each) => this.ids.has(each);
    this.characters = units.flatMap(({ read }) => read.filter(known));
    this.unknown = [];
    for (const { place, typed, read } of units) {
      const last = Array.from(typed).length - 1;
      read.forEach((each, n) => {
        if (!known(each)) this.unknown.push([place + Math.min(n, last), each]);
      });
    }
    this.folded = foldedNote(units, this.ids);
    this.begin = windowStart(this.characters.length, this.data.block_size);
    const { model, begin } = this; // rows of another text are forgotten
    model.rows = model.rows.filter((row) => begin === 0 && this.#upTo(row.query) === row.text);
  }

  /** The text as ids; an empty one begins as that of `gptx sample`. @param {string[]} characters */
  encoded(characters) {
    const ids = characters.map((character) => /** @type {number} */ (this.ids.get(character)));
    return ids.length ? ids : [beforeAll(this.all)];
  }

  pin() {
    this.pinned = this.pinned ? null : this.#now();
    this.ask();
  }

  /** The text as it is. @returns {Case} */
  #now() {
    return { characters: this.characters, model: this.model.copy() };
  }

  /** The text with what it is compared to: the pinned one, or the model as it was trained.
   * @returns {Case[]} */
  #cases() {
    const now = this.#now();
    if (this.pinned) return [this.pinned, now];
    return now.model.changed ? [{ ...now, model: now.model.original() }, now] : [now];
  }

  /** Asks the worker, and shows the answers. */
  ask() {
    const cases = this.#cases();
    const asks = cases.map((each) => this.#asked(each));
    const names = namesOf(cases, this.pinned !== null, this.data);
    this.client.read(asks, (answers) => {
      const subjects = answers.map((answer, n) => this.#subjectOf(answer, asks[n], names[n]));
      if (this.pending.length) {
        this.#setNext(subjects[subjects.length - 1]);
        this.ask();
        return;
      }
      this.show(subjects);
      const { after } = this;
      this.after = () => {};
      after();
    });
  }

  /** The question about a case. @param {Case} each @returns {Ask} */
  #asked({ characters, model }) {
    const ids = this.encoded(characters);
    const length = ids.length - windowStart(ids.length, this.data.block_size);
    const wanted = this.wanted(length);
    return { ids, changes: model.changes(), ...wanted };
  }

  /** What the view shows besides: a stage, and the parts of a logit. @param {number} length of the text */
  wanted(length) {
    const { stage, layer, pins, cell, next, against } = this.state() ?? {};
    const position = Math.min(pins?.at(-1) ?? cell?.[0] ?? Infinity, length - 1);
    const id = (/** @type {string | undefined} */ each) => this.ids.get(each ?? "") ?? null;
    return {
      inspect: stage && ASKED.includes(stage)
        ? /** @type {import("../model/reading.js").Inspect} */ ({ layer, stage })
        : null,
      logit: { position, id: id(next), against: id(against) },
    };
  }

  /** @param {number[]} ids @returns {import("../payload.js").Text} */
  #textOf(ids) {
    const { vocabulary_labels: labels } = this.data;
    return { characters: ids.map((id) => this.all[id]), labels: ids.map((id) => labels[id]) };
  }

  /** Begins with a text from the address, or with that of the file. @param {string} text */
  open(text) {
    this.pinned = null;
    this.read(text || this.data.text);
  }

  /** Explanations of the signs that the labels need. @param {Subject[]} subjects */
  legendOf(subjects) {
    const { vocabulary, vocabulary_legend } = this.data;
    const used = new Set(
      subjects.flatMap(({ characters }) => characters),
    );
    const found = vocabulary_legend.filter((text, id) => text && used.has(vocabulary[id]));
    return [...new Set(found)];
  }

  /** The settings for the address. @param {boolean} share whether the text is one */
  toSettings(share) {
    const { model, options, data } = this;
    /** @type {Record<string, string>} */
    const more = {
      stop: this.stop,
      off: [...model.off.keys()].join(),
      how: model.how === "zero" ? "" : model.how,
      text: share ? this.text : "",
      rows: [...model.rows.map(rowName), ...this.pending].join(),
    };
    for (const { name } of data.options) {
      const value = options.values[name];
      more[name] = value === options.defaults[name] ? "" : String(value ?? "none");
    }
    return more;
  }

  /** Takes all settings but the text. @param {Record<string, string>} more */
  fromSettings(more) {
    const { model, options, data } = this;
    const every = headsOf(data);
    this.stop = more.stop;
    model.rows = [];
    this.pending = more.rows.split(",").filter(Boolean);
    model.off = new Map();
    for (const name of more.off.split(",")) {
      const head = every.find((each) => nameOf(each) === name);
      if (head) model.off.set(name, head);
    }
    model.how = more.how === "mean" && model.knowsMeans ? "mean" : "zero";
    for (const { name } of data.options) {
      const text = more[name] === "none" ? "" : more[name];
      if (more[name] === "" || !options.take(name, text)) options.set(name, options.defaults[name]);
      else options.set(name, options.values[name]);
    }
  }

  /** What the page shows of an answer. @param {Answer} answer @param {Ask} asked @param {string} name */
  #subjectOf(answer, { ids, changes }, name) {
    const { origin, layers, heads, head_size, attention_only, measures, kinds } = this.data;
    const vocabulary = { characters: this.all, labels: this.data.vocabulary_labels };
    return new Subject({
      ...answer,
      ...{ name, origin, layers, heads, measures, kinds, headSize: head_size },
      attentionOnly: attention_only,
      checks: checksOfAnswer(answer),
      lens: { ...answer.lens, ...vocabulary },
      replaced: changes?.heads,
    }, this.#textOf(ids.slice(answer.begin)));
  }
}

/** "1.2:19:7=0.75": a head, a query, a key, its weight. @param {import("./changes.js").HandSet} row */
function rowName(row) {
  return `${nameOf(row)}:${row.query}:${row.key}=${row.weight}`;
}

/** The checks of an answer. @param {Answer} answer */
function checksOfAnswer({ proof, sums, contributions }) {
  const check = (
    /** @type {string} */ name,
    /** @type {number} */ error,
    /** @type {number} */ bound,
  ) => ({ name, error, bound, passed: error <= bound });
  /** @type {import("../model/contributions.js").Part[]} */
  const parts = contributions?.parts ?? [];
  const error = Math.abs(
    parts.reduce((sum, { value }) => sum + value, 0) - (contributions?.logit ?? 0),
  );
  const bound = 1e-4 * Math.max(1, ...parts.map(({ value }) => Math.abs(value)));
  return [
    proof,
    check("rows sum to 1", sums, 1e-6),
    ...contributions ? [check("the parts of a logit sum to it", error, bound)] : [],
  ];
}

/** The parts of (L, H, D) values, by the names of heads. @param {Float32Array} values @param {Own} data */
function byHead(values, data) {
  const { head_size: size } = data;
  const part = (/** @type {number} */ n) => values.slice(n * size, (n + 1) * size);
  return Object.fromEntries(headsOf(data).map((head, n) => [nameOf(head), part(n)]));
}

/**
 * A name for each case: what distinguishes them.
 * @param {Case[]} cases
 * @param {boolean} pinned
 * @param {{title: string}} data
 */
function namesOf(cases, pinned, { title }) {
  if (cases.length < 2) return [title];
  const [before, after] = cases;
  return cases.map(({ characters, model }, n) => {
    const parts = [];
    if (pinned) parts.push(n ? "now" : "pinned");
    if (pinned && before.characters.join("") !== after.characters.join("")) {
      const shown = characters.slice(-12).join("").replace(/\s+/g, " ");
      parts.push(`“${characters.length > 12 ? "…" : ""}${shown}”`);
    }
    if (model.title) parts.push(model.title);
    else if (!pinned) parts.push("as trained");
    return parts.join(", ");
  });
}

/** A sentence about characters that the model cannot read, and the start of the text with these marked.
 * @param {Session} session */
export function markedText({ text, unknown }) {
  const few = unknown.slice(0, MOST_NAMED).map(([n, each]) => `${quoted(each)} at position ${n}`);
  if (unknown.length > MOST_NAMED) few.push(`${unknown.length - MOST_NAMED} more`);
  const characters = /** @type {(string | Node)[]} */ (Array.from(text).slice(0, MOST_MARKED));
  for (const [n, each] of unknown) {
    const title = `The model does not know ${quoted(each)}`;
    if (n < characters.length) characters[n] = make("mark", { title }, each);
  }
  return [
    `The model does not know ${few.join(", ")} of the text. It reads the text without them: `,
    make("span", { class: "history" }, ...characters),
  ];
}

/** "'é' (U+00E9)" @param {string} character */
function quoted(character) {
  return `'${character}' (${codeOf(character)})`;
}
