"""A second implementation of the trained model, in float64 and as simple as possible.

`gptx attn` checks its stages with it, `gptx explain mine` explains them with it, and it decides
whether a checkpoint's probe passes if float32 is not exact enough. It shares no code with the
reader (gpt/reading/gpt.py).
Each stage comes with its reach, which bounds the rounding error of float32 (rounding.py).
Tensor names: T time, S keys, C n_embd, H heads, D head_size.
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
    root_mean_square,
    turned,
    unit,
)
from gpt.heads.rounding import Held, held
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.stages import Stages
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
        if config.scaled_embedding:
            tokens *= config.n_embd**0.5
        parts: list[Array] = [tokens]
        positions = added_positions(config, table, len(ids))
        if positions is not None:
            parts.append(positions)
        reach = np.sum([np.abs(part) for part in parts], axis=0).max(axis=-1, keepdims=True)
        return Embedded(tokens, positions, np.sum(parts, axis=0), reach)

    def last(self, stream: Array) -> tuple[Array, Array, Array]:
        """(T, C) output of the last layer -> (T, C) normed, (T, vocab_size) logits, reach."""
        normed, spread = self.before(stream.astype(np.float64), "norm")
        name = "token_embedding.weight" if self.config.tied else "lm_head.weight"
        return normed, normed @ self.weight(name).T, spread * self._longest(name)

    def encode(self, source: Ids) -> Array:
        """(S,) ids -> (S, C), what cross-attention reads."""
        assert self.reader.encoder is not None
        encoder, every = Exact(self.reader.encoder), np.ones((len(source),) * 2, np.bool_)
        return encoder.before(encoder.stream(source, allowed=every), "norm")[0]

    def stream(
        self, ids: Ids, memory: Array | None = None, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Array:
        """(T,) ids -> (T, C), the output of the last layer. memory: (S, C), from `encode`."""
        stream = self.embed(ids).stream
        for number in range(self.config.n_layer):
            stream = Layer(self, number, stream, allowed=allowed).stages.output
            if memory is not None:
                stream = Layer(self, number, stream, memory=memory).stages.output
        return stream

    def logits(self, ids: Ids, source: Ids | None = None) -> Array:
        """(T,) ids, and those of the source (S,) -> (T, vocab_size) logits, all computed here."""
        return self.last(self.stream(ids, None if source is None else self.encode(source)))[1]

    def before(self, x: Array, norm: str) -> tuple[Array, Array]:
        """(T, C) stream -> the input of the sublayer that has this norm, and its (T, 1) reach."""
        return (x, _length(x)) if self.config.post_norm else self.norm(x, norm)

    def add(self, x: Array, added: Array, spread: Array | float, norm: str) -> tuple[Array, Array]:
        """(T, C) stream and the result of the sublayer that has this norm, with its reach -> the
        stream after it, and its (T, 1) reach.
        """
        total, reach = x + added, _largest(x) + spread
        if not self.config.post_norm:
            return total, reach
        normed, spread = self.norm(total, norm)
        gain = _largest(self.weight(f"{norm}.weight")) if self._gained(norm) else 1.0
        centred = (
            total - total.mean(axis=-1, keepdims=True) if self.config.norm == "layer" else total
        )
        return normed, spread + reach * gain / root_mean_square(centred)

    def _centred(self, x: Array) -> Array:
        """(T, C) less the mean of each row, if the norm removes it."""
        return x - x.mean(axis=-1, keepdims=True) if self.config.norm == "layer" else x

    def _gained(self, norm: str) -> bool:
        return f"{norm}.weight" in self.reader.tensors

    def norm(self, x: Array, name: str) -> tuple[Array, Array]:
        """(T, C) -> (T, C) normalised, with the norm's gain and bias if stored, and its (T, 1)
        reach.

        The error of subtracting the mean is in proportion to the numbers, not to their difference.
        """
        centred = self._centred(x)
        gain = self.weight(f"{name}.weight") if self._gained(name) else np.ones(1)
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
    `found`, from the previous stage computed here. allowed: (T, T), of self-attention, as in
    `Reader.attend`. memory: (S, C), for the stages of cross-attention; in a model with an encoder,
    only these have a feed-forward, see `Stages`.
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
        self._name, self._norm = "attention", f"{self._block}norm1"
        if memory is not None:
            self._name, self._norm = "cross", f"{self._block}cross_norm"
        self._made: dict[str, Array] = {"stream": stream.astype(np.float64)}
        self.reach: dict[str, Array | float] = {}
        self.normed, spread = exact.before(self._made["stream"], self._norm)
        self.first, spread = self._heads(self.normed, spread)
        self._queries(spread, memory)
        self._attend(memory, allowed)
        self._join()
        if memory is None and exact.config.encoder_layers:
            self._made["output"], self.reach["output"] = self._before("residual"), 0.0
        else:
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
        packed, spread = self._exact.linear(x, spread, f"{self._block}{self._name}.qkv")  # (T, 3C)
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
        weights = masked - masked.max(axis=-1, keepdims=True)
        weights -= np.log(np.exp(weights).sum(axis=-1, keepdims=True))  # the log-sum-exp
        np.exp(weights, out=weights)
        self._made.update(scores=scores, scaled=scaled, masked=masked, weights=weights)
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
        name = f"{self._block}{self._name}.proj"
        self._made["proj"], self.reach["proj"] = self._exact.linear(concat, 0.0, name)
        proj = self._before("proj")
        residual, self.reach["residual"] = self._exact.add(stream, proj, _largest(proj), self._norm)
        self._made["residual"] = residual

    def _feed_forward(self) -> None:
        exact, residual = self._exact, self._before("residual")
        norm = f"{self._block}norm2"
        normed, spread = exact.before(residual, norm)
        self.hidden, spread = exact.linear(normed, spread, f"{self._block}feed_forward.up")
        self.active, slope = ACTIVATIONS[exact.config.activation](self.hidden)
        spread = _length(self.active) + _largest(slope) * spread
        added, spread = exact.linear(self.active, spread, f"{self._block}feed_forward.down")
        self._made["output"], self.reach["output"] = exact.add(residual, added, spread, norm)


def _length(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.sqrt(np.einsum("...c,...c->...", x, x))[..., None]  # type: ignore[no-any-return]


def _largest(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.abs(x).max(axis=-1, keepdims=True)  # type: ignore[no-any-return]
