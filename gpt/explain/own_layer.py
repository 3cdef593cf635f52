"""One layer and one of its heads, stage by stage: the middle of a walk through a model.

Each stage is computed again in float64 from the stage before it and the named weights (exact.py),
and compared with the reader's. Tensor names: T time, C n_embd, D head_size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpt.checks import Check
from gpt.config.model import GATED
from gpt.explain.lesson import Step, Table
from gpt.heads.exact import Exact
from gpt.heads.exact import Layer as ExactLayer
from gpt.heads.exact_functions import slopes
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array

NORM_FORMULA = {
    "rms": "x / √(mean(x²) + 0.00001)",
    "layer": "(x − mean(x)) / √(variance(x) + 0.00001) × weight",
}
ACTIVATION_FORMULA = {
    "relu": "max(hidden, 0)",
    "relu2": "max(hidden, 0)²",
    "gelu": "gelu(hidden)",
    "swiglu": "gate × σ(gate) × other, where hidden = [gate | other]",
}


def by_character(
    text: str, name: str, values: Array, source: str = "", columns: tuple[str, ...] = ()
) -> Table:
    """A row a character of the text."""
    return Table(name, values, tuple(text), columns, numbered=True, source=source)


@dataclass
class LayerWalk:
    """What a head of a layer did with a text, and the rest of the layer after it."""

    reader: Reader
    stages: Stages
    text: str
    layer: int
    head: int

    def steps(self) -> Iterator[Step]:
        """From the stream that enters the layer to the one that leaves it."""
        yield self._normed()
        yield from self._queries()
        yield from self._looking()
        yield from self._joining()
        yield self._feeding()

    @cached_property
    def _exact(self) -> Exact:
        return Exact(self.reader)

    @cached_property
    def _again(self) -> ExactLayer:
        return ExactLayer(self._exact, self.layer, self.stages.stream, self.stages)

    @cached_property
    def _checks(self) -> dict[str, Check]:
        """Stage -> the largest difference of all heads from its float64 value."""
        held = self._again.held(self.stages).items()
        return {name: Check(name, error, bound) for name, (error, bound) in held}

    @property
    def _last(self) -> int:
        return len(self.text) - 1

    @property
    def _block(self) -> str:
        return f"blocks.{self.layer}."

    def _rows(self, name: str, values: Array, source: str = "") -> Table:
        return by_character(self.text, name, values, source)

    def _square(self, name: str, values: Array) -> Table:
        """A row and a column a character."""
        return by_character(self.text, name, values, columns=tuple(self.text))

    def _normed(self) -> Step:
        name = self._block + "norm1"
        return Step(
            "Normalise",
            "Rows of the stream grow from layer to layer. Before a layer looks at them, each is "
            "brought to one scale.",
            NORM_FORMULA[self.reader.config.norm],
            (self._rows("normed", self._again.normed, self._exact.gains(name)),),
        )

    def _queries(self) -> Iterator[Step]:
        config, stages = self.reader.config, self.stages
        size, width, made = config.head_size, config.n_embd, self._again.first[:, self.head]
        checks = tuple(self._checks[name] for name in "qkv")
        qkv = f"{self._block}attention.qkv.weight"
        tables = []
        for part, name in enumerate(("q", "k", "v")):
            first = part * width + self.head * size
            rows = f"{qkv}, rows {first}–{first + size - 1}"
            tables.append(self._rows(name, made[part], rows))
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
            () if config.qk_norm or config.position == "rotary" else checks,
        )
        if not config.qk_norm and config.position != "rotary":
            return
        told, parts = [], []
        if config.qk_norm:
            told.append("Queries and keys are brought to one length, so that scores cannot grow.")
            parts.append("x / √(mean(x²) + 0.00001)")
        if config.position == "rotary":
            told.append(
                "Each pair of columns is turned by an angle that grows with the position. A score "
                "then depends on the distance of two characters (Su et al. 2021)."
            )
            parts.append("(x[2d] + i·x[2d+1]) × e^(i·t·10000^(−2d/D))")
        yield Step(
            "Queries and keys as they meet",
            " ".join(told),
            "    ".join(parts),
            (
                self._rows("q as it meets k", stages.q[self.head]),
                self._rows("k as it meets q", stages.k[self.head]),
            ),
            checks=checks,
        )

    def _looking(self) -> Iterator[Step]:
        stages, head, size = self.stages, self.head, self.reader.config.head_size
        again = self._again.stages
        scores, scaled, weights = again.scores[head], again.scaled[head], again.weights[head]
        key = int(stages.weights[head, self._last].argmax())
        where = f"[{self._last}, {key}]"
        yield Step(
            "Scores",
            "Every query meets every key. Rows ask, columns are asked.",
            "scores = q · kᵀ",
            (self._square("scores", stages.scores[head]),),
            f"scores{where} = q[{self._last}] · k[{key}] = {scores[self._last, key]:.4f}",
            (self._checks["scores"],),
        )
        yield Step(
            "Scale",
            f"A score is a sum of {size} products and spreads √{size} times as wide as one.",
            f"scaled = scores / √{size}",
            (self._square("scaled", stages.scaled[head]),),
            f"scaled{where} = {scores[self._last, key]:.4f} / {size**0.5:.4f} = "
            f"{scaled[self._last, key]:.4f}",
            (self._checks["scaled"],),
        )
        told = (
            "No character may look at those after it: they are what the model learns to foretell."
        )
        formula = "masked[i, j] = −∞ for j > i"
        if self.reader.config.position == "alibi":
            slope = slopes(self.reader.config.n_head)[head]
            told += (
                " And positions enter here: a score falls with the distance of the two characters, "
                f"by {slope:g} for each character in head {head} (Press, Smith & Lewis 2022)."
            )
            formula = f"masked[i, j] = scaled[i, j] − {slope:g} × (i − j), and −∞ for j > i"
        yield Step(
            "Mask",
            told,
            formula,
            (self._square("masked", stages.masked[head]),),
            checks=(self._checks["masked"],),
        )
        sums = stages.weights.sum(axis=-1, dtype=np.float64)  # (H, T)
        yield Step(
            "Softmax",
            "Exponentials, divided by their sum, row by row: how much each character takes of each "
            "earlier one and of itself. This is the matrix that gptx attn shows.",
            "weights = softmax(masked)",
            (self._square("weights", stages.weights[head]),),
            f"The last character takes most of position {key}: weights{where} = "
            f"{weights[self._last, key]:.4f}",
            (self._checks["weights"], Check("rows sum to 1", float(np.abs(sums - 1).max()), 1e-6)),
        )

    def _joining(self) -> Iterator[Step]:
        config, stages, head = self.reader.config, self.stages, self.head
        size, width, context = config.head_size, config.n_embd, self._again.stages.context[head]
        yield Step(
            "Context",
            "The values, mixed by the weights.",
            "context = weights · v",
            (self._rows("context", stages.context[head]),),
            checks=(self._checks["context"],),
        )
        first, last = head * size, (head + 1) * size - 1
        joined = stages.concat[:, first : last + 1]
        yield Step(
            "Concat",
            f"The contexts of all {config.n_head} heads side by side, {config.n_head} × {size} = "
            f"{width} columns. This head’s are {first}–{last}.",
            "concat = [head 0 | head 1 | …]",
            (self._rows(f"concat, columns {first}–{last}", joined),),
            checks=(self._checks["concat"],),
        )
        name = f"{self._block}attention.proj"
        bias = f" and {name}.bias" if f"{name}.bias" in self.reader.tensors else ""
        own = context @ self._exact.weight(f"{name}.weight")[:, first : last + 1].T  # (T, C)
        yield Step(
            "Projection",
            "A matrix mixes what the heads found. Each head has columns of its own in it, so what "
            "this head alone adds can be told.",
            "proj = concat · Wᵀ",
            (
                self._rows("proj", stages.proj, f"{name}.weight{bias}"),
                self._rows(f"of it by head {head}", own, f"{name}.weight, columns {first}–{last}"),
            ),
            checks=(self._checks["proj"],),
        )
        yield Step(
            "Residual",
            "Nothing is replaced: what attention found is added to the stream.",
            "residual = stream + proj",
            (self._rows("residual", stages.residual),),
            checks=(self._checks["residual"],),
        )

    def _feeding(self) -> Step:
        config = self.reader.config
        up, down = f"{self._block}feed_forward.up", f"{self._block}feed_forward.down"
        bent = "a curve bends them"
        if config.activation in GATED:
            bent = f"the first {config.hidden} are bent by a curve and multiply the others"
        return Step(
            "Feed-forward",
            f"Now each character by itself: normalised again, {config.n_embd} numbers become "
            f"{config.widened}, {bent} ({config.activation}), and they become "
            f"{config.n_embd} again. That too is added.",
            "hidden = norm2(residual) · W_upᵀ    "
            f"active = {ACTIVATION_FORMULA[config.activation]}    "
            "output = residual + active · W_downᵀ",
            (
                self._rows("hidden", self._again.hidden, f"{up}.weight"),
                self._rows("active", self._again.active),
                self._rows("output", self.stages.output, f"{down}.weight"),
            ),
            checks=(self._checks["output"],),
        )
