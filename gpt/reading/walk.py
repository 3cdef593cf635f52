"""From a text to its next character in a trained model, stage by stage, as a lesson.

Each stage is computed again in float64 from the stage before it and the named weights, and held to
what the reader computed. Knows no screen.
Tensor names: T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpt.checks import Check
from gpt.errors import ConfigError, TextError
from gpt.lesson import MOST_ROWS, Lesson, Step, Table
from gpt.reading.inspector import AttentionMap
from gpt.reading.reader import ACTIVATIONS, EPSILON, Array, Reader, Stages, ngram_rows, softmax
from gpt.vocabulary import Vocabulary

CLOSE = 1e-5  # float32 against float64, relative to the largest number where that is over 1
LIKELIEST = 8  # next characters that are shown

NORM_FORMULA = {
    "rms": "x / √(mean(x²) + 0.00001)",
    "layer": "(x − mean(x)) / √(variance(x) + 0.00001) × weight",
}
ACTIVATION_FORMULA = {
    "relu": "max(hidden, 0)",
    "relu2": "max(hidden, 0)²",
    "gelu": "gelu(hidden)",
}


def walk(
    reader: Reader, attention: AttentionMap, vocabulary: Vocabulary, layer: int, head: int
) -> Lesson:
    """Through one head of one layer, counted from 0; the other layers are summed up.

    Raises ConfigError for a layer or head that there is not, TextError for too long a text.
    """
    config = reader.config
    for name, number, count in (("layer", layer, config.n_layer), ("head", head, config.n_head)):
        if not 0 <= number < count:
            raise ConfigError(f"--{name}: {number} is not in 0 … {count - 1}")
    if len(attention.ids) > MOST_ROWS:
        raise TextError(
            f"{len(attention.ids)} characters: this shows every number, so give at most "
            f"{MOST_ROWS}; gptx attn shows longer texts"
        )
    path = _Path(reader, attention, vocabulary, layer, head)
    shown = attention.text.replace("\n", "⏎").replace("\t", "⇥")
    about = f"From “{shown}” to the next character, through layer {layer}, head {head}."
    return Lesson("mine", about, tuple(path.steps()))


@dataclass(frozen=True)
class _Path:
    """The way through one head."""

    reader: Reader
    attention: AttentionMap
    vocabulary: Vocabulary
    layer: int
    head: int

    def steps(self) -> Iterator[Step]:
        yield self._embedding()
        if self.layer:
            yield self._before()
        yield self._normed()
        yield from self._queries()
        yield from self._looking()
        yield from self._joining()
        yield self._feeding()
        yield from self._after()

    @property
    def _last(self) -> int:
        return len(self.attention.ids) - 1

    def _rows(self, name: str, values: Array, source: str = "", **labels: Any) -> Table:
        """A row a character."""
        characters = tuple(self.attention.text)
        return Table(name, values, characters, numbered=True, source=source, **labels)

    def _weight(self, name: str) -> Array:
        """A stored tensor in float64."""
        return self.reader.tensors[name].astype(np.float64)

    def _embedding(self) -> Step:
        config, ids = self.reader.config, self.attention.ids
        tokens = self._weight("token_embedding.weight")[ids]  # (T, C)
        characters = tuple(self.attention.text)
        tables = [
            Table("ids", ids, (), characters, numbered=True, digits=0),
            self._rows("token embeddings", tokens, "token_embedding.weight, the rows of the ids"),
        ]
        told = "Each character has an id, its place in the vocabulary, and a row of its own."
        total = tokens
        if config.ngram > 1:
            places = ngram_rows(config, ids[None])[0]  # (T, N)
            added = self._weight("ngram_embedding.weight")[places].sum(axis=1)
            orders = tuple(f"last {order}" for order in range(2, config.ngram + 1))
            tables += [
                self._rows("rows of n-grams", places, columns=orders, digits=0),
                self._rows("n-gram embeddings", added, "ngram_embedding.weight, rows summed"),
            ]
            total = total + added
            told += " So have its last characters together: their rows are added."
        positions = self.reader.added(len(ids))
        if positions is not None:
            learned = config.position == "learned"
            source = "sines and cosines of the position"
            if learned:
                source = f"position.weight, rows 0–{self._last}"
            tables.append(self._rows("positions", positions, source))
            total = total + positions.astype(np.float64)
            told += " So has each position."
        else:
            told += " Positions enter later, where queries and keys are turned."
        stream = self.attention.layers[0].stream
        parts = ("token", *(["n-gram"] if config.ngram > 1 else []))
        parts += ("position",) if positions is not None else ()
        return Step(
            "Characters become rows",
            f"{told} What comes out is the stream that runs through all layers.",
            f"stream = {' + '.join(parts)}",
            (*tables, self._rows("stream", stream)),
            checks=(_close("stream", stream, total),),
        )

    def _before(self) -> Step:
        earlier = "layer 0 has" if self.layer == 1 else f"layers 0–{self.layer - 1} have"
        return Step(
            "Earlier layers",
            f"Before layer {self.layer}, {earlier} added to the stream what they found. "
            "--layer 0 shows how.",
            tables=(self._rows(f"stream into layer {self.layer}", self._stages.stream),),
        )

    def _normed(self) -> Step:
        name = self._block + "norm1"
        return Step(
            "Normalise",
            "Rows of the stream grow from layer to layer. Before a layer looks at them, each is "
            "brought to one scale.",
            NORM_FORMULA[self.reader.config.norm],
            (self._rows("normed", self._norm(self._stages.stream, name), self._gains(name)),),
        )

    def _queries(self) -> Iterator[Step]:
        config, stages = self.reader.config, self._stages
        size, width = config.head_size, config.n_embd
        qkv = f"{self._block}attention.qkv.weight"
        normed = self._norm(stages.stream, self._block + "norm1")
        made, tables = [], []
        for part, name in enumerate(("q", "k", "v")):
            first = part * width + self.head * size
            made.append(normed @ self._weight(qkv)[first : first + size].T)  # (T, D)
            rows = f"{qkv}, rows {first}–{first + size - 1}"
            tables.append(self._rows(name, made[-1], rows))
        first = self.head * size
        yield Step(
            f"Queries, keys and values of head {self.head}",
            f"All heads’ matrices lie in one tensor: {width} rows for queries, {width} for keys, "
            f"{width} for values, and of each part {size} for this head. A number is a row of the "
            "stream times a row of that tensor.",
            "q = normed · W_qᵀ    k = normed · W_kᵀ    v = normed · W_vᵀ",
            tuple(tables),
            f"q[{self._last}, 0] = normed[{self._last}] · {qkv}[{first}] = "
            f"{made[0][self._last, 0]:.4f}",
            () if config.qk_norm or config.position == "rotary" else self._held(*made),
        )
        if not config.qk_norm and config.position != "rotary":
            return
        q, k, v = made
        told, parts = [], []
        if config.qk_norm:
            q, k = (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) for x in (q, k))
            told.append("Queries and keys are brought to one length, so that scores cannot grow.")
            parts.append("x / √(mean(x²) + 0.00001)")
        if config.position == "rotary":
            q, k = _turned(q), _turned(k)
            told.append(
                "Each pair of columns is turned by an angle that grows with the position. A score "
                "then depends on the distance of two characters (Su et al. 2021)."
            )
            parts.append("(x[2d] + i·x[2d+1]) × e^(i·t·10000^(−2d/D))")
        yield Step(
            "Queries and keys as they meet",
            " ".join(told),
            "    ".join(parts),
            (self._rows("q", stages.q[self.head]), self._rows("k", stages.k[self.head])),
            checks=self._held(q, k, v),
        )

    def _held(self, q: Array, k: Array, v: Array) -> tuple[Check, ...]:
        stages, head = self._stages, self.head
        pairs = ((stages.q[head], q), (stages.k[head], k), (stages.v[head], v))
        return tuple(_close(name, *pair) for name, pair in zip("qkv", pairs, strict=True))

    def _looking(self) -> Iterator[Step]:
        stages, head, T = self._stages, self.head, self._last + 1
        q, k = stages.q[head].astype(np.float64), stages.k[head].astype(np.float64)
        scores, size = q @ k.T, q.shape[1]
        key = int(stages.weights[head, self._last].argmax())
        where = f"[{self._last}, {key}]"
        yield Step(
            "Scores",
            "Every query meets every key. Rows ask, columns are asked.",
            "scores = q · kᵀ",
            (self._square("scores", stages.scores[head]),),
            f"scores{where} = q[{self._last}] · k[{key}] = {scores[self._last, key]:.4f}",
            (_close("scores", stages.scores[head], scores),),
        )
        scaled = scores / size**0.5
        yield Step(
            "Scale",
            f"A score is a sum of {size} products and spreads √{size} times as wide as one.",
            f"scaled = scores / √{size}",
            (self._square("scaled", stages.scaled[head]),),
            f"scaled{where} = {scores[self._last, key]:.4f} / {size**0.5:.4f} = "
            f"{scaled[self._last, key]:.4f}",
            (_close("scaled", stages.scaled[head], scaled),),
        )
        allowed = np.tri(T, dtype=bool)
        masked = np.where(allowed, scaled, -np.inf)
        hidden = bool(np.isneginf(stages.masked[head][~allowed]).all())
        yield Step(
            "Mask",
            "No character may look at those after it: they are what the model learns to foretell.",
            "masked[i, j] = −∞ for j > i",
            (self._square("masked", stages.masked[head]),),
            checks=(Check("above the diagonal −∞", 0.0 if hidden else 1.0, 0.0),),
        )
        weights = softmax(masked)
        yield Step(
            "Softmax",
            "Exponentials, divided by their sum, row by row: how much each character takes of each "
            "earlier one and of itself. This is the matrix that gptx attn shows.",
            "weights = softmax(masked)",
            (self._square("weights", stages.weights[head]),),
            f"The last character takes most of position {key}: weights{where} = "
            f"{weights[self._last, key]:.4f}",
            (
                _close("weights", stages.weights[head], weights),
                _close("rows sum to 1", stages.weights[head].sum(axis=-1), np.ones(T)),
            ),
        )

    def _joining(self) -> Iterator[Step]:
        config, stages, head = self.reader.config, self._stages, self.head
        size, width = config.head_size, config.n_embd
        context = stages.weights[head].astype(np.float64) @ stages.v[head]
        yield Step(
            "Context",
            "The values, mixed by the weights.",
            "context = weights · v",
            (self._rows("context", stages.context[head]),),
            checks=(_close("context", stages.context[head], context),),
        )
        first, last = head * size, (head + 1) * size - 1
        joined = stages.concat[:, first : last + 1]
        yield Step(
            "Concat",
            f"The contexts of all {config.n_head} heads side by side, {config.n_head} × {size} = "
            f"{width} columns. This head’s are {first}–{last}.",
            "concat = [head 0 | head 1 | …]",
            (self._rows(f"concat, columns {first}–{last}", joined),),
            checks=(_close("this head’s columns", joined, context),),
        )
        name = f"{self._block}attention.proj"
        bias = f" and {name}.bias" if f"{name}.bias" in self.reader.tensors else ""
        proj = self._apply(stages.concat, name)
        own = context @ self._weight(f"{name}.weight")[:, first : last + 1].T  # (T, C)
        yield Step(
            "Projection",
            "A matrix mixes what the heads found. Each head has columns of its own in it, so what "
            "this head alone adds can be told.",
            "proj = concat · Wᵀ",
            (
                self._rows("proj", stages.proj, f"{name}.weight{bias}"),
                self._rows(f"of it by head {head}", own, f"{name}.weight, columns {first}–{last}"),
            ),
            checks=(_close("proj", stages.proj, proj),),
        )
        residual = stages.stream.astype(np.float64) + proj
        yield Step(
            "Residual",
            "Nothing is replaced: what attention found is added to the stream.",
            "residual = stream + proj",
            (self._rows("residual", stages.residual),),
            checks=(_close("residual", stages.residual, residual),),
        )

    def _feeding(self) -> Step:
        config, stages = self.reader.config, self._stages
        up, down = f"{self._block}feed_forward.up", f"{self._block}feed_forward.down"
        hidden = self._apply(self._norm(stages.residual, f"{self._block}norm2"), up)  # (T, 4C)
        active = hidden.copy()
        ACTIVATIONS[config.activation](active, None)
        output = stages.residual + self._apply(active, down)
        return Step(
            "Feed-forward",
            f"Now each character by itself: normalised again, {config.n_embd} numbers become "
            f"{4 * config.n_embd}, a curve bends them ({config.activation}), and they become "
            f"{config.n_embd} again. That too is added.",
            "hidden = norm2(residual) · W_upᵀ    "
            f"active = {ACTIVATION_FORMULA[config.activation]}    "
            "output = residual + active · W_downᵀ",
            (
                self._rows("hidden", hidden, f"{up}.weight"),
                self._rows("active", active),
                self._rows("output", stages.output, f"{down}.weight"),
            ),
            checks=(_close("output", stages.output, output),),
        )

    def _after(self) -> Iterator[Step]:
        config, layers = self.reader.config, self.attention.layers
        depths = np.stack([layers[0].stream[-1], *(each.output[-1] for each in layers)])
        names = ("embedded", *(f"layer {layer}" for layer in range(config.n_layer)))
        if config.n_layer > 1:
            yield Step(
                "The other layers",
                f"All {config.n_layer} layers do this, one after the other, with weights of their "
                "own. Here is the row of the last character after each.",
                tables=(Table("stream of the last character", depths, names),),
                notice="gptx attn --view lens tells what each depth would say next.",
            )
        final = self._norm(layers[-1].output, "norm")[-1]  # (C,)
        output = "token_embedding.weight" if config.tied else "lm_head.weight"
        logits = self._weight(output) @ final  # (vocab_size,)
        found = self.reader.logits(self.reader.final_norm(layers[-1].output[None]))[0, -1]
        chances = softmax(logits)
        order = np.argsort(-logits, kind="stable")[:LIKELIEST]
        likeliest = tuple(self.vocabulary.characters[each] for each in order.tolist())
        yield Step(
            "Logits, and the next character",
            "The last row, normalised once more, is multiplied with a row for every character of "
            "the vocabulary: the logits. Softmax makes chances of them. The likeliest:",
            f"logits = norm(stream[{self._last}]) · Wᵀ    chances = softmax(logits)",
            (
                Table("last row, normed", final, source=self._gains("norm")),
                Table(f"rows of {output}", order, (), likeliest, digits=0),
                Table("logits", logits[order], (), likeliest),
                Table("chances", chances[order], (), likeliest),
            ),
            f"Greedy sampling writes the first; its chance is {chances[order[0]]:.4f}. gptx next "
            "shows what temperature and filters make of it.",
            (_close("logits", found, logits), *self.attention.checks),
        )

    @property
    def _stages(self) -> Stages:
        return self.attention.layers[self.layer]

    @property
    def _block(self) -> str:
        return f"blocks.{self.layer}."

    def _square(self, name: str, values: Array) -> Table:
        """A row and a column a character."""
        return self._rows(name, values, columns=tuple(self.attention.text))

    def _norm(self, x: Array, name: str) -> Array:
        """In float64, with the gain and the bias that the tensors have."""
        x = x.astype(np.float64)
        if self.reader.config.norm == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        normed: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)
        if self.reader.config.norm == "layer":
            normed = normed * self._weight(f"{name}.weight")
            if f"{name}.bias" in self.reader.tensors:
                normed = normed + self._weight(f"{name}.bias")
        return normed

    def _gains(self, norm: str) -> str:
        """The tensors that a norm multiplies with and adds, if it does."""
        return " and ".join(
            name for name in (f"{norm}.weight", f"{norm}.bias") if name in self.reader.tensors
        )

    def _apply(self, x: Array, name: str) -> Array:
        """A linear layer in float64."""
        y: Array = x.astype(np.float64) @ self._weight(f"{name}.weight").T
        bias = f"{name}.bias"
        return y + self._weight(bias) if bias in self.reader.tensors else y


def _turned(x: Array) -> Array:
    """(T, D) rotary positions as complex products, in float64 (Su et al. 2021)."""
    T, size = x.shape
    rates = 10_000.0 ** (-np.arange(size // 2) / (size // 2))
    turns = np.exp(1j * np.outer(np.arange(T), rates))  # (T, D/2)
    pairs = (x[:, ::2] + 1j * x[:, 1::2]) * turns
    return np.stack((pairs.real, pairs.imag), axis=-1).reshape(T, size)


def _close(name: str, found: Array, expected: Array) -> Check:
    """What the reader computed, beside float64; relative to the largest where that is over 1."""
    error = float(np.abs(found - expected).max())
    return Check(name, error, CLOSE * max(1.0, float(np.abs(expected).max())))
