"""The 95 % interval of a difference contains the mean in 93–97 of 100 texts with any dependence."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from gpt.reading.score import FEW, QUANTILES, SEVERAL, STRONGER, compare_paired, mean_error

Numbers = npt.NDArray[np.float64]


def coverage(values: Numbers) -> float:
    """How often the interval of a row's mean contains the true mean, 0."""
    error, freedom = mean_error(values)
    reach = np.where(freedom == FEW, QUANTILES[FEW], QUANTILES[SEVERAL]) * error
    return float(np.mean(np.abs(values.mean(axis=1)) <= reach))


def autoregressive(shape: tuple[int, int], lag1: float, heavy: bool = False) -> Numbers:
    """(R, n) noise around 0 whose neighbours have this correlation."""
    random = np.random.default_rng(11)
    steps = random.standard_t(4, shape[::-1]) if heavy else random.normal(size=shape[::-1])
    steps[0] /= math.sqrt(1 - lag1**2)
    for at in range(1, shape[1]):
        steps[at] += lag1 * steps[at - 1]
    return np.ascontiguousarray(steps.T)


@pytest.mark.parametrize(
    ("length", "lag1", "heavy"),
    [
        (40, 0.42, False),
        (40, 0.7, True),
        (300, 0.7, False),
        (3000, 0.0, False),
        (3000, 0.42, True),
    ],
)
def test_interval_covers_for_correlated_characters(length: int, lag1: float, heavy: bool) -> None:
    assert 0.93 <= coverage(autoregressive((1500, length), lag1, heavy)) <= 0.97


def test_error_is_the_mean_square_of_the_slowest_waves() -> None:
    random = np.random.default_rng(4)
    a, noise = random.random(1200), random.normal(size=1200)
    paired = compare_paired(a, a + 0.3 + noise)
    assert paired.difference == pytest.approx(0.3 + noise.mean())
    at = (np.arange(1200) + 0.5) / 1200
    powers = [np.sum(noise * np.cos(np.pi * wave * at)) ** 2 / 600 for wave in range(1, 65)]
    assert np.mean(powers[:FEW]) < STRONGER * np.mean(powers[FEW:])
    assert paired.error == pytest.approx(math.sqrt(np.mean(powers[:SEVERAL]) / 1200))
    assert (paired.freedom, paired.characters) == (SEVERAL, 1200)
    slow = compare_paired(a, a + noise + np.cos(np.pi * at))  # one half of the text differs
    powers = [
        np.sum((noise + np.cos(np.pi * at)) * np.cos(np.pi * wave * at)) ** 2 / 600
        for wave in (1, 2)
    ]
    assert slow.error == pytest.approx(math.sqrt(np.mean(powers) / 1200))
    assert slow.freedom == FEW


@pytest.mark.parametrize("length", [1, 19, 20, 160, 700])
def test_an_interval_exists_from_20_characters_on(length: int) -> None:
    a, b = np.random.default_rng(1).random((2, length))
    paired = compare_paired(a, b)
    assert (paired.interval is None) == math.isnan(paired.error) == (length < 20)
    if paired.interval:
        low, high = paired.interval
        assert low < paired.difference < high
        assert high - low == pytest.approx(2 * QUANTILES[paired.freedom] * paired.error)
        assert paired.sure == (not low <= 0 <= high)
    else:
        assert not paired.sure
    assert compare_paired(a, a).difference == 0
    assert not compare_paired(a, a).sure
