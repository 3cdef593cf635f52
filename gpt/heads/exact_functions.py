"""Norms, activations, positions and n-gram rows in float64, computed in the simplest way.

They check the reader's functions and share no code with them. Layers are in exact.py. Tensor names:
T time, C n_embd,
H heads, D head_size, N orders of n-grams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gpt.config import ModelConfig
from gpt.reading.layers import EPSILON, Array


def unit(x: Array) -> Array:
    """x / √(mean(x²) + epsilon) over the last axis."""
    normed: Array = x / root_mean_square(x)
    return normed


def root_mean_square(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)  # type: ignore[no-any-return]


def added_positions(config: ModelConfig, tensors: Mapping[str, Array], T: int) -> Array | None:
    """(T, C) that positions add to the embeddings; None for kinds that enter in attention."""
    if config.position == "learned":
        return tensors["position.weight"][:T].astype(np.float64)
    if config.position == "sinusoidal":  # Vaswani et al. 2017
        pairs = np.arange((config.n_embd + 1) // 2)
        angles = np.outer(np.arange(T), 10_000.0 ** (-2 * pairs / config.n_embd))
        turns = np.stack((np.sin(angles), np.cos(angles)), axis=-1)  # (T, C/2, 2)
        return turns.reshape(T, -1)[:, : config.n_embd]
    return None


def slopes(heads: int) -> Array:
    """(H,) by how much ALiBi lowers a score for each character of distance, also where H is not a
    power of two (Press, Smith & Lewis 2022).
    """
    power = 2 ** int(np.log2(heads))
    if heads == power:
        return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    return np.concatenate((slopes(power), slopes(2 * power)[::2]))[:heads]


def added_to_scores(config: ModelConfig, T: int) -> Array:
    """(H or 1, T, T) that positions add to scaled scores; 0 except for ALiBi."""
    if config.position != "alibi":
        return np.zeros((1, T, T))
    distances = np.abs(np.arange(T)[:, None] - np.arange(T))
    lowered: Array = -slopes(config.n_head)[:, None, None] * distances
    return lowered


def turned(config: ModelConfig, x: Array) -> Array:
    """(..., T, D) queries or keys with their positions: rotary ones as complex products (Su et al.
    2021); of other positions unchanged.
    """
    if config.position != "rotary":
        return x
    T, size = x.shape[-2:]
    rates = 10_000.0 ** (-np.arange(size // 2) / (size // 2))
    turns = np.exp(1j * np.outer(np.arange(T), rates))  # (T, D/2)
    pairs = (x[..., ::2] + 1j * x[..., 1::2]) * turns
    return np.stack((pairs.real, pairs.imag), axis=-1).reshape(x.shape)


def _relu(x: Array) -> tuple[Array, Array]:
    return np.maximum(x, 0), np.ones_like(x)


def _relu2(x: Array) -> tuple[Array, Array]:
    positive = np.maximum(x, 0)
    return positive * positive, 2 * positive


def _gelu(x: Array) -> tuple[Array, Array]:
    """The tanh form (Hendrycks & Gimpel 2016)."""
    curve = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))
    return x / 2 * (1 + curve), np.ones_like(x)


def _gelu_erf(x: Array) -> tuple[Array, Array]:
    """x·Φ(x) (Hendrycks & Gimpel 2016); Φ(x) = erfc(−x/√2)/2."""
    below = np.array([math.erfc(-each / 2**0.5) for each in x.flat]).reshape(x.shape)
    return x * below / 2, np.ones_like(x)


def _swiglu(x: Array) -> tuple[Array, Array]:
    """SiLU of the first half times the second (Shazeer 2020). SiLU's slope is at most 1.1."""
    gate, up = np.split(x, 2, axis=-1)
    with np.errstate(over="ignore"):  # e^(−gate) beyond float64: SiLU is 0
        silu = gate / (1 + np.exp(-gate))
    return silu * up, np.abs(silu) + 1.1 * np.abs(up)


#: (T, columns) -> its activation, and the factor by which each number passes on an error.
ACTIVATIONS = {
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "relu": _relu,
    "relu2": _relu2,
    "swiglu": _swiglu,
}
