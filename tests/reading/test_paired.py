"""The 95 % interval of a difference contains the mean in 93–97 of 100 texts with any dependence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gpt.reading.paired import FEW, QUANTILES, SEVERAL, STRONGER, Paired, compare_paired, mean_error

Numbers = npt.NDArray[np.float64]
#: 97.5 % quantiles of Student's t for 2 to 16 degrees of freedom.
STUDENT = (
    *(4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120),
)


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
        *((40, 0.0, True), (40, 0.42, False), (40, 0.7, True), (300, 0.1, True)),
        *((300, 0.7, False), (3000, 0.0, False), (3000, 0.1, False), (3000, 0.42, True)),
    ],
)
def test_interval_covers_for_correlated_characters(length: int, lag1: float, heavy: bool) -> None:
    assert 0.93 <= coverage(autoregressive((1500, length), lag1, heavy)) <= 0.97


@pytest.mark.parametrize("lag1", [0.1, 0.42, 0.7])
def test_interval_covers_for_correlated_windows(lag1: float) -> None:
    """The former estimate (independent windows) covers in 93, 80 and 60 of 100."""
    values = np.repeat(autoregressive((1500, 100), lag1), 16, axis=1)  # 100 windows of 16
    values += 2 * np.random.default_rng(12).normal(size=values.shape)
    assert 0.93 <= coverage(values) <= 0.97


@pytest.mark.parametrize("strength", [0.0, 5.0, 50.0])
def test_interval_of_one_half_contains_the_mean_of_the_other(strength: float) -> None:
    """Slow waves as in a text of many scenes: power proportional to 1 / frequency, and noise."""
    random, length = np.random.default_rng(13), 1024
    waves = np.fft.rfft(random.normal(size=(800, 8 * length)))  # cut from a longer text
    numbers = np.arange(1, waves.shape[1])
    waves[:, 1:] *= np.sqrt(1 + strength * 8 / numbers)
    halves = np.fft.irfft(waves)[:, : 2 * length].reshape(-1, length)
    error, freedom = mean_error(halves)
    squares, means = error**2, halves.mean(axis=1)
    both = squares[::2] + squares[1::2]
    welch = both**2 / (squares[::2] ** 2 / freedom[::2] + squares[1::2] ** 2 / freedom[1::2])
    reach = np.take(STUDENT, welch.astype(int) - 2) * np.sqrt(both)
    assert 0.93 <= np.mean(np.abs(means[::2] - means[1::2]) <= reach) <= 0.97


def test_error_is_the_mean_square_of_the_slowest_waves() -> None:
    random = np.random.default_rng(4)
    a, noise = random.random(1200), random.normal(size=1200)
    found = compare_paired(a, a + 0.3 + noise)
    assert found.difference == pytest.approx(0.3 + noise.mean())
    at = (np.arange(1200) + 0.5) / 1200
    powers = [np.sum(noise * np.cos(np.pi * wave * at)) ** 2 / 600 for wave in range(1, 65)]
    assert np.mean(powers[:FEW]) < STRONGER * np.mean(powers[FEW:])
    assert found.error == pytest.approx(math.sqrt(np.mean(powers[:SEVERAL]) / 1200))
    assert (found.freedom, found.characters) == (SEVERAL, 1200)
    slow = compare_paired(a, a + noise + np.cos(np.pi * at))  # one half of the text differs
    powers = [
        np.sum((noise + np.cos(np.pi * at)) * np.cos(np.pi * wave * at)) ** 2 / 600
        for wave in (1, 2)
    ]
    assert slow.error == pytest.approx(math.sqrt(np.mean(powers) / 1200))
    assert slow.freedom == FEW


@pytest.mark.parametrize("length", [1, 2, 19, 20, 21, 159, 160, 700])
def test_an_interval_exists_from_20_characters_on(length: int) -> None:
    a, b = np.random.default_rng(1).random((2, length))
    found = compare_paired(a, b)
    assert (found.interval is None) == math.isnan(found.error) == (length < 20)
    if found.interval:
        low, high = found.interval
        assert low < found.difference < high
        assert high - low == pytest.approx(2 * QUANTILES[found.freedom] * found.error)
    else:
        assert not found.sure
    assert compare_paired(a, a).difference == 0
    assert not compare_paired(a, a).sure


def test_difference_is_significant_if_zero_is_outside_the_interval() -> None:
    values: dict[str, Any] = {"first": 1.0, "freedom": 8, "characters": 1000}
    for second, error, sure in ((1.2, 0.05, True), (0.8, 0.05, True), (1.1, 0.05, False)):
        assert Paired(second=second, error=error, **values).sure is sure


def test_quantiles_equal_the_table_of_students_t() -> None:
    for freedom, quantile in QUANTILES.items():
        assert quantile == pytest.approx(STUDENT[freedom - 2], abs=0.001)


def test_a_comparison_for_programs_has_the_interval_or_null() -> None:
    a = np.random.default_rng(2).random(500)
    numbers = compare_paired(a, a[::-1] + 0.5).numbers
    assert list(numbers) == (
        "first second difference error freedom interval detectable sure characters".split()
    )
    low, high = numbers["interval"]
    assert low < numbers["difference"] < high
    assert (numbers["sure"], numbers["characters"]) == (True, 500)
    assert numbers["detectable"] == pytest.approx((high - low) / 2)
    short = compare_paired(a[:5], a[5:10]).numbers
    assert (short["error"], short["interval"], short["detectable"]) == (None, None, None)
