"""A second implementation of the trained model, in float64 and as simple as possible.

`gptx attn` checks its stages with it, `gptx explain mine` explains them with it, and it decides
whether a checkpoint's probe passes if float32 is not exact enough. It shares no code with the
reader (gpt/reading/gpt.py).
Each stage comes with its reach, which bounds the rounding error of float32 (rounding.py).
Tensor names: T time, S keys, C n_embd, H heads, D head_size, N orders of n-grams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

KEPT = 16  # cached tensors: more than one layer has


@dataclass(frozen=True)
class Embedded:
    """The stream that enters layer 0, (T, C), and its summands."""

    tokens: Array
    positions: Array | None
    stream: Array
    reach: Array  # (T, 1)


class Exact:
    """The model of a reader's weights, computed in float64."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.config = reader, reader.config
        #: A stored tensor in float64, and the length of a matrix's longest row. They are cached, as
        #: each is used twice: with captured stages, and with recomputed ones.
        self.weight: Callable[[str], Array] = lru_cache(KEPT)(
            lambda name: reader.tensors[name].astype(np.float64)
        )
        self._longest: Callable[[str], float] = lru_cache(KEPT)(
            lambda name: float(_length(reader.tensors[name]).max())
        )

    def bias(self, name: str) -> Array | float:
        """A layer's bias in float64, 0 where it has none."""
        return self.weight(f"{name}.bias") if f"{name}.bias" in self.reader.tensors else 0.0

    def embed(self, ids: Ids) -> Embedded:
        """(T,) ids -> the stream that enters layer 0."""
        config, table = self.config, self.reader.tensors
        tokens = table["token_embedding.weight"][ids].astype(np.float64)  # (T, C)
        parts: list[Array] = [tokens]
        positions = added_positions(config, table, len(ids))
        if config.ngram > 1:
            grams = table["ngram_embedding.weight"][gram_rows(config, ids)]  # (T, N, C)
            parts += list(grams.astype(np.float64).swapaxes(0, 1))
        if positions is not None:
            parts.append(positions)
        reach = np.sum([np.abs(part) for part in parts], axis=0).max(axis=-1, keepdims=True)
        return Embedded(tokens, positions, np.sum(parts, axis=0), reach)

    def last(self, stream: Array) -> tuple[Array, Array, Array]:
        """(T, C) output of the last layer -> (T, C) normed, (T, vocab_size) logits, reach."""
        normed, spread = self.norm(stream.astype(np.float64), "norm")
        name = "token_embedding.weight" if self.config.tied else "lm_head.weight"
        return normed, normed @ self.weight(name).T, spread * self._longest(name)

    def logits(self, ids: Ids) -> Array:
        """(T,) ids -> (T, vocab_size) logits, all computed here."""
        stream = self.embed(ids).stream
        for number in range(self.config.n_layer):
            stream = Layer(self, number, stream).stages.output
        return self.last(stream)[1]

    def norm(self, x: Array, name: str) -> tuple[Array, Array]:
        """(T, C) -> (T, C) normalised, with the norm's gain and bias if stored, and its (T, 1)
        reach.

        The error of subtracting the mean is in proportion to the numbers, not to their difference.
        """
        centred = x - x.mean(axis=-1, keepdims=True) if self.config.norm == "layer" else x
        gained = f"{name}.weight" in self.reader.tensors
        gain = self.weight(f"{name}.weight") if gained else np.ones(1)
        normed = unit(centred) * gain + self.bias(name)
        lost = _length(x * gain) / root_mean_square(centred)
        return normed, np.maximum(_length(normed), lost)

    def gains(self, norm: str) -> str:
        """The names of a norm's stored tensors: gain and bias, if it has them."""
        return " and ".join(
            name for name in (f"{norm}.weight", f"{norm}.bias") if name in self.reader.tensors
        )

    def linear(self, x: Array, spread: Array | float, name: str) -> tuple[Array, Array]:
        """(T, columns) and the (T, 1) reach of its rows -> (T, rows) and the reach of these."""
        name, bias = f"{name}.weight", self.bias(name)
        reach = np.maximum(spread, _length(x)) * self._longest(name)
        return x @ self.weight(name).T + bias, reach + np.abs(bias).max()


class Layer:
    """One layer's stages in float64, their reach, and intermediate results.

    stream: (T, C). Each stage is computed from the previous stage in `found`, or if there is no
    `found`, from the previous stage computed here. memory: (S, C), and allowed: (T, S), as in
    `Reader.attend`.
    normed: (T, C). first: (3, H, T, D), queries, keys and values before normalisation and
    rotation. hidden: (T, config.widened), input of the activation; active: (T, config.hidden), its
    output.
    """

    def __init__(
        self,
        exact: Exact,
        number: int,
        stream: Array,
        found: Stages | None = None,
        memory: Array | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._exact, self._block, self._found = exact, f"blocks.{number}.", found
        self._made: dict[str, Array] = {"stream": stream.astype(np.float64)}
        self.reach: dict[str, Array | float] = {}
        self.normed, spread = exact.norm(self._made["stream"], f"{self._block}norm1")
        self.first, spread = self._heads(self.normed, spread)
        self._queries(spread, memory)
        self._attend(memory, allowed)
        self._join()
        self._feed_forward()

    @property
    def stages(self) -> Stages:
        return Stages(**self._made)

    def held(self, found: Stages) -> dict[str, Held]:
        """Stage -> its worst row, for every stage but the stream."""
        return {
            name: held(getattr(found, name), self._made[name], reach)
            for name, reach in self.reach.items()
        }

    def _before(self, name: str) -> Array:
        """The input of the next stage."""
        if self._found is None:
            return self._made[name]
        return getattr(self._found, name).astype(np.float64)  # type: ignore[no-any-return]

    def _heads(self, x: Array, spread: Array | float) -> tuple[Array, Array]:
        """(T, C) and its reach -> (3, H, T, D) queries, keys and values, and their (T, 1) reach."""
        config = self._exact.config
        packed, spread = self._exact.linear(x, spread, f"{self._block}attention.qkv")  # (T, 3C)
        by_head = packed.reshape(len(x), 3, config.n_head, config.head_size)
        return by_head.transpose(1, 2, 0, 3), spread

    def _queries(self, spread: Array, memory: Array | None) -> None:
        """q, k and v as the products use them; keys of a memory get no positions."""
        config = self._exact.config
        parts = [(part, spread) for part in self.first]
        if memory is not None:
            seen, spread = self._heads(memory.astype(np.float64), 0.0)
            parts[1:] = [(part, spread) for part in seen[1:]]
        for (part, spread), name in zip(parts, "qkv", strict=True):
            self._made[name], self.reach[name] = part, spread
            if config.qk_norm and name != "v":
                self._made[name], self.reach[name] = unit(part), spread / root_mean_square(part)
            if name != "v" and memory is None:
                self._made[name] = turned(config, self._made[name])

    def _attend(self, memory: Array | None, allowed: npt.NDArray[np.bool_] | None) -> None:
        """scores to weights, all from q and k, and context."""
        q, k, v = (self._before(name) for name in "qkv")  # (H, T, D), (H, S, D), (H, S, D)
        root = q.shape[-1] ** 0.5
        scores = q @ k.swapaxes(1, 2)  # (H, T, S)
        scaled = scores / root
        bias: Array = np.zeros(1)
        usual = np.ones(scores.shape[1:], np.bool_)  # all of a memory
        if memory is None:
            bias, usual = added_to_scores(self._exact.config, q.shape[1]), np.tril(usual)
        allowed = usual if allowed is None else allowed
        masked = np.where(allowed, scaled + bias, -np.inf)
        shifted = masked - masked.max(axis=-1, keepdims=True)
        by_log_sum_exp = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        self._made.update(scores=scores, scaled=scaled, masked=masked)
        self._made["weights"] = np.exp(by_log_sum_exp)
        lengths = _length(q) * _length(k).max(axis=1, keepdims=True)  # (H, T, 1): bound of scores
        largest = lengths / root + _largest(np.where(allowed, bias, 0.0))  # bound for masked scores
        self.reach.update(scores=lengths, scaled=lengths / root, masked=largest)
        # 1e-6, or one rounding error of the largest possible score.
        self.reach["weights"] = np.maximum(1 / 2, largest / 16)
        self._made["context"] = self._before("weights") @ v
        self.reach["context"] = np.abs(v).max(axis=(1, 2), keepdims=True)

    def _join(self) -> None:
        """concat, proj and residual."""
        stream = self._made["stream"]
        self._made["concat"] = self._before("context").swapaxes(0, 1).reshape(stream.shape)
        self.reach["concat"] = 0.0  # the same numbers in another order
        concat = self._before("concat")
        name = f"{self._block}attention.proj"
        self._made["proj"], self.reach["proj"] = self._exact.linear(concat, 0.0, name)
        self._made["residual"] = stream + self._before("proj")
        self.reach["residual"] = _largest(stream) + _largest(self._before("proj"))

    def _feed_forward(self) -> None:
        exact, residual = self._exact, self._before("residual")
        normed, spread = exact.norm(residual, f"{self._block}norm2")
        self.hidden, spread = exact.linear(normed, spread, f"{self._block}feed_forward.up")
        self.active, slope = ACTIVATIONS[exact.config.activation](self.hidden)
        spread = _length(self.active) + _largest(slope) * spread
        added, spread = exact.linear(self.active, spread, f"{self._block}feed_forward.down")
        self._made["output"] = residual + added
        self.reach["output"] = _largest(residual) + spread


def _length(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.sqrt(np.einsum("...c,...c->...", x, x))[..., None]  # type: ignore[no-any-return]


def _largest(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.abs(x).max(axis=-1, keepdims=True)  # type: ignore[no-any-return]
