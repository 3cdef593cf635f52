"""How far float32 may be from float64, and how far it is.

A computed product is the exact one of weights that are off by some rounding errors each (Higham
2002, ch. 3): its error follows the lengths of what is multiplied, however small the product. That
length is a stage's `reach`; a stage, computed from the stage before it, is within UNITS of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpt.reading.reader import Array

#: The error that a stage may have, as a part of its reach, by the type of its numbers. float32: 16
#: units in the last place; random and trained models of 16 to 384 columns need up to half of it
#: (benchmarks/LOG.md). float64: the recomputation rounds as much itself.
UNITS = {np.dtype(np.float32): 2.0**-19, np.dtype(np.float64): 1e-12}
#: An error and its bound.
Held = tuple[float, float]


def held(found: Array, expected: Array, reach: Array | float) -> Held:
    """The row whose error comes nearest to its bound or exceeds it by most; a NaN before all."""
    with np.errstate(invalid="ignore"):
        error = np.abs(found - expected).max(axis=-1)
        if np.isnan(error).any():  # of equal infinities, or worse
            error = np.where(found == expected, 0.0, np.abs(found - expected)).max(axis=-1)
    bound = np.broadcast_to(UNITS[found.dtype] * np.asarray(reach), (*error.shape, 1))[..., 0]
    return worst(zip(error.ravel().tolist(), bound.ravel().tolist(), strict=True))


def worst(results: Iterable[Held]) -> Held:
    """The error that comes nearest to its bound or exceeds it by most; a NaN before all."""
    errors, bounds = np.array(list(results)).T
    place = int(np.argmax(errors / np.maximum(bounds, np.finfo(np.float64).tiny)))
    return float(errors[place]), float(bounds[place])
