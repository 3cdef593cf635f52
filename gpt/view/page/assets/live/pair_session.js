// @ts-check
// What the user does with a model with an encoder: a source, a target or who writes it, whose attention
// is shown.

import { Subject } from "../data.js";
import { unpack } from "../numbers.js";
import { count } from "../parts.js";
import { byHead, Session } from "./session.js";

/** @import { AttentionKind } from "../model/pair.js" */
/** @import { PairAsk, PairFindings } from "../model/pair_analysis.js" */
/** What the page shows of the heads of one kind of attention.
 * @typedef {{layers: number, measured: string, measures: import("../payload.js").Measure[],
 *   kinds: (string | null)[][] | null}} Measured */
/** attentions: by the kind; folds_of: by the side.
 * @typedef {import("./session.js").Own & {attentions: Record<AttentionKind, Measured>,
 *   folds_of: Record<SideName, import("./fold.js").Folds>}} OwnPairs */
/**
 * A text that the user types: the characters that it may have, and the others with their places.
 * @typedef {{text: string, characters: string[], unknown: [number, string][],
 *   folded: string}} Side */

/** @typedef {"source" | "target"} SideName */

export const BEFORE_TARGET = "\t";
const AFTER_TARGET = "\n";
/** @type {Record<AttentionKind, string>} */
export const KINDS = {
  cross: "cross-attention",
  encoder: "encoder self-attention",
  decoder: "decoder self-attention",
};

export class PairSession extends Session {
  /**
   * @param {import("../payload.js").Payload & OwnPairs} data
   * @param {import("./client.js").Client} client
   * @param {(subjects: Subject[]) => void} show
   */
  constructor(data, client, show) {
    super(data, client, show);
    this.pairs = data;
    const known = (/** @type {string[]} */ but) =>
      new Map([...this.ids].filter(([each]) => !but.includes(each)));
    const marks = [BEFORE_TARGET, AFTER_TARGET];
    /** The symbols that each side may have. */
    this.known = { source: known([...marks, ...data.unread]), target: known(marks) };
    /** @type {AttentionKind} */
    this.kind = "cross";
    this.source = this.#side("source", "");
    this.target = this.#side("target", "");
    this.own = false; // whether the target is the user's
    /** The row of the decoder that the user has clicked. @type {number | null} */
    this.row = null;
  }

  /** @override @param {any} data */
  groupsOf({ attentions, heads }) {
    return Object.keys(KINDS).map((kind) => ({ kind, layers: attentions[kind].layers, heads }));
  }

  /** @override @param {any} means by the kind */
  meansOf(means) {
    const all = this.groups.map((group) =>
      byHead(unpack(means[group.kind ?? ""]), group, this.data.head_size)
    );
    return Object.assign({}, ...all);
  }

  /** @override The model writes another target. */
  optionsChanged() {
    this.changed();
  }

  /** @override @param {number} layer @param {number} head */
  place(layer, head) {
    return { kind: this.kind, layer, head };
  }

  /** @override @returns {string} */
  get fixed() {
    return this.pinned ? "Weights can be set by hand while no pair is pinned." : "";
  }

  /** @override @param {number} query @param {string} [kind] of attention */
  upTo(query, kind) {
    const read = kind === "encoder" ? [] : this.target.characters.slice(0, query);
    return this.spell("source", this.source.characters) + BEFORE_TARGET +
      this.spell("target", read);
  }

  /** @override @param {string} text "source TAB target", or a source whose target the model writes */
  read(text) {
    const [source, ...target] = text.split(BEFORE_TARGET);
    this.take(source, target.length ? target.join("") : null);
  }

  /** @override @param {string} text */
  open(text) {
    this.pinned = null;
    this.row = null;
    this.read(text || this.data.text);
    if (this.problem) this.read(this.data.text);
  }

  /** @param {string} source @param {string | null} target null: the model writes it */
  take(source, target) {
    this.pending = [];
    this.source = this.#side("source", source);
    this.own = target !== null;
    if (target !== null) this.target = this.#side("target", target);
    this.text = this.own ? `${source}${BEFORE_TARGET}${target}` : source;
    this.characters = Array.from(this.text.replace(BEFORE_TARGET, " → "));
    const begin = this.spell("source", this.source.characters) + BEFORE_TARGET;
    const { model, own } = this; // rows of another pair are forgotten
    model.rows = model.rows.filter(({ kind, query, text }) =>
      own ? text === this.upTo(query, kind) : text.startsWith(begin)
    );
  }

  /** @param {SideName} side @param {string} text @returns {Side} */
  #side(side, text) {
    const { spaced, folds_of: folds } = this.pairs;
    return { text, ...this.readable(text, this.known[side], folds[side], spaced.includes(side)) };
  }

  /** A side's symbols, or their labels, as a text. @param {SideName} side @param {readonly string[]} symbols */
  spell(side, symbols) {
    return symbols.join(this.data.spaced.includes(side) ? " " : "");
  }

  /** Why the model cannot read the pair; nothing if it can. */
  get problem() {
    const [source, target] = [this.source, this.target].map(({ characters }) => characters.length);
    const { block_size: most } = this.data;
    const said = (
      /** @type {SideName} */ name,
      /** @type {number} */ length,
      /** @type {number} */ limit,
    ) => `the ${name} has ${count(length, this.unit(name))}, the model takes ${limit}: shorten it`;
    if (!source) return "the source is empty: type what the model is to read";
    if (source > most) return said("source", source, most);
    return this.own && target > most - 1 ? said("target", target, most - 1) : "";
  }

  /** What a side consists of. @param {SideName} side */
  unit(side) {
    return this.data.spaced.includes(side) ? "symbol" : "character";
  }

  /** @override */
  now() {
    const { source, target, own } = this;
    const pair = { source: source.characters, target: own ? target.characters : null };
    return { ...super.now(), ...pair };
  }

  /** @override Asks the worker, and shows the answers. */
  ask() {
    this.drawn();
    if (!this.problem) super.ask();
  }

  /** @override @param {import("./session.js").Case} each @returns {PairAsk} */
  asked({ source = [], target = null, model }) {
    const all = model.changes();
    const of = (/** @type {string} */ kind) =>
      all && {
        heads: all.heads.filter((each) => each.kind === kind),
        rows: all.rows.filter((each) => each.kind === kind),
      };
    const id = (/** @type {string} */ each) => /** @type {number} */ (this.ids.get(each));
    return {
      source: source.map(id),
      target: target && target.map(id),
      kind: this.#asked,
      options: this.options.drawing,
      marks: {
        first: id(BEFORE_TARGET),
        last: id(AFTER_TARGET),
        never: this.data.unwritten.map(id),
      },
      ...this.wanted(),
      step: model.step,
      changes: all && { encoder: of("encoder"), decoder: of("decoder"), cross: of("cross") },
    };
  }

  /** @override The row of the decoder is that of the kept character. */
  wanted() {
    return {
      ...super.wanted(Infinity),
      logit: { ...super.wanted(Infinity).logit, position: this.kept },
    };
  }

  /** The row of the decoder that is kept. */
  get kept() {
    const cell = this.kind === "encoder" ? null : this.state()?.cell;
    return this.row ?? cell?.[0] ?? 0;
  }

  /** The attention to ask for: that of the row that waits to be set by hand, or the shown one. */
  get #asked() {
    const [kind] = (this.pending[0] ?? this.kind).split(".");
    return kind in KINDS ? /** @type {AttentionKind} */ (kind) : this.kind;
  }

  /** @override @param {PairFindings} answer */
  answered({ target }) {
    const written = target.map((id) => this.all[id]);
    if (!this.own) this.target = this.#side("target", this.spell("target", written));
  }

  /** @override @param {PairFindings & {proof: any}} answer @param {PairAsk} asked @param {string} name */
  subjectOf(answer, { source: sourceIds, kind, marks, step, changes }, name) {
    const { data, pairs } = this;
    const source = this.textOf(sourceIds);
    const read = this.textOf([marks.first, ...answer.target]);
    const end = answer.ended ? this.textOf([marks.last]).labels : [];
    data.measured = pairs.attentions[kind].measured;
    return new Subject({
      ...this.described(answer, step, name, pairs.attentions[kind]),
      lens: null,
      experts: null,
      surprisals: answer.nats,
      full: kind !== "decoder",
      columns: kind === "cross" ? source : null,
      replaced: changes?.[kind]?.heads,
      pair: {
        kind,
        source,
        read,
        expected: [...read.labels.slice(1), ...end],
        logits: answer.logits,
        labels: data.vocabulary_labels,
      },
    }, kind === "encoder" ? source : read);
  }

  /** @override @param {Subject[]} subjects */
  legendOf(subjects) {
    const { vocabulary, vocabulary_labels: labels, vocabulary_legend } = this.data;
    const texts = subjects.flatMap(({ payload: { pair } }) => pair ? [pair.source, pair.read] : []);
    const used = new Set(texts.flatMap(({ characters }) => characters));
    const [first, last] = [BEFORE_TARGET, AFTER_TARGET].map((each) => this.ids.get(each) ?? 0);
    const other = vocabulary_legend.filter((text, id) =>
      text && used.has(vocabulary[id]) && id !== first && id !== last
    );
    return [...other, `${labels[first]} begins the target`, `${labels[last]} ends it`];
  }

  /** @override @param {boolean} share */
  toSettings(share) {
    return { kind: this.kind === "cross" ? "" : this.kind, ...super.toSettings(share) };
  }

  /** @override @param {Record<string, string>} more */
  fromSettings(more) {
    super.fromSettings(more);
    const { kind } = more;
    this.kind = kind === "encoder" || kind === "decoder" ? kind : "cross";
  }
}
