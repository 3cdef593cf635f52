"""Errors relative to their bounds: the result is the worst row, and NaN counts as the worst."""

from __future__ import annotations

import math

import numpy as np

from gpt.heads.proof import UNITS, held, worst

ONE = np.ones((2, 3), np.float32)
UNIT = UNITS[ONE.dtype]


def test_the_row_nearest_to_its_bound_is_given() -> None:
    found = ONE + np.float32([[4e-6, 0, 0], [0, 2e-6, 0]])
    reach = np.array([[10.0], [1.0]])
    error, bound = held(found, ONE.astype(np.float64), reach)
    assert 1.9e-6 < error < 2.1e-6
    assert bound == UNIT
    assert held(found, ONE.astype(np.float64), 1.0)[0] > 3e-6


def test_equal_infinities_have_no_error() -> None:
    masked = np.float32([[0.5, -np.inf]])
    assert held(masked, masked.astype(np.float64), 1.0) == (0.0, UNIT)
    for other in ([[0.5, -1e9]], [[-np.inf, -np.inf]], [[0.5, np.inf]]):
        assert held(np.float32(other), masked.astype(np.float64), 1.0)[0] == math.inf


def test_bound_is_zero_for_exact_checks() -> None:
    assert held(ONE, ONE.astype(np.float64), 0.0) == (0.0, 0.0)
    error, bound = held(ONE + np.float32(1e-6), ONE.astype(np.float64), 0.0)
    assert error > 0 == bound


def test_a_nan_counts_as_the_worst() -> None:
    assert math.isnan(worst([(0.1, 1.0), (math.nan, 1.0), (9.0, 1.0)])[0])
    assert worst([(0.1, 1.0), (9.0, 100.0), (0.2, 1.0)]) == (0.2, 1.0)
    assert worst([(0.0, 0.0), (1e-9, 0.0), (0.5, 1.0)]) == (1e-9, 0.0)
