"""Predicts the next characters of B texts that grow (streams), with cached keys and values.

The decoder computes the same logits as the reader (gpt.py), but only for the new positions. Tests
compare the two, and every checkpoint's probe checks the reader.
The decoder folds the weights and biases of the layer norms, and their centring, into the adjacent
matrices (after Elhage et al. 2021). It applies rotary positions as products of complex numbers.
Every core computes its own texts or streams from start to end, so the cores need not synchronise
after every product. Every product uses one BLAS thread, because several threads lose much time
while another program uses a core (devices.limit_blas_threads).
Tensor names: B streams, T new characters, C n_embd, H heads, D head_size, S positions so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpt.config import ModelConfig
from gpt.devices import available_memory, cores
from gpt.errors import OutOfMemory
from gpt.reading.gpt import ACTIVATIONS, EPSILON, Array, Reader, centred
from gpt.vocabulary import Ids

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import LibController

ROWS = 384  # rows of activations that fit in a core's cache
FIRST_CAPACITY = 1024  # positions for which keys and values are allocated at the start
STREAM = 10_000  # bytes that a sample's Python objects take, such as random numbers and text
LEAST_STREAMS = 8  # fewest streams for a core; with fewer, another core saves no time

Item = TypeVar("Item")
Output = TypeVar("Output")


class CachedDecoder:
    """Predicts the next character of B streams at once. `start` sets B."""

    def __init__(self, reader: Reader, weights: _Weights | None = None) -> None:
        self._reader, self.config = reader, reader.config
        self._weights = weights or _Weights(reader)
        self._cache = self._empty_cache(0, 0)
        self._length = 0  # positions so far

    def make_twin(self) -> CachedDecoder:
        """Returns a decoder with the same weights and streams of its own."""
        return CachedDecoder(self._reader, self._weights)

    def start(self, ids: Ids) -> Array:
        """Starts B new streams: (B, n) ids -> (B, vocab_size) logits of the next characters."""
        count, T = ids.shape
        if count != self._cache.shape[2] or self._capacity < T:
            self._cache = self._empty_cache(count, T)
        self._length = 0
        at_once = max(1, ROWS // T)  # streams
        groups = [slice(first, first + at_once) for first in range(0, count, at_once)]
        logits = np.concatenate([self._read(ids[group], group) for group in groups])
        self._length = T
        return logits

    def step(self, ids: Ids) -> Array:
        """Adds one id to every stream: (B,) ids -> (B, vocab_size) logits of the next ids."""
        if self._length == self._capacity:
            larger = self._empty_cache(len(ids), 2 * self._capacity)
            larger[..., : self._length, :] = self._cache
            self._cache = larger
        logits = self._read(ids[:, None], slice(None))
        self._length += 1
        return logits

    @property
    def _capacity(self) -> int:
        """Positions for which memory is allocated, at most block_size."""
        return int(self._cache.shape[4])

    def _empty_cache(self, count: int, positions: int) -> Array:
        """Allocates (2, layers, B, H, capacity, D) keys and values."""
        config = self.config
        capacity = min(max(FIRST_CAPACITY, positions), config.block_size)
        shape = (2, config.n_layer, count, config.n_head, capacity, config.head_size)
        return np.empty(shape, self._reader.dtype)

    def _read(self, ids: Ids, group: slice) -> Array:
        """Adds T characters to a group of streams: (b, T) ids -> (b, vocab_size) logits of the
        characters after them. The last layer is computed for the last position only.
        """
        weights, config, (b, T) = self._weights, self.config, ids.shape
        at = slice(self._length, self._length + T)
        turns = self._reader.position.decoder_factors(at.stop)[at]
        x = centred(self._reader.embed(ids, at.start).reshape(b * T, -1))
        mask = None  # (T, S), added to scores
        if T > 1:
            mask = np.triu(np.full((T, at.stop), -np.inf, x.dtype), k=at.start + 1)
        for layer, (attention, feed_forward) in enumerate(weights.layers):
            packed = attention.reads(_normed(x)).reshape(b, T, -1)  # (b, T, 3C)
            packed.view(turns.dtype)[..., : turns.shape[-1]] *= turns  # queries and keys
            by_head = packed.reshape(b, T, 3, config.n_head, config.head_size)
            queries, keys, values = by_head.transpose(2, 0, 3, 1, 4)  # (b, H, T, D)
            past = self._cache[:, layer, group, :, : at.stop]
            past[0, :, :, at], past[1, :, :, at] = keys, values
            if layer == config.n_layer - 1 and T > 1:
                x, queries = x.reshape(b, T, -1)[:, -1], queries[:, :, -1:]
                mask = None
            x = x + attention.writes(_attend(queries, past, mask))
            if feed_forward:
                x = x + feed_forward.writes(weights.activation(feed_forward.reads(_normed(x))))
        return weights.output(_normed(x))


@dataclass(frozen=True)
class _Linear:
    """A linear layer. Its matrix is (in, out), so that products read the memory in order."""

    matrix: Array
    bias: Array | None

    def __call__(self, x: Array) -> Array:
        """(n, in) -> (n, out)"""
        y: Array = x @ self.matrix
        if self.bias is not None:
            y += self.bias
        return y


@dataclass(frozen=True)
class _Sublayer:
    """The first and the last linear layer of attention or of feed-forward."""

    reads: _Linear
    writes: _Linear


class _Weights:
    """The reader's weights, into which those of its norms are folded. layers: the attention and the
    feed-forward of every layer. The feed-forward is None in a model without feed-forward.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader, config = reader, reader.config
        self.activation = ACTIVATIONS[config.activation]
        self.layers = list[tuple[_Sublayer, _Sublayer | None]]()
        for block in (f"blocks.{layer}." for layer in range(config.n_layer)):
            attention = self._sublayer(block, "attention.qkv", "attention.proj", "norm1")
            feed_forward = None
            if config.feed_forward:
                feed_forward = self._sublayer(
                    block, "feed_forward.up", "feed_forward.down", "norm2"
                )
            self.layers.append((attention, feed_forward))
        self.output = self._reads(reader.output, "norm")

    def _sublayer(self, block: str, reads: str, writes: str, norm: str) -> _Sublayer:
        return _Sublayer(self._reads(block + reads, block + norm), self._writes(block + writes))

    def _reads(self, name: str, norm: str) -> _Linear:
        """Folds a norm into the linear layer `name` after it: W(n·w + b) = (W∘w)n + Wb. n is the
        residual stream, centred and scaled to length 1.
        """
        weight, bias = self._reader.weight_and_bias(name)
        gain, shift = self._reader.weight_and_bias(norm)
        gain = gain * gain.dtype.type(len(gain) ** 0.5)  # because n has length 1, and not √C
        if shift is not None:
            shift = weight @ shift
            bias = shift if bias is None else bias + shift
        return _Linear(np.ascontiguousarray((weight * gain).T), bias)

    def _writes(self, name: str) -> _Linear:
        """Subtracts the mean over the output coordinates, which the next norm removes anyway."""
        weight, bias = self._reader.weight_and_bias(name)
        weight = weight - weight.mean(axis=0)
        bias = None if bias is None else bias - bias.mean()
        return _Linear(np.ascontiguousarray(weight.T), bias)


def require_memory(config: ModelConfig, n: int, characters: int) -> None:
    """Raises OutOfMemory if n streams of `characters` need more memory than the machine has. Linux
    grants more memory than it has, and kills a process that uses too much.
    """
    positions = min(characters, config.block_size)
    cache = 2 * config.n_layer * config.n_embd + config.n_head  # keys, values and scores, float32
    stream, has = STREAM + 8 * positions + 4 * positions * cache, available_memory()
    if has is not None and n * stream > has:
        raise OutOfMemory(
            f"out of memory: {n:,} samples at once need {n * stream / 2**30:,.1f} GB, "
            f"{has / 2**30:,.1f} GB are free; try -n {max(1, has // (2 * stream))}"
        )


def _normed(x: Array) -> Array:
    """(n, C) -> (n, C), with each row scaled to length 1: x / sqrt(x·x + C·epsilon)."""
    square = x[0] @ x[0] if len(x) == 1 else np.einsum("nc,nc->n", x, x)[:, None]
    normed: Array = x / np.sqrt(square + x.dtype.type(EPSILON * x.shape[1]))
    return normed


def _attend(queries: Array, past: Array, mask: Array | None) -> Array:
    """(b, H, T, D) queries, (2, b, H, S, D) past keys and values -> (b·T, C) contexts of all
    heads. mask: (T, S), added to the scores; −inf where a query may not attend to a key.
    """
    keys, values = past
    scores: Array = queries @ keys.swapaxes(2, 3)
    if mask is not None:
        scores += mask
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    context = scores @ values  # (b, H, T, D)
    context /= np.add.reduce(scores, axis=-1, keepdims=True)
    b, H, T, D = context.shape
    concat: Array = context.swapaxes(1, 2).reshape(b * T, H * D)
    return concat


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets every matrix product in a `with` block, or in a decorated function, use one thread."""
    counts = [(library, library.get_num_threads()) for library in _blas()]
    changed = [(library, threads) for library, threads in counts if threads != 1]
    try:
        for library, _ in changed:
            library.set_num_threads(1)
        yield
    finally:
        for library, threads in changed:
            library.set_num_threads(threads)


class ParallelDecoder:
    """A gpt.Decoder that divides the streams among the cores. `start` sets the number of cores."""

    def __init__(self, reader: Reader) -> None:
        self.config, self._decoders, self._shares = reader.config, [CachedDecoder(reader)], 1

    def make_twin(self) -> ParallelDecoder:
        twin = copy(self)
        twin._decoders = [self._decoders[0].make_twin()]
        return twin

    def start(self, ids: Ids) -> Array:
        self._shares = max(1, min(len(ids) // LEAST_STREAMS, cores()))
        while len(self._decoders) < self._shares:
            self._decoders.append(self._decoders[0].make_twin())
        return self._in_parallel(CachedDecoder.start, ids)

    def step(self, ids: Ids) -> Array:
        return self._in_parallel(CachedDecoder.step, ids)

    @one_blas_thread()
    def _in_parallel(self, work: Callable[[CachedDecoder, Ids], Array], ids: Ids) -> Array:
        if self._shares == 1:
            return work(self._decoders[0], ids)
        shares = np.array_split(ids, self._shares)
        return np.concatenate(list(self._pool.map(work, self._decoders, shares)))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return _pool_of(cores())


@one_blas_thread()
def map_on_cores(work: Callable[[Item], Output], items: Sequence[Item]) -> list[Output]:
    """Returns `work(item)` for all items, in order. A core that is free takes the next item."""
    threads = min(len(items), cores())
    if threads <= 1:
        return [work(item) for item in items]
    with _pool_of(threads) as pool:
        return list(pool.map(work, items))


def _pool_of(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(threads, "gptx-decoder")


@cache
def _blas() -> list[LibController]:
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController().select(user_api="blas")
    return list(controller.lib_controllers)
