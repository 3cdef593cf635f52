"""The trained model in numpy: one forward pass that names and keeps every stage.

It shares no code with the torch model; every time a checkpoint is opened, its probe compares the
two. Knows ids, no text and no files.
Other kinds of attention are arguments of `Reader.attend`, as in gpt/model/attention.py. An encoder
is a second Reader, whose output the decoder's cross-attention reads. A hook receives every stage
while it is computed, and can change it (gpt/heads/activations.py).
Tensor names: B batch, T time, C n_embd, H heads, D head_size, S keys.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import Result, read_only
from gpt.config import ModelConfig
from gpt.devices import require_memory
from gpt.reading.layers import ACTIVATIONS, NORMS, Array, softmax
from gpt.reading.positions import POSITIONS
from gpt.vocabulary import Ids

#: A hook receives each stage as soon as it is computed: its name, its layer and its (B, …) array,
#: which it may change in place; the forward pass continues with the changed array. The names are
#: those of config.stages except head_output; stages of cross-attention begin with CROSS. For
#: final_norm and logits, the layer is n_layer.
Hook = Callable[[str, int, Array], Array]


def no_hook(name: str, layer: int, array: Array) -> Array:
    """The hook that changes nothing."""
    return array


#: For hooks, names of stages of a decoder's cross-attention begin so; for results, those of the
#: encoder, too.
CROSS, ENCODER = "cross_", "encoder_"


@dataclass(frozen=True)
class Memory:
    """What cross-attention reads. states: (B, S, C) the encoder's output; allowed: (B, 1, S), False
    for padding, None: no padding.
    """

    states: Array
    allowed: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, repr=False)
class Stages(Result):
    """What one layer computed for (T,) characters; arrays of heads begin with an axis of
    heads.

    docs/heads.md explains each. In an encoder, no score is −inf. A decoder with an encoder has two
    Stages a layer: those of self-attention, whose resid_post is their resid_mid, and those of
    cross-attention, which the feed-forward layer follows. In the latter, resid_pre is the first
    one's resid_post; k and v are (H, S, D), from the encoder's S characters; scores … weights are
    (H, T, S).
    """

    resid_pre: Array
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
    resid_mid: Array
    resid_post: Array

    def __repr__(self) -> str:
        heads, length, size = self.q.shape
        return f"<Stages of one layer: {length} characters, {heads} heads × {size}>"


KEPT = 16  # tensors: more than one layer has
MATRICES = 5  # scores, scaled, masked, and two for the softmax


class Float64Tensors(UserDict[str, Array]):
    """Converts tensors to float64 when they are used, and keeps the last KEPT of them in memory."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        super().__init__(tensors)
        self._cast = lru_cache(KEPT)(lambda name: read_only(tensors[name].astype(np.float64)))

    def __getitem__(self, name: str) -> Array:
        return self._cast(name)


class Reader:
    """A GPT's parameters and its forward pass. causal: False for an encoder."""

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Array], causal: bool = True
    ) -> None:
        self.config, self.causal = config, causal
        #: Every stored parameter by its name.
        self.tensors = MappingProxyType({name: read_only(each) for name, each in tensors.items()})
        self.dtype = self.tensors["token_embedding.weight"].dtype
        self.position = POSITIONS[config.position](config, self.tensors, self.dtype)
        #: The reader of the encoder, if the model has one.
        self.encoder: Reader | None = None
        if config.encoder:
            self.encoder = Reader(config.encoder, self._of_encoder(), causal=False)
        #: The name of the layer that computes the logits.
        self.output = "token_embedding" if config.tied else "lm_head"
        weight, _ = self.linear(self.output)
        self._output = np.ascontiguousarray(weight.T)  # (C, vocab_size)

    def in_float64(self) -> Reader:
        """The same model with float64 weights; all of its numbers are then float64."""
        exact = copy(self)
        exact.tensors = MappingProxyType(Float64Tensors(self.tensors))
        exact.dtype = np.dtype(np.float64)
        exact.position = type(self.position)(self.config, exact.tensors, exact.dtype)
        exact.encoder = self.encoder.in_float64() if self.encoder else None
        exact._output = self._output.astype(np.float64)
        return exact

    def _of_encoder(self) -> dict[str, Array]:
        """The encoder's tensors, named as those of a separate model."""
        prefix, table = "encoder.", "token_embedding.weight"
        own = {n[len(prefix) :]: each for n, each in self.tensors.items() if n.startswith(prefix)}
        return {table: self.tensors[table], **own}

    def encode(
        self, source: Ids, seen: npt.NDArray[np.bool_] | None = None, hook: Hook = no_hook
    ) -> Memory:
        """(B, S) ids -> what cross-attention reads. seen: (B, S), False for padding; None: all
        True. hook: receives the encoder's stages. Raises ValueError for a model without an encoder.
        """
        if self.encoder is None:
            raise ValueError("this model has no encoder")
        allowed = None if seen is None else seen[:, None]
        layers, x = range(self.encoder.config.n_layer), self.encoder.embed(source)
        x = self.encoder.blocks(x, layers, hook, allowed=allowed)
        return Memory(self.encoder.final_norm(x, hook), allowed)

    def forward(
        self,
        ids: Ids,
        memory: Memory | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> Array:
        """(B, T) ids -> (B, T, C): the stream after the last norm, which `logits` takes.

        memory: from `encode`, for a model with an encoder. allowed: see `attend`.
        """
        layers = range(self.config.n_layer)
        return self.final_norm(self.blocks(self.embed(ids), layers, memory=memory, allowed=allowed))

    def blocks(self, x: Array, layers: Iterable[int], hook: Hook = no_hook, **more: Any) -> Array:
        """(B, T, C), the input of the first of these layers -> (B, T, C), the output of the last
        one.

        more: further arguments of `block`.
        """
        for layer in layers:
            x = self.block(x, layer, hook, **more)["resid_post"]
        return x

    def stages(self, ids: Ids, **more: Any) -> tuple[Stages, ...]:
        """(T,) ids -> the stages of each layer's self-attention; see `sublayers`."""
        return self.sublayers(ids, **more)["attention"]

    def sublayers(self, ids: Ids, **more: Any) -> dict[str, tuple[Stages, ...]]:
        """(T,) ids -> the stages of each layer: "attention", and "cross" if there is an
        encoder.

        more: further arguments of `block`, for one text. Raises ValueError for a batch.
        """
        if ids.ndim != 1:
            raise ValueError(f"ids: expected one text, (T,), not {ids.shape}")
        x, own, cross = self.embed(ids[None]), list[Stages](), list[Stages]()
        for layer in range(self.config.n_layer):
            found = self.block(x, layer, **more)
            x = found["resid_post"]
            stages = {name: stage[0] for name, stage in found.items()}
            if self.encoder:
                later = {n.removeprefix(CROSS): it for n, it in stages.items() if CROSS in n}
                later |= {"resid_pre": stages["resid_mid"], "resid_post": x[0]}
                cross.append(Stages(**later))
                stages = {name: it for name, it in stages.items() if CROSS not in name}
                stages["resid_post"] = stages["resid_mid"]
            own.append(Stages(**stages))
        return {"attention": tuple(own), **({"cross": tuple(cross)} if self.encoder else {})}

    def embed(self, ids: Ids, start: int = 0) -> Array:
        """(B, T) ids at the positions from `start` on -> (B, T, C): the first layer's input."""
        x: Array = self.tensors["token_embedding.weight"][ids]
        if self.config.scaled_embedding:
            x = x * self.dtype.type(self.config.n_embd**0.5)
        return self.position.embed(x, slice(start, start + ids.shape[1]))

    def block(
        self,
        x: Array,
        layer: int,
        hook: Hook = no_hook,
        memory: Memory | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer by the names of Stages, each (B, …).

        memory: what cross-attention reads, in a model with an encoder; the names of its stages
        begin with CROSS. allowed: the mask of self-attention, see `attend`.
        """
        block = f"blocks.{layer}."
        x = hook("resid_pre", layer, x)
        stages = self.attend(self.before(x, block + "norm1"), layer, hook, allowed=allowed)
        resid_mid = hook("resid_mid", layer, self.add(x, stages["proj"], block + "norm1"))
        found = {"resid_pre": x, **stages, "resid_mid": resid_mid}
        if memory is not None:
            norm, read = block + "cross_norm", (memory.states, memory.allowed, "cross")
            found |= self.attend(self.before(resid_mid, norm), layer, hook, *read)
            resid_mid = self.add(resid_mid, found[CROSS + "proj"], norm)
            resid_mid = found[CROSS + "resid_mid"] = hook(CROSS + "resid_mid", layer, resid_mid)
        if self.config.feed_forward:
            *_, down = self.feed_forward(resid_mid, layer, hook)
            resid_post = self.add(resid_mid, down, block + "norm2")
        else:
            resid_post = resid_mid.copy()  # a hook may write into it
        found["resid_post"] = hook("resid_post", layer, resid_post)
        return found

    def feed_forward(
        self, x: Array, layer: int, hook: Hook = no_hook
    ) -> tuple[Array, Array, Array]:
        """(…, T, C), resid_mid -> the input of a layer's feed-forward, ffn_hidden and ffn_out."""
        normed = self.before(x, f"blocks.{layer}.norm2")
        up = self.apply(normed, f"blocks.{layer}.feed_forward.up")
        hidden = hook("ffn_hidden", layer, ACTIVATIONS[self.config.activation](up))
        out = hook("ffn_out", layer, self.apply(hidden, f"blocks.{layer}.feed_forward.down"))
        return normed, hidden, out

    def attend(
        self,
        x: Array,
        layer: int,
        hook: Hook = no_hook,
        memory: Array | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        sublayer: str = "attention",
    ) -> dict[str, Array]:
        """(B, T, C), normalised -> the stages of one layer's attention from q to proj, each
        (B, …).

        memory: (B, S, C), the source of keys and values in place of x; it has no positions.
        allowed: (T, S), or one for each text, (B, T or 1, S): True where a query may attend to a
        key; None: to its own and earlier positions, but in an encoder and for a memory to all.
        sublayer: "attention" or "cross", whose weights are used; names of the stages of "cross"
        begin with CROSS.
        """
        B, T, C = x.shape
        S = T if memory is None else memory.shape[1]
        matrix = B * self.config.n_head * T * S * self.dtype.itemsize  # in bytes
        require_memory("attention over", S, lambda n: MATRICES * matrix * (n / S) ** 2)
        if memory is None:
            q, k, v = self.heads(x, layer, sublayer)
            q, k = self.position.rotate(q, k, slice(0, T))
            if allowed is None and self.causal:
                allowed = np.tri(T, dtype=np.bool_)
        else:
            (q,) = self.heads(x, layer, sublayer, "q")
            k, v = self.heads(memory, layer, sublayer, "kv")  # (B, H, S, D)
        if allowed is not None and allowed.ndim == 3:
            allowed = allowed[:, None]  # (B, 1, T or 1, S)
        found, prefix = dict[str, Array](), CROSS if sublayer == "cross" else ""

        def keep(name: str, stage: Array) -> Array:
            found[prefix + name] = stage = hook(prefix + name, layer, stage)
            return stage

        q, k, v = keep("q", q), keep("k", k), keep("v", v)
        scores = keep("scores", q @ k.swapaxes(-2, -1))  # (B, H, T, S)
        scaled = keep("scaled", scores * self.dtype.type(self.config.head_size**-0.5))
        masked = scaled if allowed is None else np.where(allowed, scaled, -np.inf)
        masked = keep("masked", masked.astype(self.dtype, copy=False))
        weights = keep("weights", softmax(masked))  # (B, H, T, S)
        context = keep("context", weights @ v)  # (B, H, T, D)
        concat = keep("concat", context.transpose(0, 2, 1, 3).reshape(B, T, C))
        keep("proj", self.apply(concat, f"blocks.{layer}.{sublayer}.proj"))
        return found

    def final_norm(self, x: Array, hook: Hook = no_hook) -> Array:
        """(B, T, C) -> (B, T, C): the last norm, before the logits; with post_norm, x itself."""
        return hook("final_norm", self.config.n_layer, self.before(x, "norm"))

    def logits(self, stream: Array, hook: Hook = no_hook) -> Array:
        """(…, C) -> (…, vocab_size)"""
        return hook("logits", self.config.n_layer, stream @ self._output)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """The (rows, columns) weight of a linear layer and its (rows,) bias, if any."""
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def heads(self, x: Array, layer: int, sublayer: str, parts: str = "qkv") -> list[Array]:
        """(B, T, C) -> queries, keys and values without positions, each (B, H, T, D).

        parts: which of them to compute: "qkv" or, for cross-attention, "q" from x and "kv" from a
        memory.
        """
        C, first = self.config.n_embd, "qkv".index(parts)
        rows = slice(first * C, (first + len(parts)) * C)
        packed = self.apply(x, f"blocks.{layer}.{sublayer}.qkv", rows)
        shape = len(parts), self.config.n_head, self.config.head_size
        return [*packed.reshape(*x.shape[:2], *shape).transpose(2, 0, 3, 1, 4)]

    def centred(self, x: Array) -> Array:
        """(…, C) -> (…, C), minus the mean of each row if the model's norms subtract it."""
        return x - x.mean(axis=-1, keepdims=True) if self.config.norm == "layer" else x

    def before(self, x: Array, norm: str) -> Array:
        """(B, T, C) stream -> the input of the sublayer that has this norm."""
        return x if self.config.post_norm else self.norm(x, norm)

    def add(self, x: Array, result: Array, norm: str) -> Array:
        """(B, T, C) stream -> the stream after a sublayer with this result and this norm."""
        return self.norm(x + result, norm) if self.config.post_norm else x + result

    def norm(self, x: Array, name: str) -> Array:
        """(…, C) -> (…, C), normalised by the norm of this name."""
        return NORMS[self.config.norm](x, self.tensors, name)

    def apply(self, x: Array, name: str, rows: slice = slice(None)) -> Array:
        """(B, T, columns) @ weightᵀ (+ bias), as one large product. rows: those of the weight."""
        weight, bias = self.linear(name)
        product = x.reshape(-1, x.shape[-1]) @ weight[rows].T
        y: Array = product.reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias[rows]
