// @ts-check
// The types of the data that gpt/page/live.py writes into the page, and of the messages between the page
// and its worker (model/worker.js).
//
// A text is a list of ids. The worker reads at most block_size ids: the page sends the end of a longer
// text, its window (`windowStart` in model/sampler.js), and positions count from the window's start. Rows
// are queries, columns are keys. T is the number of ids, V vocab_size, L n_layer, H n_head, D head_size.

/** @typedef {{layer: number, head: number}} Head */

// ---- Python -> page: the JSON in #data ----------------------------------------------------------

/**
 * title: the model's name. origin: its run, step and digest. about, stored: sentences about its training
 * text and about the precision of the weights in this file. counts: whether the model also counts
 * n-grams, which the page leaves out. text, start: the text and the head that the page opens with; null:
 * the head that adds most. folds: see fold.js. measured: names the text of the measures and means. kinds:
 * (L, H) the names of the heads ("induction", "previous" …) or "".
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
 * A measure of all heads, in arrays (L, H). errors: standard errors. uniform: the value for equal weights
 * everywhere. A missing number is null. offsets: in the measure "back", how many characters back a head looks.
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
 * manifest: the tensors' names and shapes. bits: of a number in tensors. tensors: all numbers, encoded as
 * weights.js describes. means: (L, H, D) the heads' average outputs, as base64 of float32.
 * @typedef {object} StoredModel
 * @property {Config} config
 * @property {{name: string, shape: number[]}[]} manifest
 * @property {16 | 32} bits
 * @property {string} tensors
 * @property {string} means
 * @property {Probe} probe
 */
/**
 * The fields of ModelConfig (gpt/config/model.py) that a forward pass uses, and two sizes that follow
 * from them: head_size, and ffn_hidden, the width of the feed-forward layers.
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
 * Texts with logits, as base64 of float32. Position p has the logits of `kept` characters, whose ids are
 * p·kept, p·kept + 1, … modulo V. tolerance: the largest difference that the page allows.
 * @typedef {object} Probe
 * @property {{ids: number[], logits: string}[]} texts
 * @property {number} kept
 * @property {number} tolerance
 */

// ---- page -> worker -----------------------------------------------------------------------------

/** @typedef {{kind: "open", model: StoredModel} | ({kind: "read"} & Question)} Request */
/**
 * A question about a text of 1 to block_size ids. off: the heads that are switched off. The model uses
 * their average outputs instead. row: the position whose next character is predicted. id: the character whose
 * logit is split into parts; null: the likeliest one with all heads on. look: the chosen head; null: the
 * head that adds most to this logit. key: the key whose products with the row's query are answered; null:
 * the key with the largest weight. scores, lens: whether the answer has them.
 * @typedef {object} Question
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
 * opened: the page computes the probe's logits correctly; error: the largest difference. failed: the
 * reason is for the user, and the worker answers no more. Every "read" gets one answer, in order.
 * @typedef {{kind: "opened", error: number, bound: number} | ({kind: "read"} & Answer) |
 *   {kind: "failed", reason: string}} Reply
 */
/**
 * now: the outputs of the model with the question's heads switched off. before: the outputs with all heads
 * on; null: no head is off. The other fields belong to `now`. products: (D,) q⊙k of the row's query and
 * the key, which sum to their score. scores: (T, T) q·k, with the keys after the query; the weights are
 * the softmax of scores / √D over the keys up to the query.
 * @typedef {object} Answer
 * @property {Head} look
 * @property {number} key
 * @property {Outputs} now
 * @property {Outputs | null} before
 * @property {Float32Array} products
 * @property {Float32Array | null} scores
 * @property {Lens | null} lens
 */
/**
 * What a model computes for a text.
 * @typedef {object} Outputs
 * @property {Float32Array[][]} weights by layer and head: the lower triangle; row i begins at
 *   i(i + 1)/2 and has i + 1 keys
 * @property {Float32Array} surprisals (T − 1,) of the characters after the first one, in nats
 * @property {Float32Array} logits (V,) of the character after the question's row
 * @property {Contributions} parts
 */
/**
 * What the parts of the model add to the logit of a character `id` after the question's row. They sum to
 * the logit, because the mean and the scale of the last norm are held at their values for this row. heads:
 * by layer and head. layers: what the feed-forward of a layer adds, without its bias; empty if the model
 * has no feed-forward. biases: the sum of what all biases add.
 * @typedef {object} Contributions
 * @property {number} id
 * @property {number} logit
 * @property {number} embedding
 * @property {number[][]} heads
 * @property {number[]} layers
 * @property {number} biases
 */
/** The logit lens, (L + 1, T): the likeliest id and its probability if the model stopped at a depth. Depth
 * 0 is the embedding; depth L is the prediction.
 * @typedef {{ids: Uint32Array, chances: Float32Array}} Lens */

export {};
