"""Compares two models on one text: the mean difference of their surprisals, with a 95 %
interval.

Neighbouring characters depend on each other, and so do neighbouring scenes: one model may be better
at verse, the other at prose. The interval takes this into account. Uses surprisals only, no models
and no text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.reading.layers import Array

WAVES = 64  # number of the slowest cosine waves; each half wave has at least PERIOD characters
PERIOD = 10
FEW, SEVERAL = 2, 8  # how many waves the error is estimated from
STRONGER = 2.0  # if the FEW slowest waves are this many times stronger, only they are used
#: Degrees of freedom -> the 97.5 % quantile of Student's t, rounded to 0.001.
QUANTILES = {FEW: 4.303, SEVERAL: 2.3055913462322537}


@dataclass(frozen=True)
class Paired:
    """The same `characters` under two models: the mean nats of each, and of their difference.

    error: standard error of the difference; freedom: the number of cosine waves that it is
    estimated from. Both hold for these two models on text of this kind; models of the same recipes
    with other seeds differ more. They are NaN and 0 if the text is too short.
    """

    first: float
    second: float
    error: float
    freedom: int
    characters: int

    @property
    def difference(self) -> float:
        """second − first: below 0 if the second model predicts better."""
        return self.second - self.first

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval of the difference (Student's t); None without an error."""
        reach = self.detectable
        return None if reach is None else (self.difference - reach, self.difference + reach)

    @property
    def detectable(self) -> float | None:
        """Half the interval's width: this text cannot show smaller differences."""
        return QUANTILES[self.freedom] * self.error if self.freedom else None

    @property
    def sure(self) -> bool:
        """Whether zero lies outside the interval."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers for programs. interval (95 %) and error: None if the text is too short."""
        names = ("first", "second", "difference", "error", "freedom", "interval", "detectable")
        numbers = {name: getattr(self, name) for name in (*names, "sure", "characters")}
        return numbers if self.freedom else {**numbers, "error": None}


def compare_paired(first: Array, second: Array) -> Paired:
    """Compares the surprisals of the same (n,) characters under two models, n ≥ 1."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    error, freedom = mean_error(b - a)
    return Paired(float(a.mean()), float(b.mean()), float(error), int(freedom), len(a))


def mean_error(values: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """(…, n) values in the text's order -> (…,) standard errors of means, (…,) degrees of freedom.

    The mean square of the projections onto the slowest cosine waves: the orthonormal series
    estimator for the variance of the mean of dependent values (Lazarus, Lewis, Stock & Watson 2018,
    "HAR Inference"). It uses SEVERAL waves if the FEW slowest are about as strong as the others of
    the WAVES. If they are stronger, the dependence is as long as the text, and only those FEW waves
    measure it. NaN and 0 for fewer than FEW * PERIOD values.
    """
    n = values.shape[-1]
    waves = min(WAVES, n // PERIOD)
    if waves < FEW:
        return np.full(values.shape[:-1], math.nan), np.zeros(values.shape[:-1], np.int64)
    centred = values - values.mean(axis=-1, keepdims=True)
    angles = np.pi * (np.arange(n) + 0.5) / n
    powers = np.stack(  # (waves, …)
        [2 / n * (centred @ np.cos(wave * angles)) ** 2 for wave in range(1, waves + 1)]
    )
    slow: npt.NDArray[Any] = np.full(powers.shape[1:], True)
    if waves >= 2 * SEVERAL:
        slow = powers[:FEW].mean(axis=0) > STRONGER * powers[FEW:].mean(axis=0)
    freedom = np.where(slow, FEW, SEVERAL)
    variance = np.where(slow, powers[:FEW].mean(axis=0), powers[:SEVERAL].mean(axis=0))
    return np.sqrt(variance / n), freedom
