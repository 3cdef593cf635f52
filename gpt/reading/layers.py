"""The parts of a block that treat each position by itself: gpt/model/layers.py in numpy.

Norm, activations and softmax. Tensor names: B batch, T time, C n_embd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
EPSILON = 1e-5
EDGE, FINE = 9, 64  # of the table of Φ: its last point, points per unit


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


def layer_norm(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    """(…, C) -> (…, C), normalised by the norm of this name (Ba et al. 2016)."""
    x = centred(x)
    mean_square = np.einsum("...c,...c->...", x, x)[..., None] / x.dtype.type(x.shape[-1])
    normed: Array = x / np.sqrt(mean_square + x.dtype.type(EPSILON)) * tensors[f"{name}.weight"]
    bias = tensors.get(f"{name}.bias")
    return normed if bias is None else normed + bias


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

    numpy has no erf: float64 uses `_cumulative`; float32 uses formula 7.1.26 of Abramowitz & Stegun
    1964 for Φ(−|x|), whose error is less than 1e-7.
    """
    if x.dtype == np.float64:
        rows = x.reshape(-1, x.shape[-1])  # one after the other, as their parts fit a core's cache
        x *= np.array([_cumulative(row) for row in rows]).reshape(x.shape)
        return x
    size: Array = np.abs(x)
    t = 1 / (1 + size * (0.3275911 * 0.5**0.5))
    tail = t * 1.061405429
    for each in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += each
        tail *= t
    tail *= np.exp(size * size * -0.5)
    tail *= size
    tail *= 0.5
    np.maximum(x, 0, out=x)
    x -= tail
    return x


@cache
def _tables() -> tuple[Array, Array, Array]:
    """The points from −EDGE to EDGE in steps of 1/FINE, Φ and its derivative φ there."""
    points = np.arange(-EDGE * FINE, EDGE * FINE + 1) / FINE
    whole = (1 + np.array([math.erf(point / 2**0.5) for point in points])) / 2
    return points, whole, np.exp(-points * points / 2) / (2 * np.pi) ** 0.5


def _cumulative(x: Array) -> Array:
    """Φ(x) in float64: its Taylor series of order 4 at the nearest point of a table. The error is
    less than 1e-12.
    """
    x = np.clip(x, -EDGE, EDGE)
    place = np.rint(np.nan_to_num(x) * FINE).astype(np.intp) + EDGE * FINE  # NaN stays NaN below
    point, whole, slope = (table[place] for table in _tables())
    d = x - point
    series: Array = (point * point - 1) / 6 - (point * point - 3) * point * d / 24
    series = 1 + d * (-point / 2 + d * series)
    return whole + slope * d * series


#: Each function overwrites its argument, (…, ffn_hidden), and returns it.
Activation = Callable[[Array], Array]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "relu": _relu,
    "relu2": _relu2,
}
