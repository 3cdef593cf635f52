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

from gpt.blocks import Block, Cell, Column, Facts, Note, Paragraph, Records, Table, Title
from gpt.checks import TableResult
from gpt.reading.layers import Array
from gpt.words import bits, counted

WAVES = 64  # number of the slowest cosine waves; each half wave has at least PERIOD characters
PERIOD = 10
FEW, SEVERAL = 2, 8  # how many waves the error is estimated from
STRONGER = 2.0  # if the FEW slowest waves are this many times stronger, only they are used
#: Degrees of freedom -> the 97.5 % quantile of Student's t, rounded to 0.001.
QUANTILES = {FEW: 4.303, SEVERAL: 2.3055913462322537}


@dataclass(frozen=True, repr=False)
class Paired(TableResult):
    """The same `characters` under two models: the mean nats of each, and of their difference.

    error: standard error of the difference; freedom: the number of cosine waves that it is
    estimated from. Both hold for these two models on text of this kind; models of the same recipes
    with other seeds differ more. They are NaN and 0 if the text is too short. names: of both
    models.
    """

    first: float
    second: float
    error: float
    freedom: int
    characters: int
    names: tuple[str, str] = ("first", "second")

    def __repr__(self) -> str:
        interval = "too short for an interval"
        if self.interval is not None:
            interval = "95 % interval {:+.4f} to {:+.4f}".format(*self.interval)
        return (
            f"<Paired {self.names[0]} {self.first:.4f}, {self.names[1]} {self.second:.4f} nats: "
            f"difference {self.difference:+.4f}, {interval}>"
        )

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
    def verdict(self) -> str:
        """Which model predicts better, or how large a difference this text can show."""
        if self.sure:
            return f"{self.names[int(self.difference < 0)]} predicts better"
        least = f"this text can only show differences of {self.detectable or 0:.4f} nats or more"
        return "too close to tell" + (f": {least}" if self.freedom else "")

    def blocks(self) -> list[Block]:
        """Both losses, the interval of their difference, and which model is better."""
        rows = [
            [Cell(name), Cell(f"{nats:.4f}"), Cell(f"{bits(nats):.3f}")]
            for name, nats in zip(self.names, (self.first, self.second), strict=True)
        ]
        columns = [
            Column("model", left=True),
            Column("nats a character"),
            Column("bits a character"),
        ]
        difference = f"{_signed(self.difference)} nats a character"
        if self.interval is None:
            difference += "; the text is too short for an interval"
        else:
            difference += ", 95 % interval {} to {}".format(*map(_signed, self.interval))
        remark = "this compares two models; to compare recipes, train several seeds of each"
        return [
            Title("two models", [counted(self.characters, "character")]),
            Table(columns, rows),
            Facts({"difference": difference}),
            Paragraph(self.verdict, "strong"),
            Note(remark),
        ]

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers for programs. interval (95 %) and error: None if the text is too short."""
        names = ("first", "second", "difference", "error", "freedom", "interval", "detectable")
        found = {name: getattr(self, name) for name in (*names, "sure", "characters")}
        return found if self.freedom else found | {"error": None}

    def records(self) -> Records:
        """One row."""
        return Records({name: [value] for name, value in self.numbers.items()})


def _signed(nats: float) -> str:
    """ "+0.7532", "−0.0048" """
    return f"{nats:+.4f}".replace("-", "−")


def compare_paired(
    first: Array, second: Array, names: tuple[str, str] = ("first", "second")
) -> Paired:
    """Compares the surprisals of the same (n,) characters under two models, n ≥ 1."""
    a, b = (nats.astype(np.float64) for nats in (first, second))
    error, freedom = mean_error(b - a)
    return Paired(float(a.mean()), float(b.mean()), float(error), int(freedom), len(a), names)


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
