"""The trained model in numpy: one forward pass that names and keeps every stage.

It shares no code with the torch model; every time a checkpoint is opened, its probe compares the
two. Knows ids, no text and no files.
A hook receives every stage while it is computed, and can change it (gpt/heads/activations.py).
Tensor names: B batch, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpt.config import ModelConfig
from gpt.devices import require_memory
from gpt.reading.layers import ACTIVATIONS, POSITIONS, Array, layer_norm, softmax
from gpt.show.result import Arrays, read_only
from gpt.vocabulary import Ids

#: A hook receives each stage as soon as it is computed: its name, its layer and its (B, …) array,
#: which it may change in place; the forward pass continues with the changed array. The names are
#: those of config.stages except head_output. For final_norm and logits, the layer is n_layer.
Hook = Callable[[str, int, Array], Array]


def no_hook(name: str, layer: int, array: Array) -> Array:
    """The hook that changes nothing."""
    return array


@dataclass(frozen=True, repr=False)
class Stages(Arrays):
    """What one layer computed for (T,) characters; arrays of heads begin with an axis of heads.
    docs/heads.md explains each.
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


MATRICES = 5  # scores, scaled, masked, and two for the softmax


class Reader:
    """A GPT's parameters and its forward pass."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Array]) -> None:
        self.config = config
        #: Every stored parameter by its name.
        self.tensors = MappingProxyType({name: read_only(array) for name, array in tensors.items()})
        self.dtype = self.tensors["token_embedding.weight"].dtype
        self.position = POSITIONS[config.position](config, self.tensors, self.dtype)
        #: The name of the layer that computes the logits.
        self.output = "token_embedding" if config.tied else "lm_head"
        weight, _ = self.linear(self.output)
        self._output = np.ascontiguousarray(weight.T)  # (C, vocab_size)

    def in_float64(self) -> Reader:
        """The same model with float64 weights; all of its numbers are then float64."""
        exact = {name: array.astype(np.float64) for name, array in self.tensors.items()}
        return Reader(self.config, exact)

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C): the stream after the last norm, which `logits` takes."""
        return self.final_norm(self.blocks(self.embed(ids), range(self.config.n_layer)))

    def blocks(self, x: Array, layers: Iterable[int], hook: Hook = no_hook) -> Array:
        """(B, T, C), the input of the first of these layers -> (B, T, C), the output of the last
        one.
        """
        for layer in layers:
            x = self.block(x, layer, hook)["resid_post"]
        return x

    def stages(self, ids: Ids) -> tuple[Stages, ...]:
        """(T,) ids -> the stages of each layer. Raises ValueError for a batch."""
        if ids.ndim != 1:
            raise ValueError(f"ids: expected one text, (T,), not {ids.shape}")
        x, layers = self.embed(ids[None]), list[Stages]()
        for layer in range(self.config.n_layer):
            batch = self.block(x, layer)
            layers.append(Stages(**{name: stage[0] for name, stage in batch.items()}))
            x = batch["resid_post"]
        return tuple(layers)

    def embed(self, ids: Ids, start: int = 0) -> Array:
        """(B, T) ids at the positions from `start` on -> (B, T, C): the first layer's input."""
        x: Array = self.tensors["token_embedding.weight"][ids]
        return self.position.embed(x, slice(start, start + ids.shape[1]))

    def block(self, x: Array, layer: int, hook: Hook = no_hook) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer by the names of Stages, each (B, …)."""
        x = hook("resid_pre", layer, x)
        stages = self.attend(self.norm(x, f"blocks.{layer}.norm1"), layer, hook)
        resid_mid = hook("resid_mid", layer, x + stages["proj"])
        if self.config.feed_forward:
            *_, down = self.feed_forward(resid_mid, layer, hook)
            resid_post: Array = resid_mid + down
        else:
            resid_post = resid_mid.copy()  # a hook may write into it
        resid_post = hook("resid_post", layer, resid_post)
        return {"resid_pre": x, **stages, "resid_mid": resid_mid, "resid_post": resid_post}

    def feed_forward(
        self, x: Array, layer: int, hook: Hook = no_hook
    ) -> tuple[Array, Array, Array]:
        """(…, T, C), resid_mid -> the input of a layer's feed-forward, ffn_hidden and ffn_out."""
        normed = self.norm(x, f"blocks.{layer}.norm2")
        up = self.apply(normed, f"blocks.{layer}.feed_forward.up")
        hidden = hook("ffn_hidden", layer, ACTIVATIONS[self.config.activation](up))
        out = hook("ffn_out", layer, self.apply(hidden, f"blocks.{layer}.feed_forward.down"))
        return normed, hidden, out

    def attend(self, x: Array, layer: int, hook: Hook = no_hook) -> dict[str, Array]:
        """(B, T, C), normalised -> the stages of one layer's attention from q to proj, each
        (B, …).
        """
        B, T, C = x.shape
        matrix = B * self.config.n_head * T * T * self.dtype.itemsize  # in bytes
        require_memory("attention over", T, lambda n: MATRICES * matrix * (n / T) ** 2)
        stages = dict[str, Array]()

        def keep(name: str, stage: Array) -> Array:
            stages[name] = stage = hook(name, layer, stage)
            return stage

        q, k, v = self.heads(x, layer)
        q, k = self.position.rotate(q, k, slice(0, T))
        q, k, v = keep("q", q), keep("k", k), keep("v", v)
        scores = keep("scores", q @ k.swapaxes(-2, -1))  # (B, H, T, T)
        scaled = keep("scaled", scores * self.dtype.type(self.config.head_size**-0.5))
        masked = np.where(np.tri(T, dtype=np.bool_), scaled, -np.inf)
        masked = keep("masked", masked.astype(self.dtype, copy=False))
        weights = keep("weights", softmax(masked))  # (B, H, T, T)
        context = keep("context", weights @ v)  # (B, H, T, D)
        concat = keep("concat", context.transpose(0, 2, 1, 3).reshape(B, T, C))
        keep("proj", self.apply(concat, f"blocks.{layer}.attention.proj"))
        return stages

    def final_norm(self, x: Array, hook: Hook = no_hook) -> Array:
        """(B, T, C) -> (B, T, C): the last norm, before the logits."""
        return hook("final_norm", self.config.n_layer, self.norm(x, "norm"))

    def logits(self, stream: Array, hook: Hook = no_hook) -> Array:
        """(…, C) -> (…, vocab_size)"""
        return hook("logits", self.config.n_layer, stream @ self._output)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """The (rows, columns) weight of a linear layer and its (rows,) bias, if any."""
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def heads(self, x: Array, layer: int) -> list[Array]:
        """(B, T, C) -> queries, keys and values without positions, each (B, H, T, D)."""
        packed = self.apply(x, f"blocks.{layer}.attention.qkv")
        shape = 3, self.config.n_head, self.config.head_size
        return [*packed.reshape(*x.shape[:2], *shape).transpose(2, 0, 3, 1, 4)]

    def norm(self, x: Array, name: str) -> Array:
        """(…, C) -> (…, C), normalised by the norm of this name."""
        return layer_norm(x, self.tensors, name)

    def apply(self, x: Array, name: str) -> Array:
        """(B, T, columns) @ weightᵀ (+ bias), as one large product."""
        weight, bias = self.linear(name)
        product = x.reshape(-1, x.shape[-1]) @ weight.T
        y: Array = product.reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias
