"""The trained model in numpy: one forward that keeps every stage, each by its name.

It shares no code with the torch model; a checkpoint's probe compares the two at every opening. It
handles ids, not text or files.
Other kinds of attention are arguments of `Reader.attend`, as in gpt/model/attention.py. An encoder
is a second Reader, whose output the decoder's cross-attention reads. A hook sees every stage while
it is computed, and can change it (gpt/heads/activations.py).
Tensor names: B batch, T time, C n_embd, H heads, D head_size, S keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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

#: Receives each stage as soon as it is computed: its name, its layer, its (B, …) array, into which
#: it may write. The forward goes on with the result. The names are those of config.stages, some of
#: them after CROSS, but for head_output. final_norm and logits have n_layer as their layer.
Hook = Callable[[str, int, Array], Array]


def unchanged(name: str, layer: int, array: Array) -> Array:
    """The hook that changes nothing."""
    return array


#: Begins the names of a decoder layer's stages of cross-attention, for hooks; and elsewhere those
#: of the encoder.
CROSS, ENCODER = "cross_", "encoder_"


@dataclass(frozen=True)
class Memory:
    """What cross-attention reads: the encoder's output (B, S, C), and (B, 1, S), False for padding;
    None: nothing is padding.
    """

    states: Array
    allowed: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, repr=False)
class Stages(Result):
    """What one layer computed for (T,) characters; arrays of heads have H as their first axis.

    docs/heads.md says what each is. In an encoder, no score is −inf. A decoder with an encoder has
    Stages of self-attention, whose resid_post is their resid_mid, and Stages of cross-attention,
    which the feed-forward follows: resid_pre is the first one's resid_post, k and v are (H, S, D),
    from the encoder's S characters, and scores … weights (H, T, S).
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


class InFloat64(Mapping[str, Array]):
    """Tensors that become float64 when they are used; the last KEPT of them stay in memory."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors
        self._cast = lru_cache(KEPT)(lambda name: read_only(tensors[name].astype(np.float64)))

    def __getitem__(self, name: str) -> Array:
        return self._cast(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class Reader:
    """A GPT's parameters and its forward pass. causal: False for an encoder, whose queries attend
    to later positions, too.
    """

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
        output = "token_embedding" if config.tied else "lm_head"
        self._output = np.ascontiguousarray(self.tensors[f"{output}.weight"].T)  # (C, vocab_size)

    def in_float64(self) -> Reader:
        """The same model, whose weights and whose every number are float64."""
        exact = copy(self)
        exact.tensors, exact.dtype = MappingProxyType(InFloat64(self.tensors)), np.dtype(np.float64)
        exact.position = type(self.position)(self.config, exact.tensors, exact.dtype)
        exact.encoder = self.encoder.in_float64() if self.encoder else None
        exact._output = self._output.astype(np.float64)
        return exact

    def _of_encoder(self) -> dict[str, Array]:
        """The encoder's tensors by the names of a model of its own."""
        prefix, table = "encoder.", "token_embedding.weight"
        own = {n[len(prefix) :]: each for n, each in self.tensors.items() if n.startswith(prefix)}
        return {table: self.tensors[table], **own}

    def encode(
        self, source: Ids, seen: npt.NDArray[np.bool_] | None = None, hook: Hook = unchanged
    ) -> Memory:
        """(B, S) ids -> what cross-attention reads. seen: (B, S), False for padding; None: all
        True. hook: of the encoder's stages. Raises ValueError for a model without an encoder.
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
        """(B, T) ids -> (B, T, C): the stream after the last norm, the input of `logits`.

        memory: from `encode`, for a model with an encoder. allowed: see `attend`.
        """
        layers = range(self.config.n_layer)
        return self.final_norm(self.blocks(self.embed(ids), layers, memory=memory, allowed=allowed))

    def blocks(self, x: Array, layers: Iterable[int], hook: Hook = unchanged, **more: Any) -> Array:
        """(B, T, C), the input of the first of these layers -> (B, T, C), the output of the last.

        more: further arguments of `block`.
        """
        for layer in layers:
            x = self.block(x, layer, hook, **more)["resid_post"]
        return x

    def stages(self, ids: Ids, **more: Any) -> tuple[Stages, ...]:
        """(T,) ids -> what each layer computed in self-attention; see `sublayers`."""
        return self.sublayers(ids, **more)["attention"]

    def sublayers(self, ids: Ids, **more: Any) -> dict[str, tuple[Stages, ...]]:
        """(T,) ids -> what each layer computed: "attention", and "cross" if there is an encoder.

        more: further arguments of `block`, of one text. Raises ValueError for a batch.
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
        hook: Hook = unchanged,
        memory: Memory | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> dict[str, Array]:
        """(B, T, C) -> one layer's stages by the names of Stages, (B, …).

        memory: what cross-attention reads, in a model with an encoder; the names of its stages
        begin with CROSS. allowed: of self-attention, see `attend`.
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
        self, x: Array, layer: int, hook: Hook = unchanged
    ) -> tuple[Array, Array, Array]:
        """(…, T, C), resid_mid -> what enters a layer's feed-forward, ffn_hidden and ffn_out."""
        normed = self.before(x, f"blocks.{layer}.norm2")
        up = self.apply(normed, f"blocks.{layer}.feed_forward.up")
        hidden = hook("ffn_hidden", layer, ACTIVATIONS[self.config.activation](up))
        out = hook("ffn_out", layer, self.apply(hidden, f"blocks.{layer}.feed_forward.down"))
        return normed, hidden, out

    def attend(
        self,
        x: Array,
        layer: int,
        hook: Hook = unchanged,
        memory: Array | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        sublayer: str = "attention",
    ) -> dict[str, Array]:
        """(B, T, C), normed -> the stages of one layer's attention, from q to proj, (B, …).

        memory: (B, S, C), what keys and values come from, instead of x; it has no positions.
        allowed: (T, S), or one for each text, (B, T or 1, S): True where a query may attend to a
        key; None: to its own and earlier positions, in an encoder and of a memory to all. sublayer:
        whose weights compute it, "attention" or "cross", whose stages' names begin with CROSS.
        """
        B, T, C = x.shape
        S = T if memory is None else memory.shape[1]
        matrix = B * self.config.n_head * T * S * self.dtype.itemsize  # bytes
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

    def final_norm(self, x: Array, hook: Hook = unchanged) -> Array:
        """(B, T, C) -> (B, T, C): the last norm, whose result the output weights multiply; with
        post_norm, x.
        """
        return hook("final_norm", self.config.n_layer, self.before(x, "norm"))

    def logits(self, stream: Array, hook: Hook = unchanged) -> Array:
        """(…, C) -> (…, vocab_size)"""
        return hook("logits", self.config.n_layer, stream @ self._output)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """A linear layer's (rows, columns) weight and (rows,) bias, if it has one."""
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def heads(self, x: Array, layer: int, sublayer: str, parts: str = "qkv") -> list[Array]:
        """(B, T, C) -> queries, keys and values without positions, each (B, H, T, D).

        parts: those that are computed: "qkv", or for cross-attention "q" of x and "kv" of a memory.
        """
        C, first = self.config.n_embd, "qkv".index(parts)
        rows = slice(first * C, (first + len(parts)) * C)
        packed = self.apply(x, f"blocks.{layer}.{sublayer}.qkv", rows)
        shape = len(parts), self.config.n_head, self.config.head_size
        return [*packed.reshape(*x.shape[:2], *shape).transpose(2, 0, 3, 1, 4)]

    def before(self, x: Array, norm: str) -> Array:
        """(B, T, C) -> the input of the sublayer that has this norm."""
        return x if self.config.post_norm else self.norm(x, norm)

    def add(self, x: Array, result: Array, norm: str) -> Array:
        """(B, T, C) -> the stream after the sublayer with this norm and this result."""
        return self.norm(x + result, norm) if self.config.post_norm else x + result

    def norm(self, x: Array, name: str) -> Array:
        """(…, C) -> (…, C) normalised, by the norm of this name."""
        return NORMS[self.config.norm](x, self.tensors, name)

    def apply(self, x: Array, name: str, rows: slice = slice(None)) -> Array:
        """(B, T, columns) @ weightᵀ (+ bias), as one large product instead of B small ones; rows:
        of the weight.
        """
        weight, bias = self.linear(name)
        product = x.reshape(-1, x.shape[-1]) @ weight[rows].T
        y: Array = product.reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias[rows]
