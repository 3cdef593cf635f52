"""The trained model again, in numpy: one forward that can keep every stage, and a KV cache.

It shares no code with the torch model, which makes it a second opinion: a checkpoint's probe holds
the two together at every opening. Knows no text and no files.
Tensor names: B batch, T new positions, C n_embd, H heads, D head_size, S positions so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import Result, read_only
from gpt.config import ModelConfig
from gpt.devices import physical_memory
from gpt.errors import OutOfMemory
from gpt.reading.layers import ACTIVATIONS, NORMS, Array, rms_norm, softmax
from gpt.reading.ngram_embedding import ngram_rows
from gpt.reading.positions import POSITIONS

__all__ = ["Array", "Cache", "Change", "Reader", "Stages"]

MATRICES = 4  # scores, scaled, masked, weights
SMALL = 2**26  # bytes that any machine has


@dataclass(frozen=True)
class Stages(Result):
    """What one layer computed for (T,) characters, every array of heads per head first.

    stream: (T, C), what enters the layer. q, k, v: (H, T, D), as they enter the products
    (normalised and turned, where the model does so); scores = q·kᵀ, scaled = scores/√D, masked =
    scaled + the bias of positions that have one, and −inf above the diagonal, weights = softmax:
    (H, T, T); context = weights·v: (H, T, D); concat and proj: (T, C); residual = stream + proj,
    output = residual + feed-forward: (T, C).
    """

    stream: Array
    q: Array
    k: Array
    v: Array
    scores: Array
    scaled: Array
    masked: Array
    weights: Array
    context: Array
    concat: Array
    proj: Array
    residual: Array
    output: Array


#: What becomes of the heads' (B, H, T, D) contexts before they are projected.
Change = Callable[[Array], Array]


class Cache:
    """Keys and values of the positions so far, for every layer: (L, B, H, room, D).

    And their ids (B, room): an n-gram reaches back. room: positions there is memory for, at most
    block_size.
    """

    def __init__(
        self, config: ModelConfig, batch: int, dtype: npt.DTypeLike, room: int | None = None
    ) -> None:
        self.room = min(room or config.block_size, config.block_size)
        shape = (config.n_layer, batch, config.n_head, self.room, config.head_size)
        self.keys, self.values = np.empty(shape, dtype), np.empty(shape, dtype)
        self.ids = np.empty((batch, self.room), np.int64)
        self.length = 0


class Reader:
    """A GPT's parameters and its forward pass."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Array]) -> None:
        self.config = config
        self._tensors = {name: read_only(tensor) for name, tensor in tensors.items()}
        self.dtype = self._tensors["token_embedding.weight"].dtype
        self._norm = NORMS[config.norm]
        self._activation = ACTIVATIONS[config.activation]
        output = "token_embedding" if config.tied else "lm_head"
        self._output = np.ascontiguousarray(self._tensors[f"{output}.weight"].T)  # (C, vocab_size)
        self.position = POSITIONS[config.position](config, self._tensors, self.dtype)

    def forward(
        self, ids: npt.NDArray[Any], cache: Cache | None = None, keep: list[Stages] | None = None
    ) -> Array:
        """(B, T) ids -> (B, T, C): the stream after the last norm; `logits` is one product away.

        With a cache, the ids follow the cached positions, and are added to it. `keep` receives
        the Stages of each layer, for one text only. Raises ValueError for `keep` with B ≠ 1.
        """
        x = self.embed(ids, cache)
        for layer in range(self.config.n_layer):
            x = self.block(x, layer, cache, keep)
        if cache:
            cache.length += ids.shape[1]
        return self.final_norm(x)

    def embed(self, ids: npt.NDArray[Any], cache: Cache | None = None) -> Array:
        """(B, T) ids -> (B, T, C): what enters the first layer."""
        start = cache.length if cache else 0
        end = start + ids.shape[1]
        x: Array = self._tensors["token_embedding.weight"][ids]  # (B, T, C)
        if self.config.ngram > 1:
            known = ids
            if cache:
                cache.ids[:, start:end] = ids
                known = cache.ids[:, max(0, start - self.config.ngram + 1) : end]
            rows = ngram_rows(self.config, known, new=ids.shape[1])  # (B, T, N)
            x = x + self._tensors["ngram_embedding.weight"][rows].sum(axis=2)
        return self.position.embed(x, slice(start, end))

    def block(
        self,
        x: Array,
        layer: int,
        cache: Cache | None = None,
        keep: list[Stages] | None = None,
        change: Change | None = None,
    ) -> Array:
        """(B, T, C) -> (B, T, C): one layer, attention and feed-forward.

        Raises ValueError for `keep` with B ≠ 1.
        """
        if keep is not None and len(x) != 1:
            raise ValueError(
                f"keep receives the stages of one text, not of {len(x)}; give ids of shape (1, T)"
            )
        block, kept = f"blocks.{layer}.", {"stream": x}
        normed = self._norm(x, self._tensors, block + "norm1")
        residual = x + self._attend(normed, layer, cache, kept, change)
        hidden = self._apply(
            self._norm(residual, self._tensors, block + "norm2"), block + "feed_forward.up"
        )
        active = self._activation(hidden, None)
        output = residual + self._apply(active, block + "feed_forward.down")
        if keep is not None:
            kept.update(residual=residual, output=output)
            keep.append(Stages(**{name: stage[0] for name, stage in kept.items()}))
        return output

    def final_norm(self, x: Array) -> Array:
        """(B, T, C) -> (B, T, C): what the output weights see."""
        return self._norm(x, self._tensors, "norm")

    def logits(self, stream: Array) -> Array:
        """(…, C) -> (…, vocab_size)"""
        logits: Array = stream @ self._output
        return logits

    @property
    def tensors(self) -> Mapping[str, Array]:
        """Every stored parameter by its name, to read."""
        return MappingProxyType(self._tensors)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """A linear layer's (rows, columns) weight and (rows,) bias, if it has one."""
        return self._tensors[f"{name}.weight"], self._tensors.get(f"{name}.bias")

    def _attend(
        self,
        x: Array,
        layer: int,
        cache: Cache | None,
        kept: dict[str, Array],
        change: Change | None,
    ) -> Array:
        """(B, T, C) -> (B, T, C): all heads of one layer. `kept` receives what they computed."""
        B, T, C = x.shape
        start = cache.length if cache else 0
        heads, size = self.config.n_head, self.config.head_size
        _check_memory(B * heads * T * (start + T) * self.dtype.itemsize, start + T)
        packed = self._apply(x, f"blocks.{layer}.attention.qkv").reshape(B, T, 3, heads, size)
        q, k, v = packed.transpose(2, 0, 3, 1, 4)  # three (B, H, T, D)
        if self.config.qk_norm:
            q, k = rms_norm(q), rms_norm(k)
        end = start + T
        at = slice(start, end)
        q, k = self.position.rotate(q, k, at)
        if cache:
            cache.keys[layer, :, :, start:end], cache.values[layer, :, :, start:end] = k, v
            k, v = cache.keys[layer, :, :, :end], cache.values[layer, :, :, :end]  # (B, H, S, D)
        scores = q @ k.swapaxes(-2, -1)  # (B, H, T, S)
        scaled = scores * self.dtype.type(size**-0.5)
        bias = self.position.bias(at)  # (H, T, S), or None
        biased = scaled if bias is None else scaled + bias
        masked = biased if T == 1 else np.where(_future(T, start), -np.inf, biased)
        weights = softmax(masked.astype(self.dtype, copy=False))  # (B, H, T, S)
        context = weights @ v  # (B, H, T, D)
        if change:
            context = change(context)
        concat = context.transpose(0, 2, 1, 3).reshape(B, T, C)
        proj = self._apply(concat, f"blocks.{layer}.attention.proj")
        kept.update(q=q, k=k, v=v, scores=scores, scaled=scaled, masked=masked)
        kept.update(weights=weights, context=context, concat=concat, proj=proj)
        return proj

    def _apply(self, x: Array, name: str) -> Array:
        """(B, T, columns) @ weightᵀ (+ bias), as one large product instead of B small ones."""
        weight, bias = self.linear(name)
        y: Array = (x.reshape(-1, x.shape[-1]) @ weight.T).reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias


def _check_memory(size: int, characters: int) -> None:
    """Raises OutOfMemory if a layer's matrices of `size` bytes each do not fit this machine.

    There are MATRICES of them at the same time. Linux grants memory that it does not have, and
    kills the process that uses it.
    """
    if size < SMALL:
        return
    has = physical_memory()
    if has is not None and MATRICES * size > has:
        raise OutOfMemory(
            f"out of memory: attention over {characters:,} characters needs "
            f"{MATRICES * size / 2**30:,.0f} GB, this machine has {has / 2**30:,.1f} GB; give a "
            "shorter text"
        )


def _future(new: int, start: int) -> npt.NDArray[np.bool_]:
    """(T, S) True where a key comes after its query."""
    future: npt.NDArray[np.bool_] = np.arange(start + new) > np.arange(start, start + new)[:, None]
    return future
