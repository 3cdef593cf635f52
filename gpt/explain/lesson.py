"""A lesson as data: steps of sentences, formulas, tables of numbers, and checks of the numbers.

The tutorials (torch) and `own_model` (numpy) compute lessons; the terminal, JSON and a page show
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import Check, Result, TableResult
from gpt.config.fields import require

Values = npt.NDArray[np.floating[Any]] | npt.NDArray[np.integer[Any]]

MOST_ROWS = 32  # most words or characters of a text whose numbers are all shown
LARGEST = 1e3  # largest number in an embedding: products still fit a line


@dataclass(frozen=True, repr=False)
class Table(TableResult):
    """A tensor whose last two axes have names.

    values: (columns,), (rows, columns) or (slices, rows, columns). rows and columns: the labels of
    an axis, words or characters; without labels, indices are shown. numbered: rows are positions of
    a text and also show their number, as do columns of the same characters. source: the weights
    that the numbers come from. digits: number of decimals instead of --digits (ids, masks).
    """

    name: str
    values: Values
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    numbered: bool = False
    source: str = ""
    digits: int | None = None

    def __repr__(self) -> str:
        return f"<Table {self.name} {self.values.shape}>"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.values.ndim <= 3 or not self.values.size:
            raise ValueError(f"{self.name}: a tensor of shape {self.values.shape} is no table")
        for labels, axis in ((self.columns, -1), (self.rows, -2)):
            size = self.values.shape[axis] if self.values.ndim >= -axis else 1
            if labels and len(labels) != size:
                raise ValueError(f"{self.name}: {len(labels)} labels for {size} of axis {axis}")


@dataclass(frozen=True)
class Step:
    """One step: a title, its text, formula and tables, a notice, and checks."""

    title: str
    text: str
    formula: str = ""
    tables: tuple[Table, ...] = ()
    notice: str = ""
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, repr=False)
class Lesson(Result):
    """A lesson's name, its subject in one line, and its steps.

    note: a remark on all of its numbers.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    note: str = ""

    def __repr__(self) -> str:
        checks = sum(len(step.checks) for step in self.steps)
        failed = f"FAILED checks: {', '.join(self.failed)}" if self.failed else "all passed"
        return f"<Lesson {self.name}: {len(self.steps)} steps, {checks} checks, {failed}>"

    @property
    def failed(self) -> list[str]:
        """The names of the checks that did not pass."""
        return [check.name for step in self.steps for check in step.checks if not check.passed]


@dataclass(frozen=True)
class Material:
    """A lesson's input: words, a row of numbers for each, and a seed for random weights.

    embeddings: (words, width), float64. seed: None = the lesson's default. own: whether the user
    gave words or numbers; a lesson then leaves out remarks on the tutorials' numbers. drawn: the
    seed of random embeddings, None if they were given. Raises ConfigError for too many rows or
    columns, and for numbers that are not finite or too large.
    """

    words: tuple[str, ...]
    embeddings: npt.NDArray[np.float64]
    seed: int | None = None
    own: bool = False
    drawn: int | None = None

    def __post_init__(self) -> None:
        rows, columns = self.embeddings.shape
        reason = f"{rows} words; a lesson shows every number, so give 1 to {MOST_ROWS}"
        require(1 <= rows <= MOST_ROWS, "text", reason)
        reason = f"{rows} rows for {len(self.words)} words; give a row for each word"
        require(rows == len(self.words), "embeddings", reason)
        reason = f"{columns} numbers in a row; give 1 to {MOST_ROWS}"
        require(1 <= columns <= MOST_ROWS, "embeddings", reason)
        reason = f"a number is not finite or beyond ±{LARGEST:,.0f}; scale them down"
        within = bool((np.abs(self.embeddings) <= LARGEST).all())  # False for NaN
        require(within, "embeddings", reason)

    @property
    def query(self) -> int:
        """The index of the word whose query is shown: the second, as in the tutorials."""
        return min(1, len(self.words) - 1)
