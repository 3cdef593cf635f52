"""One more character for each of B streams: the reader's forward, made for a single position.

The same model in another arithmetic. Every array but the logits is allocated once. The weights and
biases of layer norms, and their centring, are folded into the matrices before and after them, since
whatever reads the stream reads it through a norm (after Elhage et al. 2021). Queries and keys turn
as complex numbers. The characters given at the start go through the reader itself, the one that
every checkpoint's probe proves, and both fill the same cache. Tensor names as in reader.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.reading.reader import EPSILON, Array, Cache, Reader

Integers = npt.NDArray[np.integer[Any]]


class CachedDecoder:
    """Decodes B streams at once, one character a step. `start` fixes B."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.config = reader.config
        self._cache, self._buffers = _room_for(reader, 0)

    def start(self, ids: Integers) -> Array:
        """(B, n) ids -> (B, vocab_size) logits of what follows; forgets what came before."""
        if len(ids) != len(self._cache.ids):
            self._cache, self._buffers = _room_for(self._reader, len(ids))
        self._cache.length = 0
        return self._reader.logits(self._reader.forward(ids, self._cache)[:, -1])

    def step(self, ids: Integers) -> Array:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of what follows."""
        weights, buffers, cache = self._weights, self._buffers, self._cache
        x = self._reader.embed(ids[:, None], cache)[:, 0]  # (B, C)
        if weights.centred:
            x = x - x.mean(axis=-1, keepdims=True)
        for number, layer in enumerate(weights.layers):
            _normed(x, buffers)
            layer.qkv.apply(buffers.normed, buffers.packed)
            self._attend(number)
            layer.proj.apply(buffers.concat, buffers.written)
            x += buffers.written
            _normed(x, buffers)
            layer.up.apply(buffers.normed, buffers.hidden)
            self._activation(buffers.hidden, buffers.scratch)
            layer.down.apply(buffers.hidden, buffers.written)
            x += buffers.written
        cache.length += 1
        _normed(x, buffers)
        logits = np.empty((len(x), self.config.vocab_size), x.dtype)
        weights.output.apply(buffers.normed, logits)
        return logits

    @cached_property
    def _weights(self) -> _Weights:
        return _fold(self._reader)

    @cached_property
    def _activation(self) -> Callable[[Array, Array], None]:
        return ACTIVATIONS[self.config.activation]

    def _attend(self, layer: int) -> None:
        """Packed queries, keys and values -> the heads' contexts, side by side in `concat`."""
        cache, buffers, end = self._cache, self._buffers, self._cache.length + 1
        both = buffers.queries_and_keys  # (B, 2, H, D)
        if self.config.qk_norm:
            size = self.config.head_size
            mean_square = np.einsum("bshd,bshd->bsh", both, both)[..., None] / size
            both /= np.sqrt(mean_square + EPSILON, dtype=both.dtype)
        if self._weights.turns is not None:
            buffers.turning *= self._weights.turns[end - 1]
        queries, keys, values = buffers.heads
        cache.keys[layer, :, :, end - 1] = keys
        cache.values[layer, :, :, end - 1] = values
        queries *= self._weights.scale
        scores = buffers.scores[:, :, :end]  # (B, H, S, 1)
        np.matmul(cache.keys[layer, :, :, :end], queries[..., None], out=scores)
        np.max(scores, axis=2, keepdims=True, out=buffers.largest)
        scores -= buffers.largest
        np.exp(scores, out=scores)
        np.sum(scores, axis=2, keepdims=True, out=buffers.total)
        weights, context = scores[..., 0][:, :, None], buffers.context  # (B, H, 1, S or D)
        np.matmul(weights, cache.values[layer, :, :, :end], out=context)
        context /= buffers.total


@dataclass(frozen=True)
class _Linear:
    """A matrix as (columns, rows), so that its rows are read one after the other; and a bias."""

    matrix: Array
    bias: Array | None

    def apply(self, x: Array, out: Array) -> None:
        """(B, columns) -> (B, rows)"""
        np.matmul(x, self.matrix, out=out)
        if self.bias is not None:
            out += self.bias


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
    turns: Array | None  # (block_size, D/2) complex, where positions turn
    scale: float
    centred: bool  # whether the stream's mean is left out


def _fold(reader: Reader) -> _Weights:
    """The reader's weights with its norms' in them."""
    config, centred = reader.config, reader.config.norm == "layer"

    def reads(name: str, norm: str) -> _Linear:
        """W(n·w + b) = (W∘w)n + Wb, where n is the stream centred and of length 1."""
        weight, bias = reader.linear(name)
        if centred:
            gain, shift = reader.linear(norm)
            if shift is not None:
                shift = weight @ shift
                bias = shift if bias is None else bias + shift
            weight = weight * gain
        return _Linear(np.ascontiguousarray(weight.T), bias)

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
    rotary = reader.rotary
    return _Weights(
        layers=tuple(layers),
        output=output,
        turns=None if rotary is None else rotary[0] + 1j * rotary[1],
        scale=config.head_size**-0.5,
        centred=centred,
    )


class _Buffers:
    """What a step writes: arrays, and views of them."""

    def __init__(self, config: Any, batch: int, dtype: np.dtype[Any]) -> None:
        heads, size, width = config.n_head, config.head_size, config.n_embd
        self.normed = np.empty((batch, width), dtype)
        self.square = np.empty((batch, 1), dtype)
        self.packed = np.empty((batch, 3 * width), dtype)
        by_head = self.packed.reshape(batch, 3, heads, size)
        self.queries_and_keys = by_head[:, :2]
        if size % 2 == 0:
            complex_type = np.result_type(dtype, np.complex64)
            turning = self.packed.view(complex_type).reshape(batch, 3, heads, size // 2)
            self.turning = turning[:, :2]
        self.heads = by_head[:, 0], by_head[:, 1], by_head[:, 2]  # each (B, H, D)
        self.scores = np.empty((batch, heads, config.block_size, 1), dtype)
        self.largest = np.empty((batch, heads, 1, 1), dtype)
        self.total = np.empty((batch, heads, 1, 1), dtype)
        self.context = np.empty((batch, heads, 1, size), dtype)
        self.concat = self.context.reshape(batch, width)
        self.written = np.empty((batch, width), dtype)
        self.hidden = np.empty((batch, 4 * width), dtype)
        self.scratch = np.empty((batch, 4 * width), dtype)


def _room_for(reader: Reader, batch: int) -> tuple[Cache, _Buffers]:
    cache = Cache(reader.config, batch, reader.dtype)
    return cache, _Buffers(reader.config, batch, reader.dtype)


def _normed(x: Array, buffers: _Buffers) -> None:
    """x / sqrt(mean(x²) + epsilon) into `normed`."""
    square = buffers.square
    np.einsum("bc,bc->b", x, x, out=square[:, 0])
    square /= x.shape[-1]
    square += EPSILON
    np.sqrt(square, out=square)
    np.divide(x, square, out=buffers.normed)


def _relu(x: Array, scratch: Array) -> None:
    np.maximum(x, 0, out=x)


def _relu2(x: Array, scratch: Array) -> None:
    np.maximum(x, 0, out=x)
    np.multiply(x, x, out=x)


def _gelu(x: Array, scratch: Array) -> None:
    """The tanh form (Hendrycks & Gimpel 2016)."""
    np.multiply(x, x, out=scratch)
    scratch *= 0.044715
    scratch += 1
    scratch *= x
    scratch *= (2 / np.pi) ** 0.5
    np.tanh(scratch, out=scratch)
    scratch += 1
    scratch *= 0.5
    x *= scratch


#: Each changes its first argument; the second is room of the same size.
ACTIVATIONS: dict[str, Callable[[Array, Array], None]] = {
    "gelu": _gelu,
    "relu": _relu,
    "relu2": _relu2,
}
