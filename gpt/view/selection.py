"""Selects the part of an attention map to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpt.config import DrawnStage
from gpt.config.fields import require
from gpt.config.model import HEAD_STAGES, SQUARE
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.reading.layers import Array
from gpt.words import counted

HeadName = int | Literal["mean", "all"]


@dataclass(frozen=True)
class Selection:
    """A part of one attention map: layers, heads, a stage, a range of rows (queries) and of columns
    (keys).

    why: the reason for this head, if the user chose none.
    """

    attention: AttentionMap
    layers: tuple[int, ...]
    heads: tuple[HeadName, ...]
    stage: DrawnStage
    queries: range
    keys: range
    why: str = ""

    @property
    def square(self) -> bool:
        """Whether columns are keys; otherwise they are dimensions."""
        return self.stage in SQUARE

    @property
    def name(self) -> str:
        """The model's title; empty if the model is not known."""
        model = self.attention.model
        return str(model.title) if model else ""

    @property
    def text(self) -> str:
        """The text that `queries` and `keys` are positions in."""
        return self.attention.text

    @property
    def size(self) -> str:
        """ "T=7": the number of characters."""
        return f"T={len(self.text)}"

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """(queries, keys) True for the keys that a query may read."""
        queries, keys = (slice(each.start, each.stop) for each in (self.queries, self.keys))
        return self.attention.allowed[queries, keys]

    def panels(self) -> list[Panel]:
        """The selected matrices, layer by layer. A stage without heads has one matrix a layer."""
        heads: tuple[HeadName, ...] = self.heads if self.stage in HEAD_STAGES else ("all",)
        rows = slice(self.queries.start, self.queries.stop)
        columns = slice(self.keys.start, self.keys.stop) if self.square else slice(None)
        return [
            Panel(self, layer, head, self._matrix(layer, head)[rows, columns])
            for layer in self.layers
            for head in heads
        ]

    def _matrix(self, layer: int, head: HeadName) -> Array:
        """(T, T or columns) matrix of one head, or of the layer."""
        return self.attention[self.stage, layer, None if head == "all" else head]


@dataclass(frozen=True)
class Panel:
    """One matrix of a selection: its layer, its head, and (queries, keys or dimensions) values."""

    selection: Selection
    layer: int
    head: HeadName
    values: Array

    @property
    def columns(self) -> range:
        """The range of keys or dimensions."""
        return self.selection.keys if self.selection.square else range(self.values.shape[1])

    @property
    def hidden(self) -> npt.NDArray[np.bool_]:
        """True for the weights that the mask forbids, which are all 0."""
        weights = self.selection.stage == "weights"
        return ~self.selection.allowed if weights else np.zeros(self.values.shape, np.bool_)

    @property
    def visible_values(self) -> Array:
        """The values in float64, NaN where the mask forbids them and where they are not finite."""
        shown = np.isfinite(self.values) & ~self.hidden
        return np.where(shown, self.values, np.nan).astype(np.float64)

    @property
    def of(self) -> str:
        """The name of the head or heads."""
        names = {"mean": "mean of heads", "all": "all heads"}
        return names.get(str(self.head), f"head {self.head}")

    def where(self, joint: str = " ") -> str:
        """The layer and the head, as text."""
        return f"layer {self.layer}{joint}{self.of}"


def select(
    attention: AttentionMap,
    layer: str = "0",
    head: str = "0",
    stage: DrawnStage = "weights",
    query: str | None = None,
    key: str | None = None,
) -> Selection:
    """Makes a selection from option texts: numbers, "all", "mean", "A:B". Raises ConfigError."""
    mean = head == "mean"
    heads: tuple[HeadName, ...] = ("mean",) if mean else _indices("head", head, attention.heads)
    return Selection(
        attention,
        layers=_indices("layer", layer, len(attention.layers)),
        heads=heads,
        stage=stage,
        queries=_range("query", query, len(attention.text)),
        keys=_range("key", key, len(attention.text)),
    )


def _indices(option: str, text: str, count: int) -> tuple[int, ...]:
    if text == "all":
        return tuple(range(count))
    words = "all, mean or a number" if option == "head" else "all or a number"
    require(text.isdecimal() and len(text) < 10, option, f"{text[:20]!r} is not {words}")
    require(int(text) < count, option, f"{text} is not in 0 … {count - 1}")
    return (int(text),)


def _range(option: str, text: str | None, length: int) -> range:
    """The positions that an option selects: one position, or "A:B" as in Python, from A up to but
    without B; A, B or both may be left out.
    """
    if text is None:
        return range(length)
    start, colon, stop = text.partition(":")
    try:
        first = int(start) if start or not colon else 0
        last = (int(stop) if stop else length) if colon else first + 1
    except ValueError:
        raise ConfigError(option, f"{text[:20]!r} is not a position or a range A:B") from None
    require(min(first, last) >= 0, option, f"{text!r}: positions count from 0")
    of = counted(length, "character")
    require(max(first, last) <= length, option, f"{text!r} does not fit a text of {of}")
    require(first < last, option, f"{text!r} is empty: A:B ends before B")
    return range(first, last)
