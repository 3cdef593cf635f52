"""A second implementation of the trained model, in float64 and as simple as possible.

`gptx attn` checks its stages with it, `gptx explain mine` explains them with it, and it decides
whether a checkpoint's probe passes if float32 is not exact enough. It shares no code with the
reader, and knows no text.
Each stage comes with its reach, which bounds the rounding error of float32 (rounding.py).
Tensor names: T time, C n_embd, H heads, D head_size, N orders of n-grams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gpt.heads.exact_functions import (
    ACTIVATIONS,
    added_positions,
    added_to_scores,
    gram_rows,
    root_mean_square,
    turned,
    unit,
)
from gpt.heads.rounding import Held, held
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.vocabulary import Ids

KEPT = 16  # tensors of one layer, and more


@dataclass(frozen=True)
class Embedded:
    """The stream that enters layer 0, (T, C), and its summands."""

    tokens: Array
    rows: npt.NDArray[np.int64] | None  # (T, N) of the n-gram table
    grams: Array | None
    positions: Array | None
    stream: Array
    reach: Array  # (T, 1)


@dataclass(frozen=True)
class Layer:
    """One layer's stages in float64, their reach, and intermediate results.

    normed: (T, C). first: (3, H, T, D), queries, keys and values before normalisation and
    rotation. hidden: (T, config.widened), what the activation is given; active: (T, config.hidden).
    """

    stages: Stages
    reach: dict[str, Array | float]
    normed: Array
    first: Array
    hidden: Array
    active: Array

    def held(self, found: Stages) -> dict[str, Held]:
        """Stage -> its worst row, for every stage but the stream."""
        return {
            name: held(getattr(found, name), getattr(self.stages, name), reach)
            for name, reach in self.reach.items()
        }


class Exact:
    """A reader's weights and what is done with them."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.config = reader, reader.config
        #: A stored tensor in float64; and the length of a matrix's longest row. Two passes through
        #: a layer, one from its captured stages and one from its own, need each of them twice.
        self.weight: Callable[[str], Array] = lru_cache(KEPT)(self._weight)
        self._longest: Callable[[str], float] = lru_cache(KEPT)(self._longest_row)

    def _weight(self, name: str) -> Array:
        return self.reader.tensors[name].astype(np.float64)

    def _longest_row(self, name: str) -> float:
        weight = self.reader.tensors[name]
        return float(np.sqrt(np.einsum("rc,rc->r", weight, weight).max()))

    def bias(self, name: str) -> Array | float:
        """A layer's bias in float64, 0 where it has none."""
        return self.weight(f"{name}.bias") if f"{name}.bias" in self.reader.tensors else 0.0

    def embed(self, ids: Ids) -> Embedded:
        """(T,) ids -> the stream that enters layer 0."""
        config, table = self.config, self.reader.tensors
        tokens = table["token_embedding.weight"][ids].astype(np.float64)  # (T, C)
        parts: list[Array] = [tokens]
        rows, grams, positions = None, None, added_positions(config, table, len(ids))
        if config.ngram > 1:
            rows = gram_rows(config, ids)
            each = table["ngram_embedding.weight"][rows].astype(np.float64)  # (T, N, C)
            grams = each.sum(axis=1)
            parts += list(each.swapaxes(0, 1))
        if positions is not None:
            parts.append(positions)
        reach = np.sum([np.abs(part) for part in parts], axis=0).max(axis=-1, keepdims=True)
        return Embedded(tokens, rows, grams, positions, np.sum(parts, axis=0), reach)

    def layer(self, number: int, stream: Array, found: Stages | None = None) -> Layer:
        """(T, C) -> one layer. Each stage is computed from the previous stage in `found`, or if
        there is no `found`, from the previous stage computed here.
        """
        return _Making(self, f"blocks.{number}.", stream.astype(np.float64), found).layer()

    def last(self, stream: Array) -> tuple[Array, Array, Array]:
        """(T, C) output of the last layer -> (T, C) normed, (T, vocab_size) logits, reach."""
        normed, spread = self.norm(stream.astype(np.float64), "norm")
        name = "token_embedding.weight" if self.config.tied else "lm_head.weight"
        return normed, normed @ self.weight(name).T, spread * self._longest(name)

    def logits(self, ids: Ids) -> Array:
        """(T,) ids -> (T, vocab_size) logits, all computed here."""
        stream = self.embed(ids).stream
        for number in range(self.config.n_layer):
            stream = self.layer(number, stream).stages.output
        return self.last(stream)[1]

    def norm(self, x: Array, name: str) -> tuple[Array, Array]:
        """(T, C) -> (T, C) with the gain and bias that the tensors have, and its (T, 1) reach.

        Subtracting the mean makes an error in proportion to the numbers, not to the difference.
        """
        centred = x - x.mean(axis=-1, keepdims=True) if self.config.norm == "layer" else x
        gained = f"{name}.weight" in self.reader.tensors
        gain = self.weight(f"{name}.weight") if gained else np.ones(1)
        normed = unit(centred) * gain + self.bias(name)
        lost = _length(x * gain) / root_mean_square(centred)
        return normed, np.maximum(_length(normed), lost)

    def gains(self, norm: str) -> str:
        """The names of the tensors that a norm multiplies with and adds, if it does."""
        return " and ".join(
            name for name in (f"{norm}.weight", f"{norm}.bias") if name in self.reader.tensors
        )

    def linear(self, x: Array, spread: Array, name: str) -> tuple[Array, Array]:
        """(T, columns) and the (T, 1) reach of its rows -> (T, rows) and theirs."""
        name, bias = f"{name}.weight", self.bias(name)
        reach = np.maximum(spread, _length(x)) * self._longest(name)
        return x @ self.weight(name).T + bias, reach + np.abs(bias).max()


class _Making:
    """Computes one layer: its stages so far, and their reach."""

    def __init__(self, exact: Exact, block: str, stream: Array, found: Stages | None) -> None:
        self.exact, self.config, self.block, self.found = exact, exact.config, block, found
        self.made: dict[str, Array] = {"stream": stream}
        self.reach: dict[str, Array | float] = {}

    def before(self, name: str) -> Array:
        """The input of the next stage."""
        if self.found is None:
            return self.made[name]
        return getattr(self.found, name).astype(np.float64)  # type: ignore[no-any-return]

    def layer(self) -> Layer:
        normed, first = self._queries()
        self._attend()
        self._join()
        hidden, active = self._feed_forward()
        stages = Stages(**{field.name: self.made[field.name] for field in fields(Stages)})
        return Layer(stages, self.reach, normed, first, hidden, active)

    def _queries(self) -> tuple[Array, Array]:
        """q, k and v; (T, C) normed, and (3, H, T, D) before their normalisation and rotation."""
        config, stream = self.config, self.made["stream"]
        normed, spread = self.exact.norm(stream, f"{self.block}norm1")
        packed, spread = self.exact.linear(normed, spread, f"{self.block}attention.qkv")  # (T, 3C)
        parts = packed.reshape(len(stream), 3, config.n_head, config.head_size)
        first = parts.transpose(1, 2, 0, 3)  # (3, H, T, D)
        for part, name in zip(first, "qkv", strict=True):
            self.made[name], self.reach[name] = part, spread
            if config.qk_norm and name != "v":
                self.made[name], self.reach[name] = unit(part), spread / root_mean_square(part)
            if config.position == "rotary" and name != "v":
                self.made[name] = turned(self.made[name])
        return normed, first

    def _attend(self) -> None:
        """scores to weights, all from q and k, and context."""
        q, k, v = (self.before(name) for name in "qkv")  # (H, T, D)
        root = q.shape[-1] ** 0.5
        scores = q @ k.swapaxes(1, 2)  # (H, T, T)
        scaled = scores / root
        past, bias = np.tri(q.shape[1], dtype=bool), added_to_scores(self.config, q.shape[1])
        masked = np.where(past, scaled + bias, -np.inf)
        self.made.update(scores=scores, scaled=scaled, masked=masked)
        self.made["weights"] = _by_log_sum_exp(masked)
        lengths = _length(q) * _length(k).max(axis=1, keepdims=True)  # (H, T, 1): bound of scores
        largest = lengths / root + _largest(np.where(past, bias, 0.0))  # of a masked score
        self.reach.update(scores=lengths, scaled=lengths / root, masked=largest)
        # 1e-6, or one rounding error of the largest possible score.
        self.reach["weights"] = np.maximum(1 / 2, largest / 16)
        self.made["context"] = self.before("weights") @ v
        self.reach["context"] = np.abs(v).max(axis=(1, 2), keepdims=True)

    def _join(self) -> None:
        """concat, proj and residual."""
        stream = self.made["stream"]
        self.made["concat"] = self.before("context").swapaxes(0, 1).reshape(stream.shape)
        self.reach["concat"] = 0.0  # the same numbers in another order
        concat = self.before("concat")
        name = f"{self.block}attention.proj"
        self.made["proj"], self.reach["proj"] = self.exact.linear(concat, _length(concat), name)
        self.made["residual"] = stream + self.before("proj")
        self.reach["residual"] = _largest(stream) + _largest(self.before("proj"))

    def _feed_forward(self) -> tuple[Array, Array]:
        """output; hidden and active as in Layer."""
        residual = self.before("residual")
        normed, spread = self.exact.norm(residual, f"{self.block}norm2")
        hidden, spread = self.exact.linear(normed, spread, f"{self.block}feed_forward.up")
        active, slope = ACTIVATIONS[self.config.activation](hidden)
        spread = _length(active) + _largest(slope) * spread
        added, spread = self.exact.linear(active, spread, f"{self.block}feed_forward.down")
        self.made["output"] = residual + added
        self.reach["output"] = _largest(residual) + spread
        return hidden, active


def _length(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.sqrt(np.einsum("...c,...c->...", x, x))[..., None]  # type: ignore[no-any-return]


def _largest(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.abs(x).max(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def _by_log_sum_exp(masked: Array) -> Array:
    """Softmax of each row: exp(x − log Σ exp(x)), from the row's largest."""
    shifted = masked - masked.max(axis=-1, keepdims=True)
    weights: Array = np.exp(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
    return weights
