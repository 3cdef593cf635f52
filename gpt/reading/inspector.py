"""Text -> what every attention head computed for it, and the proof that the numbers are right."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from typing import Literal, SupportsIndex

import numpy as np

from gpt.checks import Check
from gpt.config import Stage
from gpt.errors import TextError
from gpt.reading.reader import Array, Reader, Stages
from gpt.vocabulary import Ids

PROBE_TOLERANCE = 1e-4  # logits, numpy against torch

#: Stages that belong to a layer, not to one of its heads.
LAYER_STAGES = ("stream", "concat", "proj", "residual", "output")
#: Everything that `AttentionMap.stage` can show.
AnyStage = Literal[Stage, "stream", "q", "k", "v", "output"]


@dataclass(frozen=True)
class AttentionMap:
    """All stages of all layers for one text of T characters, with the checks that hold them."""

    text: str
    ids: Ids
    layers: tuple[Stages, ...]
    checks: tuple[Check, ...]

    def stage(
        self,
        name: AnyStage,
        layer: SupportsIndex,
        head: SupportsIndex | Literal["mean", "all", "rollout"],
    ) -> Array:
        """(T, T) for scores to weights; (T, D) for q, k, v and context; (T, C) for LAYER_STAGES.

        LAYER_STAGES belong to all heads of the layer, whichever head is asked for. "all" gives
        every head, (H, T, …), "mean" their mean, "rollout" (weights only) that through the layers
        0 … layer. Layers and heads count from 0. Raises ValueError for a stage or a word that is
        not one of these, IndexError for a layer or head that there is not.
        """
        if name not in (known := [field.name for field in fields(Stages)]):
            raise ValueError(f"{name!r} is not one of {', '.join(known)}")
        if head == "rollout":
            if name != "weights":
                raise ValueError(f"rollout is of weights, not of {name}")
            return self.rollout(layer)
        values: Array = getattr(self._layer(layer), name)
        if isinstance(head, str):
            if head not in ("mean", "all"):
                raise ValueError(f"{head!r} is not a head's number, mean, all or rollout")
            whole = head == "all" or name in LAYER_STAGES
            return values if whole else values.mean(axis=0)
        number = _number("head", head, len(self.layers[0].q))
        return values if name in LAYER_STAGES else values[number]

    def _layer(self, layer: SupportsIndex) -> Stages:
        return self.layers[_number("layer", layer, len(self.layers))]

    def rollout(self, layer: SupportsIndex) -> Array:
        """(T, T) the product of ½(mean of heads + identity) of the layers 0 … layer.

        A heuristic of what reaches a position from where (Abnar & Zuidema 2020): it takes the
        residual stream for half of every layer and knows no feed-forward. Raises IndexError.
        """
        last = _number("layer", layer, len(self.layers))
        mixed: Array = np.eye(len(self.ids), dtype=self.layers[last].weights.dtype)
        for stages in self.layers[: last + 1]:
            mixed = (stages.weights.mean(axis=0) @ mixed + mixed) / 2
        return mixed


def _number(what: str, number: SupportsIndex, count: int) -> int:
    """Raises IndexError unless the number is in 0 … count − 1."""
    at = operator.index(number)
    if not 0 <= at < count:
        raise IndexError(f"{what} {at} is not in 0 … {count - 1}")
    return at


def inspect(reader: Reader, text: str, ids: Ids, probe_error: float) -> AttentionMap:
    """Runs the model on (T,) ids, 1 ≤ T ≤ block_size, keeping and checking every stage.

    probe_error is what the checkpoint's probe gave at opening. Raises TextError for other lengths.
    """
    if not len(ids):
        raise TextError("no text: there is nothing to attend to; give at least one character")
    if len(ids) > reader.config.block_size:
        raise TextError(
            f"the text has {len(ids)} characters, the model's context {reader.config.block_size}; "
            "shorten it, or use --window last"
        )
    kept: list[Stages] = []
    reader.forward(ids[None], keep=kept)
    checks = (
        _worst("rows sum to 1", [(_row_sum_error(stages), 1e-6) for stages in kept]),
        _worst("above the diagonal exactly 0", [(_above_diagonal(stages), 0.0) for stages in kept]),
        _worst("scores, scaled, masked", [(_score_error(stages), 1e-5) for stages in kept]),
        _worst("q·k again in float64", [_recomputed(stages) for stages in kept]),
        _worst("weights·v = context", [_context(stages) for stages in kept]),
        _worst("concat·W = proj", [_projected(reader, n, s) for n, s in enumerate(kept)]),
        _worst("residual = stream + proj", [_added(stages) for stages in kept]),
        Check("logits = torch's at saving", probe_error, PROBE_TOLERANCE),
    )
    return AttentionMap(text, ids, tuple(kept), checks)


def _row_sum_error(stages: Stages) -> float:
    return float(np.abs(stages.weights.sum(axis=-1, dtype=np.float64) - 1).max())


def _above_diagonal(stages: Stages) -> float:
    return float(np.abs(np.triu(stages.weights, k=1)).max())


def _score_error(stages: Stages) -> float:
    """scores = q·k, scaled = scores/√D, masked = scaled or −inf; relative to the largest."""
    T, size = stages.q.shape[1:]
    exact = stages.q.astype(np.float64) @ stages.k.astype(np.float64).swapaxes(1, 2)  # (H, T, T)
    allowed = np.tri(T, dtype=bool)
    masked = np.where(allowed, stages.masked, 0.0) - np.where(allowed, exact / np.sqrt(size), 0.0)
    differences = (stages.scores - exact, stages.scaled - exact / np.sqrt(size), masked)
    error = np.max([np.abs(difference).max() for difference in differences])
    forgotten = not np.isneginf(stages.masked[:, ~allowed]).all()
    return float(np.inf if forgotten else error / max(1.0, float(np.abs(exact).max())))


def _recomputed(stages: Stages) -> tuple[float, float]:
    """Weights row by row in float64, by log-sum-exp over the allowed keys only."""
    q, k = stages.q.astype(np.float64), stages.k.astype(np.float64)  # (H, T, D)
    error = np.float64(0.0)  # np.maximum keeps a NaN, max() may lose it
    for row in range(q.shape[1]):
        scores = (k[:, : row + 1] @ q[:, row, :, None])[..., 0] / np.sqrt(q.shape[2])  # (H, row+1)
        expected = np.exp(scores - np.logaddexp.reduce(scores, axis=-1)[:, None])
        error = np.maximum(error, np.abs(stages.weights[:, row, : row + 1] - expected).max())
    tight = stages.q.dtype == np.float64
    largest = float(np.abs(stages.scaled).max())
    return float(error), 1e-12 * max(1.0, largest) if tight else max(1e-6, 1.2e-7 * largest)


def _context(stages: Stages) -> tuple[float, float]:
    v = stages.v.astype(np.float64)
    expected = stages.weights.astype(np.float64) @ v
    joined = stages.context.swapaxes(0, 1).reshape(stages.concat.shape)
    differences = (stages.context - expected, stages.concat - joined)
    error = np.max([np.abs(difference).max() for difference in differences])
    return float(error), 1e-6 * max(1.0, float(np.abs(v).max()))


def _projected(reader: Reader, layer: int, stages: Stages) -> tuple[float, float]:
    """The heads' contexts, each through its own rows of the projection, summed in float64."""
    weight, bias = reader.linear(f"blocks.{layer}.attention.proj")  # (C, C)
    heads, _, size = stages.context.shape
    slices = weight.astype(np.float64).T.reshape(heads, size, -1)  # (H, D, C)
    expected = (stages.context.astype(np.float64) @ slices).sum(axis=0)
    expected = expected if bias is None else expected + bias
    largest = float(np.abs(expected).max())
    return float(np.abs(stages.proj - expected).max()), 1e-5 * max(1.0, largest)


def _added(stages: Stages) -> tuple[float, float]:
    expected = stages.stream.astype(np.float64) + stages.proj
    largest = float(np.abs(expected).max())
    return float(np.abs(stages.residual - expected).max()), 1e-6 * max(1.0, largest)


def _worst(name: str, results: list[tuple[float, float]]) -> Check:
    """The layer that comes nearest to its bound or exceeds it by most; a NaN before all."""

    def badness(result: tuple[float, float]) -> float:
        error, bound = result
        return math.inf if math.isnan(error) else error / bound if bound else error

    return Check(name, *max(results, key=badness))
