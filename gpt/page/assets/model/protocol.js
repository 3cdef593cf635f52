// @ts-check
// What Python writes into the page, and the messages between the view and the worker (model/worker.js).
// This module has types only. Python writes `PageData` in gpt/page/live.py.
//
// A text is a list of ids. The worker reads at most block_size of them at once: the view cuts longer
// texts by `windowStart` of model/sampler.js, and all positions below count in that window. Rows are
// queries, columns are keys. T characters, V vocabulary, L layers, H heads, D head_size.

/** @typedef {{layer: number, head: number}} Head */

// ---- Python -> page: the JSON in #data ----------------------------------------------------------

/**
 * title: the name of the model. about: one sentence that says what it was trained on. stored: one
 * sentence about the precision of the weights in this file. counts: whether the model counts, too,
 * which the page does not show. text, start: what the page shows first; null: the head that adds most.
 * folds: unknown character -> what the model reads for it, where a quotation mark opens and elsewhere.
 * measured: the text that measures and means are of. kinds: (L, H) the name of each head
 * ("induction", "previous" …) or "".
 * @typedef {object} PageData
 * @property {number} schema
 * @property {string} version of gptx
 * @property {string} title
 * @property {Record<string, string>} origin
 * @property {string} about
 * @property {string} stored
 * @property {boolean} counts
 * @property {string} text
 * @property {Head | null} start
 * @property {string[]} vocabulary
 * @property {Record<string, [string, string]>} folds
 * @property {string} measured
 * @property {Measure[]} measures
 * @property {string[][]} kinds
 * @property {StoredModel} model
 */
/**
 * A measure of all heads, (L, H) each. errors: standard errors. uniform: the value of a head that
 * looks everywhere alike. null: there is none. offsets: of "back", how many characters back.
 * @typedef {object} Measure
 * @property {string} name
 * @property {string} title
 * @property {string} explained
 * @property {(number | null)[][]} values
 * @property {(number | null)[][]} errors
 * @property {number | null | (number | null)[][]} uniform
 * @property {number[][]} [offsets]
 */
/**
 * tensors: base64 of a gzip stream of all numbers, one tensor after the other, see weights.js.
 * means: base64 of float32, (L, H, D), what a head writes on average.
 * @typedef {object} StoredModel
 * @property {Config} config
 * @property {{name: string, shape: number[]}[]} manifest
 * @property {16 | 32} bits
 * @property {string} tensors
 * @property {string} means
 * @property {Probe} probe
 */
/**
 * The fields of gpt/config/model.py that a forward pass uses, and two that follow from them:
 * head_size, and ffn_hidden, the width of the feed-forward layers.
 * @typedef {object} Config
 * @property {number} vocab_size
 * @property {number} block_size
 * @property {number} n_layer
 * @property {number} n_head
 * @property {number} n_embd
 * @property {number} head_size
 * @property {number} ffn_hidden
 * @property {boolean} feed_forward
 * @property {boolean} tied
 * @property {string} position
 * @property {string} activation
 */
/**
 * Texts with `kept` logits of each position p: of the characters p·kept, p·kept + 1 …, where the
 * first character follows the last; base64 of float32. tolerance: by how much they may differ.
 * @typedef {object} Probe
 * @property {{ids: number[], logits: string}[]} texts
 * @property {number} kept
 * @property {number} tolerance
 */

// ---- page -> worker -----------------------------------------------------------------------------

/** @typedef {{kind: "open", model: StoredModel} | ({kind: "read"} & Ask)} Request */
/**
 * A text to read, of 1 to block_size ids. off: heads that write their mean output. row: the position
 * whose next character is predicted and taken apart. id: whose logit is taken apart; null: the
 * likeliest one of the model as it was trained. look: a head to look at; null: the one that adds most
 * to this logit. key: whose products with the row are wanted; null: the one with the largest weight.
 * scores: whether all q·k of that head are wanted. lens: whether the logit lens is wanted.
 * @typedef {object} Ask
 * @property {number[]} ids
 * @property {Head[]} off
 * @property {number} row
 * @property {number | null} id
 * @property {Head | null} look
 * @property {number | null} key
 * @property {boolean} scores
 * @property {boolean} lens
 */
/** @typedef {object} SampleOptions
 * @property {number} temperature 0: always the likeliest
 * @property {number | null} [top_k]
 * @property {number | null} [top_p]
 * @property {number | null} [min_p]
 */

// ---- worker -> page -----------------------------------------------------------------------------

/**
 * opened: the probe is passed; until then nothing is shown. failed: a reason for the reader; the
 * worker answers nothing after it. Each "read" gets one answer, in order.
 * @typedef {{kind: "opened", error: number, bound: number} | ({kind: "read"} & Answer) |
 *   {kind: "failed", reason: string}} Reply
 */
/**
 * now: the model with the heads off that were asked for. before: as it was trained; null: the same.
 * The others are of the model now. products: (D,), q⊙k of the row and the key; they sum to its score.
 * scores: (T, T), q·k, future keys included; a weight is the softmax of scores / √D over the keys up to
 * its row.
 * @typedef {object} Answer
 * @property {Head} look
 * @property {number} key
 * @property {Seen} now
 * @property {Seen | null} before
 * @property {Float32Array} products
 * @property {Float32Array | null} scores
 * @property {Lens | null} lens
 */
/**
 * One text under one model.
 * @typedef {object} Seen
 * @property {Float32Array[][]} weights by layer and head: the lower triangle; row i begins at
 *   i(i + 1)/2 and has i + 1 keys
 * @property {Float32Array} surprisals (T − 1,) of each character after the first, in nats
 * @property {Float32Array} logits (V,) of the character after the asked row; `probabilities` of
 *   model/sampler.js makes bars of them
 * @property {Contributions} parts
 */
/**
 * What the parts of the model add to the logit of a character after the asked row; all of them sum to
 * it, because the last norm's mean and scale are held. heads: by layer and head. layers: by layer, its
 * feed-forward without bias; empty if the model has none. biases: all biases together.
 * @typedef {object} Contributions
 * @property {number} id
 * @property {number} logit
 * @property {number} embedding
 * @property {number[][]} heads
 * @property {number[]} layers
 * @property {number} biases
 */
/** What the model would predict at each depth (0: the embedding; L: the prediction), (L + 1, T): the
 * likeliest id and its probability. @typedef {{ids: Uint32Array, chances: Float32Array}} Lens */

export {};
