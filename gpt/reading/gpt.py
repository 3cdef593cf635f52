"""The trained model in numpy: one forward pass that names and keeps every stage.

A stage is an intermediate array of the forward pass, for example the attention weights.
This code shares nothing with the torch model. Whenever a checkpoint is opened, the reader computes
the logits of its probe again, and gptx compares them with torch's (probe.py). The reader knows ids,
but no text and no files.
A hook receives every stage as it is computed, and can change it (gpt/heads/activations.py).
Tensor names: B batch, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.devices import require_memory
from gpt.show.result import ReadOnlyArrays, read_only
from gpt.vocabulary import Ids

Array = npt.NDArray[np.floating[Any]]
Numbers = npt.NDArray[Any]  # real or complex
EPSILON = 1e-5
FIRST_ROWS = 512  # positions of the smallest table of factors (Position.decoder_factors)
MATRICES = 5  # (T, T) arrays in memory at once: scores, scaled, masked, two for the softmax

#: A hook gets a stage's name, its layer and its (B, …) array as soon as it is computed. The forward
#: pass continues with the array that the hook returns; the hook may change the array in place.
#: The names are those of config.stages except head_output. For final_norm and logits, the layer is
#: n_layer.
Hook = Callable[[str, int, Array], Array]


def no_hook(name: str, layer: int, array: Array) -> Array:
    return array


class Decoder(Protocol):
    """Predicts the next character of B texts that grow (streams), in numpy or on a device."""

    config: ModelConfig

    def start(self, ids: Ids) -> Array:
        """Starts B new streams: (B, n) ids -> (B, vocab_size) logits of the next characters."""

    def step(self, ids: Ids) -> Array:
        """Adds one id to every stream: (B,) ids -> (B, vocab_size) logits of the next ids."""

    def make_twin(self) -> Decoder:
        """Returns a decoder of the same model, with streams of its own."""


def softmax(x: Array) -> Array:
    """Softmax over the last axis. Subtracts the largest value first, to avoid overflow."""
    exponentials: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total


def centred(x: Array) -> Array:
    """(…, C) -> (…, C). Subtracts the mean of every row."""
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
    """x·Φ(x), where Φ is the distribution function of N(0, 1) (Hendrycks & Gimpel 2016). numpy has
    no erf. In float32, formula 7.1.26 of Abramowitz & Stegun 1964 gives Φ(−|x|) with an error of
    less than 1e-7. In float64, math.erf is called for every number.
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


#: Overwrites its (…, ffn_hidden) argument with the activations, and returns the same array.
Activation = Callable[[Array], Array]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "relu": _relu,
    "relu2": _relu2,
}


class Position:
    """A model without positions; base class of the other kinds of positions.

    The argument `at` of the methods is the range of the positions that the other arguments have.
    Constants are computed for the positions of a text, not for the whole context, because even a
    small model file may declare a context of a million characters.
    """

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Array], dtype: np.dtype[Any]
    ) -> None:
        self.config, self.tensors, self.dtype = config, tensors, dtype
        self._factors: Numbers = np.empty(0)

    def embed(self, x: Array, at: slice) -> Array:
        """(B, T, C) embeddings -> (B, T, C). May add positions to them."""
        return x

    def rotate(self, queries: Array, keys: Array, at: slice) -> tuple[Array, Array]:
        """(B, H, T, D) queries and keys -> the same shapes. May rotate both by their positions."""
        return queries, keys

    def decoder_factors(self, end: int) -> Numbers:
        """Returns factors for the positions from 0 to at least `end` − 1, a row for each position.

        The decoder multiplies the queries and keys of all heads by a row. The factors rotate as
        `rotate` does, and divide the queries by √D. A row has 2C real numbers, or C complex ones
        for the pairs of coordinates 2d and 2d + 1. The table has FIRST_ROWS rows, or for a larger
        `end` a power of two, so that a growing text seldom needs a new table.
        """
        factors = self._factors  # another thread may replace the attribute
        if len(factors) < end:
            rows = min(self.config.block_size, max(FIRST_ROWS, 1 << end.bit_length()))
            both = np.tile(self._turns(slice(0, rows))[:, None], (1, 2, self.config.n_head))
            both[:, 0] *= self.dtype.type(self.config.head_size**-0.5)
            factors = self._factors = read_only(both.reshape(rows, -1))
        return factors

    def _turns(self, at: slice) -> Numbers:
        """The factors of a head's coordinates in `rotate`: (T, D), or complex (T, D/2)."""
        return np.ones((at.stop - at.start, self.config.head_size), self.dtype)


class Learned(Position):
    """Adds a trained vector for each of the block_size positions (GPT-2)."""

    def embed(self, x: Array, at: slice) -> Array:
        added: Array = x + self.tensors["position.weight"][at]
        return added


class Sinusoidal(Position):
    """Adds fixed sines and cosines of the position (Vaswani et al. 2017)."""

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
    """(B, H, T, D) -> (B, H, T, D). Rotates coordinates 2d and 2d + 1 by every position's angle."""
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
class Stages(ReadOnlyArrays):
    """The stages of one layer for T characters. docs/heads.md explains them. The first axis is T,
    or H for the stages of heads.
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
        #: Parameter name -> its array.
        self.tensors = MappingProxyType({name: read_only(array) for name, array in tensors.items()})
        self.dtype = self.tensors["token_embedding.weight"].dtype
        self.position = POSITIONS[config.position](config, self.tensors, self.dtype)
        #: The name of the layer that computes the logits.
        self.output = "token_embedding" if config.tied else "lm_head"
        weight, _ = self.weight_and_bias(self.output)
        self._output = np.ascontiguousarray(weight.T)  # (C, vocab_size)

    def in_float64(self) -> Reader:
        """Returns the same model with float64 weights. It computes everything in float64."""
        exact = {name: array.astype(np.float64) for name, array in self.tensors.items()}
        return Reader(self.config, exact)

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C): the residual stream after the last norm, for `logits`."""
        return self.final_norm(self.blocks(self.embed(ids), range(self.config.n_layer)))

    def blocks(self, x: Array, layers: Iterable[int], hook: Hook = no_hook) -> Array:
        """(B, T, C) -> (B, T, C). Runs these layers one after the other."""
        for layer in layers:
            x = self.block(x, layer, hook)["resid_post"]
        return x

    def stages(self, ids: Ids) -> tuple[Stages, ...]:
        """(T,) ids -> the stages of every layer."""
        x, layers = self.embed(ids[None]), list[Stages]()
        for layer in range(self.config.n_layer):
            batch = self.block(x, layer)
            layers.append(Stages(**{name: stage[0] for name, stage in batch.items()}))
            x = batch["resid_post"]
        return tuple(layers)

    def embed(self, ids: Ids, start: int = 0) -> Array:
        """(B, T) ids -> (B, T, C): the first layer's input. start: the first id's position."""
        x: Array = self.tensors["token_embedding.weight"][ids]
        return self.position.embed(x, slice(start, start + ids.shape[1]))

    def block(self, x: Array, layer: int, hook: Hook = no_hook) -> dict[str, Array]:
        """Returns the stages of a layer, name -> (B, …) array, for its (B, T, C) input. Raises
        OutOfMemory if the attention does not fit the memory.
        """
        config, (B, T, C) = self.config, x.shape
        matrix = B * config.n_head * T * T * self.dtype.itemsize  # in bytes
        require_memory("attention over", T, lambda n: MATRICES * matrix * (n / T) ** 2)
        stages = dict[str, Array]()

        def keep(name: str, stage: Array) -> Array:
            stages[name] = stage = hook(name, layer, stage)
            return stage

        x = keep("resid_pre", x)
        normed = self.apply_norm(x, f"blocks.{layer}.norm1")
        packed = self.apply_linear(normed, f"blocks.{layer}.attention.qkv")
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
        proj = keep("proj", self.apply_linear(concat, f"blocks.{layer}.attention.proj"))
        resid_mid = keep("resid_mid", x + proj)
        if config.feed_forward:
            *_, down = self.feed_forward(resid_mid, layer, hook)
            keep("resid_post", resid_mid + down)
        else:
            keep("resid_post", resid_mid.copy())  # a hook may change the copy in place
        return stages

    def feed_forward(
        self, x: Array, layer: int, hook: Hook = no_hook
    ) -> tuple[Array, Array, Array]:
        """(…, T, C) resid_mid -> the normalised resid_mid, ffn_hidden and ffn_out of a layer."""
        normed = self.apply_norm(x, f"blocks.{layer}.norm2")
        up = self.apply_linear(normed, f"blocks.{layer}.feed_forward.up")
        hidden = hook("ffn_hidden", layer, ACTIVATIONS[self.config.activation](up))
        out = hook("ffn_out", layer, self.apply_linear(hidden, f"blocks.{layer}.feed_forward.down"))
        return normed, hidden, out

    def final_norm(self, x: Array, hook: Hook = no_hook) -> Array:
        """(B, T, C) -> (B, T, C). Applies the last norm, before the logits."""
        return hook("final_norm", self.config.n_layer, self.apply_norm(x, "norm"))

    def logits(self, stream: Array, hook: Hook = no_hook) -> Array:
        """(…, C) -> (…, vocab_size)"""
        return hook("logits", self.config.n_layer, stream @ self._output)

    def weight_and_bias(self, name: str) -> tuple[Array, Array | None]:
        """Returns weight and bias (None without bias) of a linear layer or a norm. The weight is
        (out, in) in a linear layer and (C,) in a norm.
        """
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def apply_norm(self, x: Array, name: str) -> Array:
        """(…, C) -> (…, C). Applies the layer norm of this name (Ba et al. 2016)."""
        weight, bias = self.weight_and_bias(name)
        x = centred(x)
        mean_square = np.einsum("...c,...c->...", x, x)[..., None] / x.dtype.type(x.shape[-1])
        normed: Array = x / np.sqrt(mean_square + x.dtype.type(EPSILON)) * weight
        return normed if bias is None else normed + bias

    def apply_linear(self, x: Array, name: str) -> Array:
        """(B, T, in) -> (B, T, out). Applies a linear layer, as one large matrix product."""
        weight, bias = self.weight_and_bias(name)
        product = x.reshape(-1, x.shape[-1]) @ weight.T
        y: Array = product.reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias
