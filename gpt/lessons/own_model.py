"""The lesson `mine`: in a trained model, stage by stage from a text to its next character.

Each stage is computed again in float64 from the stage before it and the named weights, and compared
with what the reader computed.
Tensor names: T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.config.fields import require
from gpt.config.model import GATED
from gpt.errors import TextError
from gpt.heads.attention_map import AttentionMap
from gpt.lessons.lesson import MOST_ROWS, Lesson, Step, Table
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array, softmax
from gpt.reading.proof import (
    logits_reach,
    recompute_layer,
    stage_reaches,
    stream_reach,
    stream_summands,
    worst_row,
)
from gpt.vocabulary import Symbols, Vocabulary, join_symbols

NORM_FORMULA = {
    "rms": "x / √(mean(x²) + 0.00001)",
    "layer": "(x − mean(x)) / √(variance(x) + 0.00001) × weight",
}
ACTIVATION_FORMULA = {
    "relu": "max(ffn_up, 0)",
    "relu2": "max(ffn_up, 0)²",
    "gelu": "gelu(ffn_up)",
    "gelu_erf": "ffn_up × Φ(ffn_up), Φ the normal distribution function",
    "swiglu": "gate × σ(gate) × other, where ffn_up = [gate | other]",
}


def character_table(
    text: Symbols, name: str, values: Array, source: str = "", columns: tuple[str, ...] = ()
) -> Table:
    """A table with a row for each character of the text."""
    return Table(name, values, tuple(text), columns, numbered=True, source=source)


def norm_tensors(reader: Reader, norm: str) -> str:
    """The names of the stored tensors of a norm: gain and bias, if it has them."""
    return " and ".join(
        name for name in (f"{norm}.weight", f"{norm}.bias") if name in reader.tensors
    )


class LayerSteps:
    """The steps from the stream that enters a layer to the stream that leaves it."""

    def __init__(self, exact: Reader, attention: AttentionMap, layer: int, head: int) -> None:
        self.exact, self.config, self.head = exact, exact.config, head
        self.text, self.last = attention.text, len(attention.text) - 1
        self.rows = partial(character_table, attention.text)
        self.block, self.stages = f"blocks.{layer}.", attention.layers[layer]
        found, resid_pre = vars(self.stages), self.stages.resid_pre.astype(np.float64)
        #: Stage -> its float64 value.
        self.again: dict[str, Array] = {}
        recompute_layer(exact, layer, resid_pre, found, self.again.__setitem__)
        #: Stage -> the largest difference, over all heads, from its float64 value.
        self.checks = {
            name: Check(name, *worst_row(found[name], self.again[name], reach))
            for name, reach in stage_reaches(exact, layer, self.stages).items()
        }
        self.normed = exact.before(resid_pre, f"{self.block}norm1")

    def steps(self) -> Iterator[Step]:
        if not self.config.post_norm:
            yield self._normalise()
        yield from self._queries()
        yield from self._weights()
        yield from self._join()
        if self.config.feed_forward:
            yield self._feed_forward()

    def _stage(self, name: str, title: str, prose: str, formula: str, notice: str = "") -> Step:
        """The step for one stage: the head's part of the stage, and the check."""
        values: Array = getattr(self.stages, name)
        values = values[self.head] if values.ndim == 3 else values
        columns = tuple(self.text) if name in ("scores", "scaled", "masked", "weights") else ()
        table = self.rows(name, values, columns=columns)
        return Step(title, prose, formula, (table,), notice, (self.checks[name],))

    def _normalise(self) -> Step:
        return Step(
            "Normalise",
            "Rows of the stream grow from layer to layer. Before a layer uses them, each row is "
            "scaled to the same size.",
            NORM_FORMULA[self.config.norm],
            (self.rows("normed", self.normed, norm_tensors(self.exact, f"{self.block}norm1")),),
        )

    def _queries(self) -> Iterator[Step]:
        config, size, width = self.config, self.config.head_size, self.config.n_embd
        packed = self.exact.apply(self.normed, f"{self.block}attention.qkv")  # (T, 3C)
        made = packed.reshape(-1, 3, config.n_head, size)[:, :, self.head].swapaxes(0, 1)
        checks = tuple(self.checks[name] for name in "qkv")
        qkv, first = f"{self.block}attention.qkv.weight", self.head * size
        starts = range(first, 3 * width, width)  # first rows of the head's q, k and v
        read, kind = ("resid_pre", "") if config.post_norm else ("normed", "normalised ")
        bias = f"{self.block}attention.qkv.bias" if config.qkv_bias else ""
        plus = f", plus its number in {bias}" if bias else ""
        rotates = config.position == "rotary"
        yield Step(
            f"Queries, keys and values of head {self.head}",
            f"One tensor contains all heads’ matrices: {width} rows for queries, {width} for keys, "
            f"{width} for values; {size} of each belong to this head. Each number is a row of the "
            f"{kind}stream times a row of that tensor{plus}.",
            "    ".join(f"{n} = {read} · W_{n}ᵀ" + f" + b_{n}" * config.qkv_bias for n in "qkv"),
            tuple(
                self.rows(name, values, f"{qkv}, rows {start}–{start + size - 1}")
                for name, values, start in zip("qkv", made, starts, strict=True)
            ),
            f"q[{self.last}, 0] = {read}[{self.last}] · {qkv}[{first}]"
            + f" + {bias}[{first}]" * config.qkv_bias
            + f" = {made[0][self.last, 0]:.4f}",
            () if rotates else checks,
        )
        if rotates:
            yield Step(
                "Queries and keys for the scores",
                "Each pair of columns is rotated by an angle that grows with the position. A score "
                "then depends on the distance of two characters (Su et al. 2021).",
                "(x[2d] + i·x[2d+1]) × e^(i·t·10000^(−2d/D))",
                (
                    self.rows("q for the scores", self.stages.q[self.head]),
                    self.rows("k for the scores", self.stages.k[self.head]),
                ),
                checks=checks,
            )

    def _weights(self) -> Iterator[Step]:
        head, last, root = self.head, self.last, f"√{self.config.head_size}"
        found = self.stages.weights
        key = int(found[head, last].argmax())
        where = f"[{last}, {key}]"
        score, scaled, weight = (
            f"{self.again[name][head, last, key]:.4f}" for name in ("scores", "scaled", "weights")
        )
        yield self._stage(
            "scores",
            "Scores",
            "Every query is multiplied by every key. Rows are queries, columns are keys.",
            "scores = q · kᵀ",
            f"scores{where} = q[{last}] · k[{key}] = {score}",
        )
        yield self._stage(
            "scaled",
            "Scale",
            f"A score is a sum of {self.config.head_size} products and spreads {root} times as "
            "wide as one product.",
            f"scaled = scores / {root}",
            f"scaled{where} = {score} / {self.config.head_size**0.5:.4f} = {scaled}",
        )
        yield self._stage(
            "masked",
            "Mask",
            "No character may attend to later ones, as the model learns to predict them.",
            "masked[i, j] = −∞ for j > i",
        )
        softmax = self._stage(
            "weights",
            "Softmax",
            "In each row, exponentials are divided by their sum: how much each character takes "
            "from itself and from each earlier one. gptx attn shows this matrix.",
            "weights = softmax(masked)",
            f"The last character takes most from position {key}: weights{where} = {weight}",
        )
        off = float(np.abs(found.sum(axis=-1, dtype=np.float64) - 1).max())
        yield replace(softmax, checks=(*softmax.checks, Check("rows sum to 1", off, 1e-6)))

    def _join(self) -> Iterator[Step]:
        config, stages, head = self.config, self.stages, self.head
        size, name = config.head_size, f"{self.block}attention.proj"
        first, last = head * size, (head + 1) * size - 1
        yield self._stage(
            "context",
            "Context",
            "A mean of the values with these weights.",
            "context = weights · v",
        )
        yield Step(
            "Concat",
            f"The contexts of all {config.n_head} heads side by side, {config.n_head} × {size} = "
            f"{config.n_embd} columns. This head’s are {first}–{last}.",
            "concat = [head 0 | head 1 | …]",
            (self.rows(f"concat, columns {first}–{last}", stages.concat[:, first : last + 1]),),
            checks=(self.checks["concat"],),
        )
        bias = f" and {name}.bias" if f"{name}.bias" in self.exact.tensors else ""
        columns = self.exact.tensors[f"{name}.weight"][:, first : last + 1]  # (C, D)
        own = self.again["context"][head] @ columns.T  # (T, C)
        yield Step(
            "Projection",
            "A matrix mixes the heads’ contexts. Each head has its own columns in it, so its "
            "contribution can be shown separately.",
            "proj = concat · Wᵀ",
            (
                self.rows("proj", stages.proj, f"{name}.weight{bias}"),
                self.rows(f"of it by head {head}", own, f"{name}.weight, columns {first}–{last}"),
            ),
            checks=(self.checks["proj"],),
        )
        prose = "The result of attention is added to the stream; it replaces nothing."
        formula = "resid_mid = resid_pre + proj"
        if config.post_norm:
            prose += f" Each row of the sum is scaled to the same size{self._by('norm1')}."
            formula = f"x = resid_pre + proj    resid_mid = {NORM_FORMULA[config.norm]}"
        if not config.feed_forward:
            prose += " This model has no feed-forward layers, so the stream leaves the layer here."
        yield self._stage("resid_mid", "Residual", prose, formula)

    def _by(self, norm: str) -> str:
        """The names of the tensors of one of the block's norms, if it has any."""
        names = norm_tensors(self.exact, f"{self.block}{norm}")
        return f", with {names}" if names else ""

    def _feed_forward(self) -> Step:
        config, names = self.config, f"{self.block}feed_forward"
        normed = self.exact.before(self.stages.resid_mid.astype(np.float64), f"{self.block}norm2")
        up = self.exact.apply(normed, f"{names}.up")
        bent = "an activation function is applied"
        if config.activation in GATED:
            half = config.ffn_hidden
            bent = f"the activation function of the first {half} is multiplied by the others"
        again, after = " are normalised again and", ""
        read, resid_post = "norm2(resid_mid)", "resid_mid + ffn_out"
        if config.post_norm:
            again, after = "", f" Each row of the sum is normalised{self._by('norm2')}."
            read, resid_post = "resid_mid", "norm2(resid_mid + ffn_out)"
        return Step(
            "Feed-forward",
            f"Now each character is computed by itself: its {config.n_embd} numbers{again} "
            f"become {config.ffn_up}, {bent} ({config.activation}), and the result "
            f"becomes {config.n_embd} numbers again, which are added to the stream.{after}",
            f"ffn_up = {read} · W_upᵀ    "
            f"ffn_hidden = {ACTIVATION_FORMULA[config.activation]}    "
            f"ffn_out = ffn_hidden · W_downᵀ    resid_post = {resid_post}",
            (
                self.rows("ffn_up", up, f"{names}.up.weight"),
                self.rows("ffn_hidden", self.again["ffn_hidden"]),
                self.rows("resid_post", self.stages.resid_post, f"{names}.down.weight"),
            ),
            checks=(self.checks["resid_post"],),
        )


LIKELIEST = 8  # next characters to show


def explain_model(
    reader: Reader, attention: AttentionMap, vocabulary: Vocabulary, layer: int, head: int
) -> Lesson:
    """The computation through one head of one layer; other layers are only summarised.

    Raises ConfigError for a layer or head that the model does not have, TextError for a text that
    is empty or too long.
    """
    config, exact = reader.config, reader.in_float64()
    check_head(config, layer, head)
    check_length(config, len(attention.ids))
    shown = join_symbols(attention.text).replace("\n", "⏎").replace("\t", "⇥")
    about = f"From “{shown}” to the next character, through layer {layer}, head {head}."
    steps = chain(
        [_embedding(exact, attention)],
        [_earlier_layers(attention, layer)] if layer else [],
        LayerSteps(exact, attention, layer, head).steps(),
        [_other_layers(attention)] if config.n_layer > 1 else [],
        [_next_character(reader, exact, attention, vocabulary)],
    )
    return Lesson("mine", about, tuple(steps))


def check_head(config: ModelConfig, layer: int, head: int) -> None:
    """Raises ConfigError for a layer or head that the model does not have."""
    for name, number, count in (("layer", layer, config.n_layer), ("head", head, config.n_head)):
        require(0 <= number < count, name, f"{number} is not in 0 … {count - 1}")


def check_length(config: ModelConfig, characters: int) -> None:
    """Raises TextError for a text that is empty, too long to show, or longer than the context."""
    if not characters:
        raise TextError("no text: there is nothing to explain; give at least one character")
    if characters <= min(MOST_ROWS, config.block_size):
        return
    reason = f"{characters:,} characters: every number is shown, so give at most {MOST_ROWS}"
    if config.block_size < MOST_ROWS:
        reason = (
            f"{characters:,} characters, and the model’s context has {config.block_size}: give at "
            f"most {config.block_size}"
        )
    other = "gptx attn … shows longer texts"
    if characters > config.block_size:
        other = f"gptx attn … --truncate shows the last {config.block_size}"
    raise TextError(f"{reason}; {other}")


def _embedding(exact: Reader, attention: AttentionMap) -> Step:
    config, ids, text = exact.config, attention.ids, attention.text
    (tokens, positions), resid_pre = stream_summands(exact, ids), attention.layers[0].resid_pre
    reach = stream_reach(exact, ids)
    prose = "Each character has an id, its place in the vocabulary, and its own row."
    rows = "token_embedding.weight, the rows of the ids"
    if config.scaled_embedding:
        prose += f" The row is multiplied by √{config.n_embd}, the root of its length."
        rows += f", times √{config.n_embd}"
    tables = [Table("ids", ids, (), tuple(text), numbered=True, digits=0)]
    formula = "resid_pre = token"
    if config.position in ("learned", "sinusoidal"):
        source = "sines and cosines of the position"
        if config.position == "learned":
            source = f"position.weight, rows 0–{len(ids) - 1}"
        tables.append(character_table(text, "token embeddings", tokens, rows))
        tables.append(character_table(text, "positions", positions, source))
        tables.append(character_table(text, "resid_pre", resid_pre))
        prose += " Each position has a row, too."
        prose += " Their sum is the stream, which goes through all layers."
        formula += " + position"
    else:
        tables.append(character_table(text, "resid_pre", resid_pre, rows))
        prose += " These rows are the stream, which goes through all layers. " + (
            "Positions enter later, where queries and keys are rotated."
            if config.position == "rotary"
            else "This model has no positions: only the mask tells it what came before."
        )
    return Step(
        "Characters become rows",
        prose,
        formula,
        tuple(tables),
        checks=(Check("resid_pre", *worst_row(resid_pre, tokens + positions, reach)),),
    )


def _earlier_layers(attention: AttentionMap, layer: int) -> Step:
    earlier = "layer 0 has" if layer == 1 else f"layers 0–{layer - 1} have"
    resid_pre = attention.layers[layer].resid_pre
    return Step(
        "Earlier layers",
        f"Before layer {layer}, {earlier} added their results to the stream. --layer 0 shows how.",
        tables=(character_table(attention.text, f"resid_pre of layer {layer}", resid_pre),),
    )


def _other_layers(attention: AttentionMap) -> Step:
    layers = attention.layers
    depths = np.stack([layers[0].resid_pre[-1], *(each.resid_post[-1] for each in layers)])
    names = ("embedded", *(f"layer {layer}" for layer in range(len(layers))))
    return Step(
        "The other layers",
        f"All {len(layers)} layers compute this, one after the other, each with its own weights. "
        "Here is the row of the last character after each layer.",
        tables=(Table("stream of the last character", depths, names),),
        notice="gptx attn --view lens shows which character each depth would predict next.",
    )


def _next_character(
    reader: Reader, exact: Reader, attention: AttentionMap, vocabulary: Vocabulary
) -> Step:
    resid_post = attention.layers[-1].resid_post
    matrix = "token_embedding.weight" if exact.config.tied else "lm_head.weight"
    last = resid_post.astype(np.float64)
    normed, reach = exact.final_norm(last), logits_reach(exact, last)
    expected = exact.logits(normed)  # (T, vocab_size)
    found = reader.logits(reader.final_norm(resid_post[None]))[0]
    logits, chances = expected[-1], softmax(expected[-1])
    order = np.argsort(-logits, kind="stable")[:LIKELIEST]
    likeliest = tuple(vocabulary.characters[each] for each in order.tolist())
    row, again, name = f"resid_post[{len(resid_post) - 1}]", "", "last row"
    if not exact.config.post_norm:
        row, again, name = f"norm({row})", ", normalised once more,", "last row, normed"
    return Step(
        "Logits, and the next character",
        f"The last row{again} is multiplied by a row for every character of the "
        "vocabulary. The products are the logits; softmax converts them to probabilities. The "
        "likeliest are:",
        f"logits = {row} · Wᵀ    chances = softmax(logits)",
        (
            Table(
                name,
                normed[-1],
                source="" if exact.config.post_norm else norm_tensors(exact, "norm"),
            ),
            Table(f"rows of {matrix}", order, (), likeliest, digits=0),
            Table("logits", logits[order], (), likeliest),
            Table("chances", chances[order], (), likeliest),
        ),
        f"Greedy sampling takes the first; its probability is {chances[order[0]]:.4f}. gptx next "
        "shows how temperature and filters change it.",
        (Check("logits", *worst_row(found, expected, reach)), *attention.checks),
    )
