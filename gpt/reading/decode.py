"""One more character for each of B streams: the reader's forward, made for a single position.

The same model in another arithmetic. What the layers write is allocated once. The weights and
biases of layer norms, and their centring, are folded into the matrices before and after them, since
whatever reads the stream reads it through a norm (after Elhage et al. 2021). Queries and keys turn
as complex numbers. Tests hold it to the reader, which every checkpoint's probe proves. Tensor
names as in reader.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.reading.gpt import Cache, Reader
from gpt.reading.layers import ACTIVATIONS, EPSILON, Activation, Array
from gpt.reading.positions import Table

ROWS = 384  # of activations that a core's own cache holds
FIRST_ROOM = 1024  # positions that keys and values are kept for at first
Integers = npt.NDArray[np.integer[Any]]


class CachedDecoder:
    """Decodes B streams at once, one character a step. `start` fixes B."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.config = reader.config
        self._make_room(streams=0, positions=0)

    def twin(self) -> CachedDecoder:
        """Another decoder of the same weights."""
        other = CachedDecoder(self._reader)
        other._weights = self._weights
        return other

    def start(self, ids: Integers) -> Array:
        """(B, n) ids -> (B, vocab_size) logits of what follows; forgets what came before."""
        if len(ids) != len(self._cache.ids) or ids.shape[1] > self._cache.room:
            self._make_room(*ids.shape)
        self._cache.length = ids.shape[1]
        self._cache.ids[:, : ids.shape[1]] = ids
        at_once = max(1, ROWS // ids.shape[1])  # streams whose activations stay near the core
        groups = [slice(first, first + at_once) for first in range(0, len(ids), at_once)]
        return np.concatenate([self._read(ids[group], group) for group in groups])

    def step(self, ids: Integers) -> Array:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of what follows."""
        if self._cache.length == self._cache.room:
            self._grow()
        weights, buffers, cache = self._weights, self._buffers, self._cache
        x = buffers.stream
        x[:] = self._reader.embed(ids[:, None], cache)[:, 0]
        if weights.centred:
            x -= np.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]
        bias = self._reader.position.bias(slice(cache.length, cache.length + 1))  # (H, 1, S)
        by_key = None if bias is None else bias.swapaxes(1, 2)
        for number, layer in enumerate(weights.layers):
            buffers.normalise()
            layer.qkv(buffers.normed, buffers.packed)
            self._attend(number, by_key)
            layer.proj(buffers.concat, buffers.written)
            x += buffers.written
            buffers.normalise()
            layer.up(buffers.normed, buffers.hidden)
            active = self._activation(buffers.hidden, buffers.scratch)
            layer.down(active, buffers.written)
            x += buffers.written
        cache.length += 1
        buffers.normalise()
        logits = np.empty((len(x), self.config.vocab_size), x.dtype)
        weights.output(buffers.normed, logits)
        return logits

    def _read(self, ids: Integers, streams: slice) -> Array:
        """(b, T) first characters of some streams -> (b, vocab_size) logits of what follows.

        Of the last layer, only what the last position receives is computed.
        """
        weights, config, T = self._weights, self.config, ids.shape[1]
        shape = (len(ids), T, 3, config.n_head, config.head_size)
        future = np.triu(np.full((T, T), -np.inf, self._reader.dtype), k=1)
        bias = self._reader.position.bias(slice(0, T))
        added = future if bias is None else future + bias  # (T, T) or (H, T, T)
        x = self._reader.embed(ids).reshape(-1, config.n_embd)  # (b·T, C)
        if weights.centred:
            x = x - x.mean(axis=-1, keepdims=True)
        for number, layer in enumerate(weights.layers):
            qkv = layer.qkv(_normed(x)).reshape(len(ids), T, -1)
            self._turn(qkv, slice(0, T), T)
            packed = qkv.reshape(shape)
            keys, values = (packed[:, :, n].swapaxes(1, 2) for n in (1, 2))  # (b, H, T, D)
            self._cache.keys[number, streams, :, :T] = keys
            self._cache.values[number, streams, :, :T] = values
            first = T - 1 if number == config.n_layer - 1 else 0
            queries = packed[:, first:, 0].swapaxes(1, 2)
            scores = queries @ keys.swapaxes(2, 3)  # (b, H, T or 1, T)
            scores += added[..., first:, :]
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            context = scores @ values  # (b, H, T or 1, D)
            context /= scores.sum(axis=-1, keepdims=True)
            concat = context.swapaxes(1, 2).reshape(-1, config.n_embd)
            x = x.reshape(len(ids), T, -1)[:, first:].reshape(concat.shape) + layer.proj(concat)
            x += layer.down(self._activation(layer.up(_normed(x)), None))
        return weights.output(_normed(x))

    def _turn(self, packed: Array, positions: int | slice, end: int) -> None:
        """(…, 3C) queries, keys and values: the first two as they enter the products.

        positions: of what `packed` holds, all before `end`.
        """
        if self.config.qk_norm:
            by_head = (*packed.shape[:-1], 3, self.config.n_head, self.config.head_size)
            both = packed.reshape(by_head)[..., :2, :, :]
            mean_square = np.einsum("...d,...d->...", both, both)[..., None] / both.shape[-1]
            both /= np.sqrt(mean_square + EPSILON, dtype=both.dtype)
        turns = self._weights.turns(end)
        packed.view(turns.dtype)[..., : turns.shape[-1]] *= turns[positions]

    def _make_room(self, streams: int, positions: int) -> None:
        """For so many streams and at least so many positions."""
        config, dtype = self.config, self._reader.dtype
        self._cache = Cache(config, streams, dtype, max(FIRST_ROOM, positions))
        self._buffers = _Buffers(config, streams, dtype, self._cache.room)

    def _grow(self) -> None:
        """Room for twice as many positions; what is cached stays."""
        old = self._cache
        self._make_room(len(old.ids), 2 * old.room)
        new, self._cache.length = self._cache, old.length
        new.keys[:, :, :, : old.length] = old.keys
        new.values[:, :, :, : old.length] = old.values
        new.ids[:, : old.length] = old.ids

    @cached_property
    def _weights(self) -> _Weights:
        return _fold(self._reader)

    @cached_property
    def _activation(self) -> Activation:
        return ACTIVATIONS[self.config.activation]

    def _attend(self, layer: int, bias: Array | None) -> None:
        """Packed queries, keys and values -> the heads' contexts, side by side in `concat`.

        bias: (H, S, 1), added to the scores.
        """
        cache, buffers, end = self._cache, self._buffers, self._cache.length + 1
        self._turn(buffers.packed, end - 1, end)
        queries, keys, values = buffers.heads
        cache.keys[layer, :, :, end - 1] = keys
        cache.values[layer, :, :, end - 1] = values
        scores = buffers.scores[:, :, :end]  # (B, H, S, 1)
        np.matmul(cache.keys[layer, :, :, :end], queries[..., None], out=scores)
        if bias is not None:
            scores += bias
        np.maximum.reduce(scores, axis=2, keepdims=True, out=buffers.largest)
        scores -= buffers.largest
        np.exp(scores, out=scores)
        np.add.reduce(scores, axis=2, keepdims=True, out=buffers.total)
        weights, context = scores[..., 0][:, :, None], buffers.context  # (B, H, 1, S or D)
        np.matmul(weights, cache.values[layer, :, :, :end], out=context)
        context /= buffers.total


@dataclass(frozen=True)
class _Linear:
    """A matrix as (columns, rows), so that its rows are read one after the other; and a bias."""

    matrix: Array
    bias: Array | None

    def __call__(self, x: Array, out: Array | None = None) -> Array:
        """(B, columns) -> (B, rows)"""
        y: Array = np.matmul(x, self.matrix, out=out)
        if self.bias is not None:
            y += self.bias
        return y


@dataclass(frozen=True)
class _Layer:
    qkv: _Linear
    proj: _Linear
    up: _Linear
    down: _Linear


@dataclass(frozen=True)
class _Weights:
    """What a step multiplies with."""

    layers: tuple[_Layer, ...]
    output: _Linear
    turns: Table  # rows (C complex or 2C,) that queries and keys are multiplied by
    centred: bool  # whether the stream's mean is left out


def _fold(reader: Reader) -> _Weights:
    """The reader's weights with its norms' in them."""
    config, centred = reader.config, reader.config.norm == "layer"

    def reads(name: str, norm: str) -> _Linear:
        """W(n·w + b) = (W∘w)n + Wb, where n is the stream, centred and of length √C."""
        weight, bias = reader.linear(name)
        if centred:
            gain, shift = reader.linear(norm)
            if shift is not None:
                shift = weight @ shift
                bias = shift if bias is None else bias + shift
            weight = weight * gain
        matrix = np.multiply(weight.T, config.n_embd**0.5, order="C", dtype=weight.dtype)
        return _Linear(matrix, bias)

    def writes(name: str) -> _Linear:
        """Without what moves all coordinates alike: no norm lets it pass."""
        weight, bias = reader.linear(name)
        if centred:
            weight = weight - weight.mean(axis=0)
            bias = None if bias is None else bias - bias.mean()
        return _Linear(np.ascontiguousarray(weight.T), bias)

    layers = [
        _Layer(
            qkv=reads(f"{block}.attention.qkv", f"{block}.norm1"),
            proj=writes(f"{block}.attention.proj"),
            up=reads(f"{block}.feed_forward.up", f"{block}.norm2"),
            down=writes(f"{block}.feed_forward.down"),
        )
        for block in (f"blocks.{number}" for number in range(config.n_layer))
    ]
    output = reads("token_embedding" if config.tied else "lm_head", "norm")
    return _Weights(
        layers=tuple(layers),
        output=output,
        turns=reader.position.factors(),
        centred=centred,
    )


class _Buffers:
    """What a step writes: arrays, and views of them."""

    def __init__(
        self, config: ModelConfig, batch: int, dtype: np.dtype[Any], positions: int
    ) -> None:
        heads, size, width = config.n_head, config.head_size, config.n_embd
        self.stream = np.empty((batch, width), dtype)
        self._row, self._column = self.stream[:, None], self.stream[:, :, None]
        self._square = np.empty((batch, 1, 1), dtype)
        self._length = self._square[:, 0]
        self.normed = np.empty((batch, width), dtype)
        self.packed = np.empty((batch, 3 * width), dtype)
        by_head = self.packed.reshape(batch, 3, heads, size)
        self.heads = by_head[:, 0], by_head[:, 1], by_head[:, 2]  # each (B, H, D)
        self.scores = np.empty((batch, heads, positions, 1), dtype)
        self.largest = np.empty((batch, heads, 1, 1), dtype)
        self.total = np.empty((batch, heads, 1, 1), dtype)
        self.context = np.empty((batch, heads, 1, size), dtype)
        self.concat = self.context.reshape(batch, width)
        self.written = np.empty((batch, width), dtype)
        self.hidden = np.empty((batch, config.widened), dtype)
        self.scratch = np.empty_like(self.hidden)

    def normalise(self) -> None:
        """The stream, of length 1, into `normed`: x / sqrt(x·x + C·epsilon)."""
        np.matmul(self._row, self._column, out=self._square)
        self._square += EPSILON * self.stream.shape[1]
        np.sqrt(self._square, out=self._square)
        np.divide(self.stream, self._length, out=self.normed)


def stream_bytes(config: ModelConfig, positions: int) -> int:
    """The least memory that decoding a stream of so many positions takes.

    Keys, values and scores, in float32.
    """
    cache = 2 * config.n_layer * config.n_embd + config.n_head
    return 4 * min(positions, config.block_size) * cache


def _normed(x: Array) -> Array:
    """(n, C), each row of length 1, as `_Buffers.normalise` does."""
    square = np.einsum("nc,nc->n", x, x)[:, None] + x.dtype.type(EPSILON * x.shape[1])
    normed: Array = x / np.sqrt(square)
    return normed
