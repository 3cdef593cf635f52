"""Decodes one more character for each of B streams: the reader's forward (gpt.py), for one
position.

Arrays for the layers' results are allocated once. The weights and biases of layer norms, and their
centring, are folded into the matrices before and after them, since every layer normalises the
stream first (after Elhage et al. 2021). Rotary positions multiply complex numbers. Tests compare it
with the reader, which every checkpoint's probe checks.
Tensor names: B streams, T first characters, C n_embd, H heads, D head_size, S positions so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpt.config import ModelConfig
from gpt.devices import available_memory
from gpt.errors import OutOfMemory
from gpt.reading.gpt import Reader
from gpt.reading.layers import ACTIVATIONS, EPSILON, Array
from gpt.vocabulary import Ids

ROWS = 384  # rows of activations that fit in a core's cache
FIRST_ROOM = 1024  # positions that keys and values are allocated for at the start
STREAM = 10_000  # bytes of Python objects for a sample: random numbers, text


class CachedDecoder:
    """Decodes B streams at once, one character a step. `start` fixes B."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.config = reader.config
        self._streams = _Streams(reader, count=0, positions=0)

    def twin(self) -> CachedDecoder:
        """Another decoder of the same weights."""
        other = CachedDecoder(self._reader)
        other._weights = self._weights
        return other

    def start(self, ids: Ids) -> Array:
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of the next character."""
        count, T = ids.shape
        if count != len(self._streams.x) or self._streams.room < T:
            self._streams = _Streams(self._reader, count, T)
        self._streams.length = T
        at_once = max(1, ROWS // T)  # streams whose activations fit the cache
        groups = [slice(first, first + at_once) for first in range(0, count, at_once)]
        return np.concatenate([self._read(ids[group], group) for group in groups])

    def step(self, ids: Ids) -> Array:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of the next character."""
        if self._streams.length == self._streams.room:
            self._grow()
        weights, streams = self._weights, self._streams
        at = slice(streams.length, streams.length + 1)
        x = streams.x
        x[:] = self._reader.embed(ids[:, None], at.start)[:, 0]
        if weights.centred:
            x -= np.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]
        bias = self._reader.position.bias(at)  # (H, 1, S)
        by_key = None if bias is None else bias.swapaxes(1, 2)
        for number, (qkv, proj, up, down) in enumerate(weights.layers):
            streams.normalise()
            qkv(streams.normed, streams.packed)
            self._attend(number, at, by_key)
            proj(streams.concat, streams.written)
            x += streams.written
            streams.normalise()
            up(streams.normed, streams.hidden)
            active = weights.activation(streams.hidden, streams.scratch)
            down(active, streams.written)
            x += streams.written
        streams.length += 1
        streams.normalise()
        return weights.output(streams.normed)

    def _attend(self, layer: int, at: slice, bias: Array | None) -> None:
        """Packed queries, keys and values -> the heads' contexts, side by side in `concat`.

        bias: (H, S, 1), added to the scores.
        """
        streams, end = self._streams, at.stop
        self._turn(streams.packed, at)
        queries, keys, values = streams.heads
        streams.keys[layer, :, :, end - 1] = keys
        streams.values[layer, :, :, end - 1] = values
        scores = streams.scores[:, :, :end]  # (B, H, S, 1)
        np.matmul(streams.keys[layer, :, :, :end], queries[..., None], out=scores)
        if bias is not None:
            scores += bias
        np.maximum.reduce(scores, axis=2, keepdims=True, out=streams.largest)
        scores -= streams.largest
        np.exp(scores, out=scores)
        np.add.reduce(scores, axis=2, keepdims=True, out=streams.total)
        weights, context = scores[..., 0][:, :, None], streams.context  # (B, H, 1, S or D)
        np.matmul(weights, streams.values[layer, :, :, :end], out=context)
        context /= streams.total

    def _read(self, ids: Ids, group: slice) -> Array:
        """(b, T) first characters of a group of streams -> (b, vocab_size) logits of the next
        character. The last layer is computed for the last position only.
        """
        weights, config, T = self._weights, self.config, ids.shape[1]
        shape = (len(ids), T, 3, config.n_head, config.head_size)
        future = np.triu(np.full((T, T), -np.inf, self._reader.dtype), k=1)
        bias = self._reader.position.bias(slice(0, T))
        added = future if bias is None else future + bias  # (T, T) or (H, T, T)
        x = self._reader.embed(ids).reshape(-1, config.n_embd)  # (b·T, C)
        if weights.centred:
            x = x - x.mean(axis=-1, keepdims=True)
        for number, (qkv, proj, up, down) in enumerate(weights.layers):
            packed = qkv(_normed(x)).reshape(len(ids), T, -1)
            self._turn(packed, slice(0, T))
            queries, keys, values = packed.reshape(shape).transpose(2, 0, 3, 1, 4)  # (b, H, T, D)
            self._streams.keys[number, group, :, :T] = keys
            self._streams.values[number, group, :, :T] = values
            first = T - 1 if number == config.n_layer - 1 else 0
            scores = queries[:, :, first:] @ keys.swapaxes(2, 3)  # (b, H, T or 1, T)
            scores += added[..., first:, :]
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            context = scores @ values  # (b, H, T or 1, D)
            context /= scores.sum(axis=-1, keepdims=True)
            concat = context.swapaxes(1, 2).reshape(-1, config.n_embd)
            x = x.reshape(len(ids), T, -1)[:, first:].reshape(concat.shape) + proj(concat)
            x += down(weights.activation(up(_normed(x)), None))
        return weights.output(_normed(x))

    def _turn(self, packed: Array, at: slice) -> None:
        """(…, 3C) queries, keys and values: queries and keys normalised and turned as the model
        requires.

        at: the positions of `packed`.
        """
        if self.config.qk_norm:
            by_head = (*packed.shape[:-1], 3, self.config.n_head, self.config.head_size)
            both = packed.reshape(by_head)[..., :2, :, :]
            mean_square = np.einsum("...d,...d->...", both, both)[..., None] / both.shape[-1]
            both /= np.sqrt(mean_square + EPSILON, dtype=both.dtype)
        turns = self._weights.turns(at.stop)
        packed.view(turns.dtype)[..., : turns.shape[-1]] *= turns[at]

    def _grow(self) -> None:
        """Allocates room for twice as many positions and copies the cache."""
        old, length = self._streams, self._streams.length
        new = self._streams = _Streams(self._reader, len(old.x), 2 * old.room)
        new.length = length
        new.keys[:, :, :, :length] = old.keys
        new.values[:, :, :, :length] = old.values

    @cached_property
    def _weights(self) -> _Weights:
        return _Weights(self._reader)


@dataclass(frozen=True)
class _Linear:
    """A matrix stored as (columns, rows), which products read in sequence; and a bias."""

    matrix: Array
    bias: Array | None

    def __call__(self, x: Array, out: Array | None = None) -> Array:
        """(B, columns) -> (B, rows)"""
        y: Array = np.matmul(x, self.matrix, out=out)
        if self.bias is not None:
            y += self.bias
        return y


class _Weights:
    """The reader's weights, with the weights of its norms folded in.

    layers: qkv, proj, up and down of each layer. centred: whether the stream has mean 0. turns:
    rows, (C,) complex or (2C,), by which queries and keys are multiplied.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader, config = reader, reader.config
        self.centred = config.norm == "layer"
        self.activation = ACTIVATIONS[config.activation]
        self.turns = reader.position.factors()
        self.layers = [
            (
                self._reads(f"{block}.attention.qkv", f"{block}.norm1"),
                self._writes(f"{block}.attention.proj"),
                self._reads(f"{block}.feed_forward.up", f"{block}.norm2"),
                self._writes(f"{block}.feed_forward.down"),
            )
            for block in (f"blocks.{number}" for number in range(config.n_layer))
        ]
        self.output = self._reads("token_embedding" if config.tied else "lm_head", "norm")

    def _reads(self, name: str, norm: str) -> _Linear:
        """W(n·w + b) = (W∘w)n + Wb, where n is the stream, centred and of length √C."""
        weight, bias = self._reader.linear(name)
        if self.centred:
            gain, shift = self._reader.linear(norm)
            if shift is not None:
                shift = weight @ shift
                bias = shift if bias is None else bias + shift
            weight = weight * gain
        scale = self._reader.config.n_embd**0.5
        return _Linear(np.multiply(weight.T, scale, order="C", dtype=weight.dtype), bias)

    def _writes(self, name: str) -> _Linear:
        """Output weights less their mean over the coordinates, which every norm removes."""
        weight, bias = self._reader.linear(name)
        if self.centred:
            weight = weight - weight.mean(axis=0)
            bias = None if bias is None else bias - bias.mean()
        return _Linear(np.ascontiguousarray(weight.T), bias)


class _Streams:
    """The state of B streams, and the arrays that a step writes, with views of them.

    room: positions that memory is allocated for, at most block_size. length: positions so far.
    """

    def __init__(self, reader: Reader, count: int, positions: int) -> None:
        config, dtype = reader.config, reader.dtype
        heads, size, width = config.n_head, config.head_size, config.n_embd
        self.room, self.length = min(max(FIRST_ROOM, positions), config.block_size), 0
        shape = (config.n_layer, count, heads, self.room, size)
        self.keys, self.values = np.empty(shape, dtype), np.empty(shape, dtype)
        self.x = np.empty((count, width), dtype)  # the stream, to which layers add
        self._row, self._column = self.x[:, None], self.x[:, :, None]
        self._square = np.empty((count, 1, 1), dtype)
        self._length = self._square[:, 0]
        self.normed = np.empty((count, width), dtype)
        self.packed = np.empty((count, 3 * width), dtype)
        self.heads = tuple(self.packed.reshape(count, 3, heads, size).swapaxes(0, 1))  # (B, H, D)
        self.scores = np.empty((count, heads, self.room, 1), dtype)
        self.largest = np.empty((count, heads, 1, 1), dtype)
        self.total = np.empty((count, heads, 1, 1), dtype)
        self.context = np.empty((count, heads, 1, size), dtype)
        self.concat = self.context.reshape(count, width)
        self.written = np.empty((count, width), dtype)
        self.hidden = np.empty((count, config.widened), dtype)
        self.scratch = np.empty_like(self.hidden)

    def normalise(self) -> None:
        """Writes x scaled to length 1 into `normed`: x / sqrt(x·x + C·epsilon)."""
        np.matmul(self._row, self._column, out=self._square)
        self._square += EPSILON * self.x.shape[1]
        np.sqrt(self._square, out=self._square)
        np.divide(self.x, self._length, out=self.normed)


def require_memory(config: ModelConfig, n: int, characters: int, option: str = "-n") -> None:
    """Raises OutOfMemory if n streams of so many characters need more memory than the machine has.

    Linux grants memory that it does not have, and kills the process that uses it. Also checked
    for a device, as numpy must be able to replace it.
    """
    positions = min(characters, config.block_size)
    cache = 2 * config.n_layer * config.n_embd + config.n_head  # keys, values and scores, float32
    each, has = STREAM + 8 * positions + 4 * positions * cache, available_memory()
    if has is not None and n * each > has:
        raise OutOfMemory(
            f"out of memory: {n:,} samples at once need {n * each / 2**30:,.1f} GB, "
            f"{has / 2**30:,.1f} GB are free; try {option} {max(1, has // (2 * each))}"
        )


def _normed(x: Array) -> Array:
    """(n, C), each row of length 1, as `_Streams.normalise` does."""
    square = np.einsum("nc,nc->n", x, x)[:, None] + x.dtype.type(EPSILON * x.shape[1])
    normed: Array = x / np.sqrt(square)
    return normed
