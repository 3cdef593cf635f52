// @ts-check
// The one state of the page, the question to the worker that follows from it, and what is shown: an
// answer with the state that it belongs to. T characters of the window, V vocab_size.

import { mark, part } from "./dom.js";
import { readHues } from "./format.js";
import { probabilities } from "./model/sampler.js";
import { makeTyped } from "./typed.js";

/** @import { Answer, Ask, Head, PageData, Reply, Request, SampleOptions, Seen } from "./model/protocol.js" */
/** @import { Typed } from "./typed.js" */
/** @typedef {"dots" | "scaled" | "masked" | "weights"} Stage */
/**
 * row: a position of the window, null for the last one. key: of the chosen cell, null for the largest
 * weight of the row. id: the character whose logit is taken apart, null for the likeliest. look: the
 * chosen head, null until the first answer names the one that adds most. surprisal: whether it shades the
 * text. lens: whether the logit lens is open.
 * @typedef {object} State
 * @property {string} text
 * @property {number | null} row
 * @property {number | null} key
 * @property {number | null} id
 * @property {Head | null} look
 * @property {Stage} stage
 * @property {Head[]} off
 * @property {SampleOptions} options
 * @property {boolean} surprisal
 * @property {boolean} lens
 */

/** What the page shows. */
export class Shown {
  /** @param {State} state @param {Typed} typed @param {Ask} ask @param {Answer} answer */
  constructor(state, typed, ask, answer) {
    this.state = state;
    this.typed = typed;
    this.answer = answer;
    this.row = ask.row;
    this.look = answer.look;
    this.key = answer.key;
    this.parts = answer.now.parts;
    this.off = state.off.some((each) => same(each, answer.look));
    this.chances = this.#chances(answer.now);
    this.before = answer.before && this.#chances(answer.before);
  }

  /** (V,) after temperature and filters. @param {Seen} seen */
  #chances({ logits }) {
    return probabilities(logits, this.state.options);
  }

  get length() {
    return this.typed.ids.length;
  }

  /** The weights of the chosen head, row after row. */
  get weights() {
    const { layer, head } = this.look;
    return this.answer.now.weights[layer][head];
  }

  /** A weight of the chosen head. @param {number} row @param {number} key */
  weight(row, key) {
    return this.weights[row * (row + 1) / 2 + key];
  }

  /** What a head adds to the logit. @param {Head} head */
  added({ layer, head }) {
    return this.parts.heads[layer][head];
  }
}

/** @param {Head} a @param {Head} b */
export function same(a, b) {
  return a.layer === b.layer && a.head === b.head;
}

/** "head 1 of layer 2" @param {Head} at */
export function nameOf({ layer, head }) {
  return `head ${head} of layer ${layer}`;
}

export class App {
  /**
   * @param {PageData} data
   * @param {string} worker its program
   * @param {(reason: string) => void} fail shows a reason in place of all numbers
   */
  constructor(data, worker, fail) {
    this.data = data;
    this.fail = fail;
    this.read = makeTyped(data);
    this.hues = readHues();
    /** @type {State} */
    this.state = {
      text: data.text,
      row: null,
      key: null,
      id: null,
      look: data.start,
      stage: "weights",
      off: [],
      options: { temperature: 1, top_k: null, top_p: null, min_p: null },
      surprisal: false,
      lens: false,
    };
    /** @type {Shown | null} */
    this.shown = null;
    /** What draws a part of the page, in this order. @type {((shown: Shown) => void)[]} */
    this.parts = [];
    /** Makes the parts of the page, before the first answer is shown. */
    this.begin = () => {};
    /** @type {{error: number, bound: number} | null} */
    this.proof = null;
    /** What is done once, when the present state is shown. @type {(() => void)[]} */
    this.waiting = [];
    /** The state of a question that the worker has, and whether another one came meanwhile. */
    this.asked = /** @type {{state: State, typed: Typed, ask: Ask} | null} */ (null);
    this.stale = false;
    const address = URL.createObjectURL(new Blob([worker], { type: "text/javascript" }));
    this.worker = new Worker(address);
    this.worker.addEventListener("message", ({ data: reply }) => this.#receive(reply));
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      fail(`The computation failed: ${event.message || "the browser refused to start it"}.`);
    });
    this.#send({ kind: "open", model: data.model });
    this.#ask();
  }

  /** Changes the state. Another text is read to its end. @param {Partial<State>} changes */
  set(changes) {
    const { text } = this.state;
    const fresh = { row: null, key: null, id: null };
    const other = changes.text !== undefined && changes.text !== text;
    this.state = { ...this.state, ...(other ? fresh : {}), ...changes };
    if (this.asked) this.stale = true;
    else this.#ask();
  }

  /** The state's picture, once it is shown. @returns {Promise<void>} */
  drawn() {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Draws all in the colours of another theme. */
  recolour() {
    this.hues = readHues();
    this.draw();
  }

  draw() {
    const { shown } = this;
    if (shown) { for (const each of this.parts) each(shown); }
  }

  #ask() {
    this.stale = false;
    const { state } = this;
    const typed = this.read(state.text);
    const last = typed.ids.length - 1;
    const ask = {
      ids: typed.ids,
      off: state.off,
      row: Math.min(state.row ?? last, last),
      id: state.id,
      look: state.look,
      key: state.key,
      scores: state.stage !== "weights",
      lens: state.lens,
    };
    this.asked = { state, typed, ask };
    mark(part("page"), "aria-busy", "true");
    this.#send({ kind: "read", ...ask });
  }

  /** @param {Request} request */
  #send(request) {
    this.worker.postMessage(request);
  }

  /** @param {Reply} reply */
  #receive(reply) {
    if (reply.kind === "failed") this.fail(reply.reason);
    else if (reply.kind === "opened") this.proof = reply;
    else if (this.asked) {
      const { state, typed, ask } = this.asked;
      this.asked = null;
      if (!this.state.look) this.state = { ...this.state, look: reply.look };
      if (this.stale) this.#ask();
      if (!this.shown) this.begin();
      this.shown = new Shown(state, typed, ask, reply);
      this.draw();
      performance.mark("drawn"); // for benchmarks/live.py
      if (this.asked) return;
      mark(part("page"), "aria-busy", "false");
      for (const done of this.waiting.splice(0)) done();
    }
  }
}
