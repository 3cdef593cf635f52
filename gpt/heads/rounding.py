"""Bounds on how much float32 may differ from float64, and the differences found.

A computed product equals the exact product of numbers that are off by some rounding errors each
(Higham 2002, ch. 3). So its error is in proportion to the lengths of the factors, even if the
product is small. These lengths are a stage's `reach`; a stage that is computed from the stage
before it may be off by UNITS times its reach.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpt.reading.layers import Array

#: Type of the numbers -> the error that a stage may have, as a part of its reach. float32: 16 units
#: in the last place; random and trained models of 16 to 384 columns need up to half of it
#: (benchmarks/LOG.md). float64: the recomputation has rounding errors of the same size.
UNITS = {np.dtype(np.float32): 2.0**-19, np.dtype(np.float64): 1e-12}
#: An error and its bound.
Held = tuple[float, float]


def held(found: Array, expected: Array, reach: Array | float) -> Held:
    """The row with the largest ratio of error to bound; NaN counts as largest."""
    with np.errstate(invalid="ignore"):
        apart = found - expected
        error = np.abs(apart, out=apart).max(axis=-1)
        if np.isnan(error).any():  # for example a difference of equal infinities
            apart[found == expected] = 0.0
            error = apart.max(axis=-1)
    bound = np.broadcast_to(UNITS[found.dtype] * np.asarray(reach), (*error.shape, 1))[..., 0]
    return worst(zip(error.ravel().tolist(), bound.ravel().tolist(), strict=True))


def worst(results: Iterable[Held]) -> Held:
    """The error with the largest ratio to its bound; NaN counts as largest."""
    errors, bounds = np.array(list(results)).T
    place = int(np.argmax(errors / np.maximum(bounds, np.finfo(np.float64).tiny)))
    return float(errors[place]), float(bounds[place])
