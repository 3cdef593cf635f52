"""The trained model in numpy: one forward that keeps every stage.

It shares no code with the torch model; a checkpoint's probe compares the two at every opening. It
handles ids, not text or files.
Other kinds of attention are arguments of `Reader.attend`, as in gpt/model/attention.py. A hook sees
every stage while it is computed, and can change it (gpt/heads/patching.py).
Tensor names: B batch, T time, C n_embd, H heads, D head_size, S keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from gpt.vocabulary import Ids

MATRICES = 4  # scores, scaled, masked, weights
SMALL = 2**26  # bytes that every machine has; only larger needs are checked


#: Receives each stage as soon as it is computed: its name, its layer, its (B, …) array, into which
#: it may write. The forward goes on with the result. The names are the fields of `Stages`, and:
#: hidden (B, T, config.hidden), the result of the activation function; feed_forward (B, T, C), what
#: is added to residual; after the last layer, with n_layer as the layer, final_norm (B, T, C) and
#: logits (B, T, vocab_size).
Hook = Callable[[str, int, Array], Array]


def unchanged(name: str, layer: int, array: Array) -> Array:
    """The hook that changes nothing."""
    return array


@dataclass(frozen=True, repr=False)
class Stages(Result):
    """What one layer computed for (T,) characters; arrays of heads have H as their first axis.

    stream: (T, C), what enters the layer. q, k, v: (H, T, D), after normalisation and rotary
    positions, if the model has them; scores = q·kᵀ, scaled = scores/√D, masked = scaled + the bias
    of positions that have one, and −inf above the diagonal, weights = softmax: (H, T, T); context =
    weights·v: (H, T, D); concat and proj: (T, C); residual = stream + proj, output = residual +
    feed-forward: (T, C).
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

    def __repr__(self) -> str:
        heads, length, size = self.q.shape
        return f"<Stages of one layer: {length} characters, {heads} heads × {size}>"


class Reader:
    """A GPT's parameters and its forward pass."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Array]) -> None:
        self.config = config
        #: Every stored parameter by its name.
        self.tensors = MappingProxyType({name: read_only(each) for name, each in tensors.items()})
        self.dtype = self.tensors["token_embedding.weight"].dtype
        self.position = POSITIONS[config.position](config, self.tensors, self.dtype)
        output = "token_embedding" if config.tied else "lm_head"
        self._output = np.ascontiguousarray(self.tensors[f"{output}.weight"].T)  # (C, vocab_size)

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C): the stream after the last norm, the input of `logits`."""
        return self.final_norm(self.blocks(self.embed(ids), range(self.config.n_layer)))

    def blocks(self, x: Array, layers: Iterable[int], hook: Hook = unchanged) -> Array:
        """(B, T, C), the input of the first of these layers -> (B, T, C), the output of the last"""
        for layer in layers:
            x = self.block(x, layer, hook)["output"]
        return x

    def stages(self, ids: Ids) -> tuple[Stages, ...]:
        """(T,) ids -> what each layer computed. Raises ValueError for a batch."""
        if ids.ndim != 1:
            raise ValueError(f"ids: expected one text, (T,), not {ids.shape}")
        x, layers = self.embed(ids[None]), []
        for layer in range(self.config.n_layer):
            stages = self.block(x, layer)
            x = stages["output"]
            layers.append(Stages(**{name: stage[0] for name, stage in stages.items()}))
        return tuple(layers)

    def embed(self, ids: Ids, new: int | None = None) -> Array:
        """(B, T) ids -> (B, new, C): the input of the first layer at the last `new` positions;
        None: at all.
        """
        T = ids.shape[1]
        first = T - (new or T)
        x: Array = self.tensors["token_embedding.weight"][ids[:, first:]]
        if self.config.ngram > 1:
            rows = ngram_rows(self.config, ids, new)  # (B, new, N)
            x = x + self.tensors["ngram_embedding.weight"][rows].sum(axis=2)
        return self.position.embed(x, slice(first, T))

    def block(self, x: Array, layer: int, hook: Hook = unchanged, **more: Any) -> dict[str, Array]:
        """(B, T, C) -> one layer's stages by the names of Stages, (B, …); "output" is (B, T, C).

        more: further arguments of `attend`.
        """
        block = f"blocks.{layer}."
        x = hook("stream", layer, x)
        stages = self.attend(self._norm(x, block + "norm1"), layer, hook, **more)
        residual = hook("residual", layer, x + stages["proj"])
        up = self._apply(self._norm(residual, block + "norm2"), block + "feed_forward.up")
        hidden = hook("hidden", layer, ACTIVATIONS[self.config.activation](up, None))
        down = hook("feed_forward", layer, self._apply(hidden, block + "feed_forward.down"))
        output = hook("output", layer, residual + down)
        return {"stream": x, **stages, "residual": residual, "output": output}

    def attend(
        self,
        x: Array,
        layer: int,
        hook: Hook = unchanged,
        memory: Array | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> dict[str, Array]:
        """(B, T, C), normed -> the stages of one layer's attention, from q to proj, (B, …).

        memory: (B, S, C), what keys and values come from, instead of x; it has no positions.
        allowed: (T, S), True where a query may attend to a key; None: to its own and earlier
        positions, or to all of a memory.
        """
        B, T, C = x.shape
        S = T if memory is None else memory.shape[1]
        _check_memory(B * self.config.n_head * T * S * self.dtype.itemsize, S)
        q, k, v = self._heads(x, layer)
        bias = None
        if memory is None:
            q, k = self.position.rotate(q, k)
            bias = self.position.bias(slice(0, T))  # (H, T, T), or None
            allowed = np.tri(T, dtype=np.bool_) if allowed is None else allowed
        else:
            _, k, v = self._heads(memory, layer)  # (B, H, S, D)
        q, k, v = hook("q", layer, q), hook("k", layer, k), hook("v", layer, v)
        scores = hook("scores", layer, q @ k.swapaxes(-2, -1))  # (B, H, T, S)
        scale = self.dtype.type(self.config.head_size**-0.5)
        scaled = hook("scaled", layer, scores * scale)
        biased = scaled if bias is None else scaled + bias
        masked = biased if allowed is None else np.where(allowed, biased, -np.inf)
        masked = hook("masked", layer, masked.astype(self.dtype, copy=False))
        weights = hook("weights", layer, softmax(masked))  # (B, H, T, S)
        context = hook("context", layer, weights @ v)  # (B, H, T, D)
        concat = hook("concat", layer, context.transpose(0, 2, 1, 3).reshape(B, T, C))
        proj = hook("proj", layer, self._apply(concat, f"blocks.{layer}.attention.proj"))
        return {
            **{"q": q, "k": k, "v": v, "scores": scores, "scaled": scaled, "masked": masked},
            **{"weights": weights, "context": context, "concat": concat, "proj": proj},
        }

    def final_norm(self, x: Array, hook: Hook = unchanged) -> Array:
        """(B, T, C) -> (B, T, C): the last norm, whose result the output weights multiply."""
        return hook("final_norm", self.config.n_layer, self._norm(x, "norm"))

    def logits(self, stream: Array, hook: Hook = unchanged) -> Array:
        """(…, C) -> (…, vocab_size)"""
        return hook("logits", self.config.n_layer, stream @ self._output)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """A linear layer's (rows, columns) weight and (rows,) bias, if it has one."""
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def _heads(self, x: Array, layer: int) -> tuple[Array, Array, Array]:
        """(B, T, C) -> queries, keys and values without positions, each (B, H, T, D)."""
        packed = self._apply(x, f"blocks.{layer}.attention.qkv")
        by_head = packed.reshape(*x.shape[:2], 3, self.config.n_head, self.config.head_size)
        q, k, v = by_head.transpose(2, 0, 3, 1, 4)
        return (rms_norm(q), rms_norm(k), v) if self.config.qk_norm else (q, k, v)

    def _norm(self, x: Array, name: str) -> Array:
        return NORMS[self.config.norm](x, self.tensors, name)

    def _apply(self, x: Array, name: str) -> Array:
        """(B, T, columns) @ weightᵀ (+ bias), as one large product instead of B small ones."""
        weight, bias = self.linear(name)
        y: Array = (x.reshape(-1, x.shape[-1]) @ weight.T).reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias


def _check_memory(size: int, characters: int) -> None:
    """Raises OutOfMemory if a layer's matrices of `size` bytes each do not fit this machine.

    MATRICES of them exist at the same time. Linux grants memory that it does not have, and kills
    the process that uses it.
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
