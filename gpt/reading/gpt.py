"""The trained model in numpy: one forward pass that names and keeps every stage.

It shares no code with the torch model; every time a checkpoint is opened, its probe compares the
two. Knows ids, no text and no files.
A hook receives every stage while it is computed, and can change it (gpt/heads/activations.py).
Tensor names: B batch, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.devices import require_memory
from gpt.show.result import Arrays, read_only
from gpt.vocabulary import Ids

Array = npt.NDArray[np.floating[Any]]
Numbers = npt.NDArray[Any]  # real or complex
EPSILON = 1e-5
FIRST_ROWS = 512  # rows of the smallest table of positions
MATRICES = 5  # of attention held at once: scores, scaled, masked, two for the softmax

#: A hook receives each stage as soon as it is computed: its name, its layer and its (B, …) array,
#: which it may change in place; the forward pass continues with the changed array. The names are
#: those of config.stages except head_output. For final_norm and logits, the layer is n_layer.
Hook = Callable[[str, int, Array], Array]


def no_hook(name: str, layer: int, array: Array) -> Array:
    return array


def softmax(x: Array) -> Array:
    """Softmax over the last axis; the largest value is subtracted first, so that nothing
    overflows.
    """
    exponentials: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total


def centred(x: Array) -> Array:
    """(…, C) -> (…, C), minus the mean of each row."""
    return x - x.mean(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def _relu(x: Array) -> Array:
    return np.maximum(x, 0, out=x)


def _relu2(x: Array) -> Array:
    np.maximum(x, 0, out=x)
    return np.multiply(x, x, out=x)


def _gelu(x: Array) -> Array:
    """GELU in its tanh approximation (Hendrycks & Gimpel 2016)."""
    inner: Array = x * x
    inner *= 0.044715
    inner += 1
    inner *= x
    inner *= (2 / np.pi) ** 0.5
    np.tanh(inner, out=inner)
    inner += 1
    inner *= 0.5
    x *= inner
    return x


def _gelu_erf(x: Array) -> Array:
    """x·Φ(x), Φ the distribution function of N(0, 1) (Hendrycks & Gimpel 2016).

    numpy has no erf: float32 uses formula 7.1.26 of Abramowitz & Stegun 1964 for Φ(−|x|), whose
    error is less than 1e-7.
    """
    if x.dtype == np.float64:
        errors = np.fromiter(map(math.erf, (x * 0.5**0.5).flat), np.float64, x.size)
        x *= (1 + errors.reshape(x.shape)) / 2
        return x
    size: Array = np.abs(x)
    t = 1 / (1 + size * (0.3275911 * 0.5**0.5))
    tail = t * 1.061405429
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += coefficient
        tail *= t
    tail *= np.exp(size * size * -0.5)
    tail *= size
    tail *= 0.5
    np.maximum(x, 0, out=x)
    x -= tail
    return x


#: Each function overwrites its argument, (…, ffn_hidden), and returns it.
Activation = Callable[[Array], Array]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "relu": _relu,
    "relu2": _relu2,
}


class Position:
    """No positions; base of the other kinds. at: the positions of a method's arguments.

    Constants are computed for the positions of a text, not for the whole context, because a small
    file may declare a context of a million characters.
    """

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Array], dtype: np.dtype[Any]
    ) -> None:
        self.config, self.tensors, self.dtype = config, tensors, dtype
        self._factors: Numbers = np.empty(0)

    def embed(self, x: Array, at: slice) -> Array:
        """(B, T, C) -> (B, T, C): embeddings, to which positions may be added."""
        return x

    def rotate(self, queries: Array, keys: Array, at: slice) -> tuple[Array, Array]:
        """Two (B, H, T, D) -> two (B, H, T, D)"""
        return queries, keys

    def factors(self, end: int) -> Numbers:
        """Factors by which the decoder multiplies all heads' queries, then keys: `rotate` and 1/√D.

        `end` rows or more of (2C,), or of (C,) complex if coordinates 2d and 2d + 1 form one
        number. There are FIRST_ROWS rows, or the power of two above `end`, so that a growing text
        seldom needs another table.
        """
        factors = self._factors  # another thread may replace the attribute
        if len(factors) < end:
            rows = min(self.config.block_size, max(FIRST_ROWS, 1 << end.bit_length()))
            both = np.tile(self._turns(slice(0, rows))[:, None], (1, 2, self.config.n_head))
            both[:, 0] *= self.dtype.type(self.config.head_size**-0.5)
            factors = self._factors = read_only(both.reshape(rows, -1))
        return factors

    def _turns(self, at: slice) -> Numbers:
        """(T, D), or (T, D/2) complex: the factors of a head's coordinates in `rotate`."""
        return np.ones((at.stop - at.start, self.config.head_size), self.dtype)


class Learned(Position):
    """A trained vector for each of the block_size positions, added (GPT-2)."""

    def embed(self, x: Array, at: slice) -> Array:
        added: Array = x + self.tensors["position.weight"][at]
        return added


class Sinusoidal(Position):
    """Fixed sines and cosines, added (Vaswani et al. 2017)."""

    def embed(self, x: Array, at: slice) -> Array:
        columns = np.arange(self.config.n_embd)
        rates = 10_000.0 ** (-(columns - columns % 2) / self.config.n_embd)
        angles = np.outer(np.arange(at.start, at.stop), rates)  # (T, C)
        waves = np.where(columns % 2, np.cos(angles), np.sin(angles))
        added: Array = x + waves.astype(self.dtype)
        return added


class Rotary(Position):
    """Rotates queries and keys by an angle that grows with the position (Su et al. 2021)."""

    def rotate(self, queries: Array, keys: Array, at: slice) -> tuple[Array, Array]:
        turns = self._turns(at)
        return _turn(queries, turns.real, turns.imag), _turn(keys, turns.real, turns.imag)

    def _turns(self, at: slice) -> Numbers:
        half = self.config.head_size // 2
        rates = 10_000.0 ** (-np.arange(half) / half)
        angles = np.outer(np.arange(at.start, at.stop), rates)  # (T, D/2)
        turns: Numbers = np.cos(angles).astype(self.dtype) + 1j * np.sin(angles).astype(self.dtype)
        return turns


def _turn(x: Array, cosines: Array, sines: Array) -> Array:
    """(B, H, T, D): rotates coordinates 2d and 2d + 1 by each position's angles."""
    even, odd = x[..., ::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., ::2] = even * cosines - odd * sines
    turned[..., 1::2] = even * sines + odd * cosines
    return turned


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
}


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
        """(T,) ids -> the stages of each layer."""
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
        config, (B, T, C) = self.config, x.shape
        matrix = B * config.n_head * T * T * self.dtype.itemsize  # in bytes
        require_memory("attention over", T, lambda n: MATRICES * matrix * (n / T) ** 2)
        stages = dict[str, Array]()

        def keep(name: str, stage: Array) -> Array:
            stages[name] = stage = hook(name, layer, stage)
            return stage

        x = keep("resid_pre", x)
        packed = self.apply(self.norm(x, f"blocks.{layer}.norm1"), f"blocks.{layer}.attention.qkv")
        by_head = packed.reshape(B, T, 3, config.n_head, config.head_size)
        q, k, v = by_head.transpose(2, 0, 3, 1, 4)  # (B, H, T, D)
        q, k = self.position.rotate(q, k, slice(0, T))
        q, k, v = keep("q", q), keep("k", k), keep("v", v)
        scores = keep("scores", q @ k.swapaxes(-2, -1))  # (B, H, T, T)
        scaled = keep("scaled", scores * self.dtype.type(config.head_size**-0.5))
        masked = np.where(np.tri(T, dtype=np.bool_), scaled, -np.inf)
        masked = keep("masked", masked.astype(self.dtype, copy=False))
        weights = keep("weights", softmax(masked))  # (B, H, T, T)
        context = keep("context", weights @ v)  # (B, H, T, D)
        concat = keep("concat", context.transpose(0, 2, 1, 3).reshape(B, T, C))
        proj = keep("proj", self.apply(concat, f"blocks.{layer}.attention.proj"))
        resid_mid = keep("resid_mid", x + proj)
        if config.feed_forward:
            *_, down = self.feed_forward(resid_mid, layer, hook)
            keep("resid_post", resid_mid + down)
        else:
            keep("resid_post", resid_mid.copy())  # a hook may write into it
        return stages

    def feed_forward(
        self, x: Array, layer: int, hook: Hook = no_hook
    ) -> tuple[Array, Array, Array]:
        """(…, T, C), resid_mid -> the input of a layer's feed-forward, ffn_hidden and ffn_out."""
        normed = self.norm(x, f"blocks.{layer}.norm2")
        up = self.apply(normed, f"blocks.{layer}.feed_forward.up")
        hidden = hook("ffn_hidden", layer, ACTIVATIONS[self.config.activation](up))
        out = hook("ffn_out", layer, self.apply(hidden, f"blocks.{layer}.feed_forward.down"))
        return normed, hidden, out

    def final_norm(self, x: Array, hook: Hook = no_hook) -> Array:
        """(B, T, C) -> (B, T, C): the last norm, before the logits."""
        return hook("final_norm", self.config.n_layer, self.norm(x, "norm"))

    def logits(self, stream: Array, hook: Hook = no_hook) -> Array:
        """(…, C) -> (…, vocab_size)"""
        return hook("logits", self.config.n_layer, stream @ self._output)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """The (rows, columns) weight of a linear layer, or the (C,) one of a norm, and the bias, if
        any.
        """
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def norm(self, x: Array, name: str) -> Array:
        """(…, C) -> (…, C), normalised by the norm of this name (Ba et al. 2016)."""
        weight, bias = self.linear(name)
        x = centred(x)
        mean_square = np.einsum("...c,...c->...", x, x)[..., None] / x.dtype.type(x.shape[-1])
        normed: Array = x / np.sqrt(mean_square + x.dtype.type(EPSILON)) * weight
        return normed if bias is None else normed + bias

    def apply(self, x: Array, name: str) -> Array:
        """(B, T, columns) @ weightᵀ (+ bias), as one large product."""
        weight, bias = self.linear(name)
        product = x.reshape(-1, x.shape[-1]) @ weight.T
        y: Array = product.reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias
