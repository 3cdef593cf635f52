// @ts-check
// Keeps the state of the page, asks the worker about it, and draws the worker's answer. The window is
// the end of the text that the model reads. V is vocab_size.

import { byId, setAttr } from "./dom.js";
import { readHues } from "./format.js";
import { probabilities } from "./model/sampler.js";
import { makeTyped } from "./typed.js";

/** @import { Answer, Head, PageData, Question, Reply, Request, SampleOptions, Outputs } from "./model/protocol.js" */
/** @import { Typed } from "./typed.js" */
/** @typedef {"dots" | "scaled" | "masked" | "weights"} Stage */
/**
 * What the user has chosen. row: a position of the window; null: the last one. key: the chosen cell's
 * column; null: that of the row's largest weight. id: the character whose logit is split into parts;
 * null: the likeliest. look: a head; null until the first answer names the head that adds most. off: the
 * heads that are switched off. surprisal: whether surprisal shades the text. lens: whether the lens panel is open.
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

/** What the page shows: an answer of the worker, and the state that it belongs to. */
export class Shown {
  /** @param {State} state @param {Typed} typed @param {Question} question @param {Answer} answer */
  constructor(state, typed, question, answer) {
    this.state = state;
    this.typed = typed;
    this.answer = answer;
    this.row = question.row;
    this.look = answer.look;
    this.key = answer.key;
    this.parts = answer.now.parts;
    this.off = state.off.some((head) => same(head, answer.look));
    this.chances = this.#chances(answer.now);
    this.before = answer.before && this.#chances(answer.before);
  }

  /** (V,) probabilities after temperature and filters. @param {Outputs} outputs */
  #chances({ logits }) {
    return probabilities(logits, this.state.options);
  }

  get length() {
    return this.typed.ids.length;
  }

  /** The weights of the chosen head: the lower triangle, row after row. */
  get weights() {
    const { layer, head } = this.look;
    return this.answer.now.weights[layer][head];
  }

  /** The chosen head's weight for a row and a key. @param {number} row @param {number} key */
  weight(row, key) {
    return this.weights[row * (row + 1) / 2 + key];
  }

  /** The number that a head adds to the explained logit. @param {Head} head */
  added({ layer, head }) {
    return this.parts.heads[layer][head];
  }
}

/** Whether both are the same head. @param {Head} a @param {Head} b */
export function same(a, b) {
  return a.layer === b.layer && a.head === b.head;
}

/** A head's name, as "head 1 of layer 2". @param {Head} at */
export function nameOf({ layer, head }) {
  return `head ${head} of layer ${layer}`;
}

export class App {
  /**
   * @param {PageData} data
   * @param {string} worker the worker's script
   * @param {(reason: string) => void} fail shows an error in place of the page
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
    /** Functions that each draw one part of the page, in this order. @type {((shown: Shown) => void)[]} */
    this.parts = [];
    /** Makes the parts of the page, before the first answer is shown. */
    this.begin = () => {};
    /** @type {{error: number, bound: number} | null} */
    this.proof = null;
    /** Functions to call once, when the present state has been drawn. @type {(() => void)[]} */
    this.waiting = [];
    /** The question that the worker has not yet answered. stale: whether the state has changed since. */
    this.pending = /** @type {{state: State, typed: Typed, question: Question} | null} */ (null);
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

  /** Changes the state. For a new text, the row is its last character. @param {Partial<State>} changes */
  set(changes) {
    const { text } = this.state;
    const fresh = { row: null, key: null, id: null };
    const isNew = changes.text !== undefined && changes.text !== text;
    this.state = { ...this.state, ...(isNew ? fresh : {}), ...changes };
    if (this.pending) this.stale = true;
    else this.#ask();
  }

  /** Resolves when the present state has been drawn. @returns {Promise<void>} */
  drawn() {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Draws the page again, in the colours of the present theme. */
  recolour() {
    this.hues = readHues();
    this.draw();
  }

  draw() {
    const { shown } = this;
    if (shown) { for (const drawPart of this.parts) drawPart(shown); }
  }

  #ask() {
    this.stale = false;
    const { state } = this;
    const typed = this.read(state.text);
    const last = typed.ids.length - 1;
    const question = {
      ids: typed.ids,
      off: state.off,
      row: Math.min(state.row ?? last, last),
      id: state.id,
      look: state.look,
      key: state.key,
      scores: state.stage !== "weights",
      lens: state.lens,
    };
    this.pending = { state, typed, question };
    setAttr(byId("page"), "aria-busy", "true");
    this.#send({ kind: "read", ...question });
  }

  /** @param {Request} request */
  #send(request) {
    this.worker.postMessage(request);
  }

  /** @param {Reply} reply */
  #receive(reply) {
    if (reply.kind === "failed") this.fail(reply.reason);
    else if (reply.kind === "opened") this.proof = reply;
    else if (this.pending) {
      const { state, typed, question } = this.pending;
      this.pending = null;
      if (!this.state.look) this.state = { ...this.state, look: reply.look };
      if (this.stale) this.#ask();
      if (!this.shown) this.begin();
      this.shown = new Shown(state, typed, question, reply);
      this.draw();
      performance.mark("drawn"); // for benchmarks/live.py
      if (this.pending) return;
      setAttr(byId("page"), "aria-busy", "false");
      for (const done of this.waiting.splice(0)) done();
    }
  }
}
