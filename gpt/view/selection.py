"""Which part of an attention map to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpt.config.fields import require
from gpt.config.show import Stage
from gpt.errors import ConfigError
from gpt.heads.attention_map import LAYER_STAGES, AttentionMap
from gpt.reading.layers import Array

HeadName = int | Literal["mean", "all", "rollout"]

#: Stages whose columns are keys; the others' columns are dimensions.
SQUARE_STAGES: tuple[Stage, ...] = ("scores", "scaled", "masked", "weights")


@dataclass(frozen=True)
class Panel:
    """One matrix to show: its layer and head, and (queries, keys or dimensions) values."""

    layer: int
    head: HeadName
    values: Array

    @property
    def of(self) -> str:
        """Which head or heads."""
        names = {"mean": "mean of heads", "all": "all heads", "rollout": "rollout, a heuristic"}
        return names.get(str(self.head), f"head {self.head}")

    def where(self, joint: str = " ") -> str:
        """Layer and head."""
        if self.head == "rollout":
            return f"rollout through layer {self.layer}, a heuristic"
        return f"layer {self.layer}{joint}{self.of}"


@dataclass(frozen=True)
class Selection:
    """Layers, heads, stage, and ranges of rows (queries) and columns (keys)."""

    layers: tuple[int, ...]
    heads: tuple[HeadName, ...]
    stage: Stage
    queries: range
    keys: range

    @property
    def square(self) -> bool:
        return self.stage in SQUARE_STAGES

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """(queries, keys) True for keys that do not come after the query."""
        return np.array(self.keys)[None, :] <= np.array(self.queries)[:, None]

    def panels(self, attention: AttentionMap) -> list[Panel]:
        """The selected matrices, layer by layer. concat, proj and residual come once a layer."""
        heads: tuple[HeadName, ...] = ("all",) if self.stage in LAYER_STAGES else self.heads
        rows = slice(self.queries.start, self.queries.stop)
        columns = slice(self.keys.start, self.keys.stop) if self.square else slice(None)
        return [
            Panel(layer, head, attention.stage(self.stage, layer, head)[rows, columns])
            for layer in self.layers
            for head in heads
        ]


@dataclass(frozen=True)
class Look:
    """One checkpoint's name, its map of a text, and the selected part of it."""

    name: str
    attention: AttentionMap
    selection: Selection


def select(
    attention: AttentionMap, layer: str, head: str, stage: Stage, query: str | None, key: str | None
) -> Selection:
    """From the options' texts: numbers, "all", "mean", "rollout", "A:B". Raises ConfigError."""
    length = len(attention.text)
    count, _, _ = attention.layers[0].q.shape
    heads: tuple[HeadName, ...] = ("mean",) if head == "mean" else ("rollout",)
    if head == "rollout":
        require(stage == "weights", "stage", f"rollout exists for weights only, not for {stage}")
    elif head != "mean":
        heads = _indices("head", head, count)
    return Selection(
        layers=_indices("layer", layer, len(attention.layers)),
        heads=heads,
        stage=stage,
        queries=_range("query", query, length),
        keys=_range("key", key, length),
    )


def _indices(option: str, text: str, count: int) -> tuple[int, ...]:
    if text == "all":
        return tuple(range(count))
    words = "all, mean, rollout or a number" if option == "head" else "all or a number"
    require(text.isdecimal() and len(text) < 10, option, f"{text[:20]!r} is not {words}")
    require(int(text) < count, option, f"{text} is not in 0 … {count - 1}")
    return (int(text),)


def _range(option: str, text: str | None, length: int) -> range:
    """ "A:B" as in Python (B excluded, either may be left out), or one position."""
    if text is None:
        return range(length)
    start, colon, stop = text.partition(":")
    try:
        first = int(start) if start or not colon else 0
        last = (int(stop) if stop else length) if colon else first + 1
    except ValueError:
        raise ConfigError(option, f"{text[:20]!r} is not a position or a range A:B") from None
    require(min(first, last) >= 0, option, f"{text!r}: positions count from 0")
    require(first < last, option, f"{text!r} is empty: A:B ends before B")
    require(last <= length, option, f"{text!r} does not fit a text of {length} characters")
    return range(first, last)
