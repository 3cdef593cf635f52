"""The parts of a trained model once more, in float64 and in the plainest form.

What the reader computes fast is held to this. Knows neither text nor lesson.
Tensor names: T time, C n_embd, D head_size.
"""

from __future__ import annotations

import numpy as np

from gpt.checks import Check
from gpt.reading.reader import EPSILON, Array, Reader

CLOSE = 1e-5  # float32 against float64, relative to the largest number where that is over 1


class Exact:
    """A reader's weights and what is done with them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def weight(self, name: str) -> Array:
        """A stored tensor in float64."""
        return self.reader.tensors[name].astype(np.float64)

    def norm(self, x: Array, name: str) -> Array:
        """(..., C) -> (..., C), with the gain and the bias that the tensors have."""
        x = x.astype(np.float64)
        if self.reader.config.norm == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        normed = unit(x)
        if f"{name}.weight" in self.reader.tensors:
            normed = normed * self.weight(f"{name}.weight")
        if f"{name}.bias" in self.reader.tensors:
            normed = normed + self.weight(f"{name}.bias")
        return normed

    def gains(self, norm: str) -> str:
        """The names of the tensors that a norm multiplies with and adds, if it does."""
        return " and ".join(
            name for name in (f"{norm}.weight", f"{norm}.bias") if name in self.reader.tensors
        )

    def apply(self, x: Array, name: str) -> Array:
        """(..., columns) -> (..., rows) through a linear layer."""
        y: Array = x.astype(np.float64) @ self.weight(f"{name}.weight").T
        bias = f"{name}.bias"
        return y + self.weight(bias) if bias in self.reader.tensors else y


def unit(x: Array) -> Array:
    """x / √(mean(x²) + epsilon) over the last axis."""
    normed: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)
    return normed


def turned(x: Array) -> Array:
    """(T, D) rotary positions as complex products (Su et al. 2021)."""
    T, size = x.shape
    rates = 10_000.0 ** (-np.arange(size // 2) / (size // 2))
    turns = np.exp(1j * np.outer(np.arange(T), rates))  # (T, D/2)
    pairs = (x[:, ::2] + 1j * x[:, 1::2]) * turns
    return np.stack((pairs.real, pairs.imag), axis=-1).reshape(T, size)


def close(name: str, found: Array, expected: Array, reach: float = 1.0) -> Check:
    """That float32 is near float64, relative to the largest number where that is over 1.

    reach: the largest of what went into a softmax, whose error its result has.
    """
    error = float(np.abs(found - expected).max())
    return Check(name, error, CLOSE * max(1.0, float(np.abs(expected).max()), reach))
