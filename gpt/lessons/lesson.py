"""A lesson as data: steps of sentences, formulas, tables of numbers, and checks of the numbers.

Tutorials (torch) and `own_model` (numpy) make lessons; the terminal, JSON and a page show them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.blocks import Block, Cell, Checks, Column, Fold, Formula, Note, Paragraph, Records, Title
from gpt.blocks import Table as Grid
from gpt.characters import cut, label
from gpt.checks import Check, Result, TableResult
from gpt.config.fields import require

Values = npt.NDArray[np.floating[Any]] | npt.NDArray[np.integer[Any]]

MOST_ROWS = 32  # most words or characters for which all numbers are shown
MOST, SHOWN = 8, 6  # a table with more than MOST columns without names shows only SHOWN of them
SHOWN_ROWS = 7  # rows shown of a long table: the first third of them, then the last ones
SAVED = 4  # this many rows or fewer are never left out, as a note takes three lines
LABEL = 10  # cells of a word beside or above its numbers, at most
DIGITS = 4
LARGEST = 1e3  # largest number in an embedding, so that products still fit a line


@dataclass(frozen=True, repr=False)
class Table(TableResult):
    """A tensor whose last two axes have names.

    values: (columns,), (rows, columns) or (slices, rows, columns). rows, columns: the labels of an
    axis, words or characters; without labels, indices are shown. numbered: rows are positions in a
    text and also show their number, and so do columns with the same characters. source: the weights
    that the numbers come from. digits: number of decimals, overrides --digits (ids, masks).
    rule: an expression in numpy's notation that computes the numbers from earlier tables of the
    lesson, named by their keys; empty if they do not follow from earlier tables.
    """

    name: str
    values: Values
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    numbered: bool = False
    source: str = ""
    digits: int | None = None
    rule: str = ""

    def __repr__(self) -> str:
        return f"<Table {self.name} {self.values.shape}>"

    @property
    def key(self) -> str:
        """ "weights" for the name "weights of “journey”"; rules of later tables use it."""
        return re.sub(r"\W+", "_", self.name.partition(" of ")[0]).strip("_")

    @property
    def shape(self) -> str:
        """ "(6, 3)" """
        return f"({', '.join(map(str, self.values.shape))})"

    def blocks(self, digits: int = DIGITS, full: bool = False) -> list[Block]:
        """Name and shape, the source of the numbers, and the numbers.

        Without `full`, a long table shows only the first and the last rows, and a table with more
        than MOST columns without names only the first columns; a note says what is left out.
        """
        digits = digits if self.digits is None else self.digits
        count = self.values.shape[-1]
        values: npt.NDArray[Any] = np.atleast_2d(self.values)
        height = values.shape[-2]
        shown = count if full or self.columns or count <= MOST else SHOWN
        names, notes = self._row_names(height), [f"from {self.source}"] * bool(self.source)
        first = last = height
        if not full and height - SHOWN_ROWS > SAVED:
            first, last = SHOWN_ROWS // 3, height - (SHOWN_ROWS - SHOWN_ROWS // 3)
            left_out = str(first) if last == first + 1 else f"{first}–{last - 1}"
            notes.append(f"rows {left_out} left out; --full shows all")
        if shown < count:
            notes.append(f"the first {shown} of {count} columns; --full shows all")
        kept = [*range(first), *range(last, height)]
        columns = [Column(name) for name in self._column_names(shown)]
        tables: list[Block] = []
        for nth, matrix in enumerate(values.reshape(-1, height, count)[:, :, :shown].tolist()):
            rows = [
                [Cell(names[n]), *(Cell(digits_of(each, digits)) for each in matrix[n])]
                for n in kept
            ]
            if last > first:
                rows.insert(first, [Cell("…", tone="dim")] * (1 + shown))
            corner = f"[{nth}]" if self.values.ndim == 3 else ""
            tables.append(Grid([Column(corner, left=True), *columns], rows))
        title = Paragraph(f"{self.name} {self.shape}", "strong")
        return [title, *(Note(each) for each in notes), *tables]

    def _row_names(self, height: int) -> list[str]:
        """A label for each row; None for a single row without a name."""
        if self.values.ndim == 1:
            return [""]
        if not self.rows:
            return [str(row) for row in range(height)]
        names = [name_of(row) for row in self.rows]
        wide = len(str(height - 1))
        return [f"{n:>{wide}} {name}" for n, name in enumerate(names)] if self.numbered else names

    def _column_names(self, count: int) -> list[str]:
        """A label for each column: its name or number; both for the same positions as rows."""
        if not self.columns:
            return [str(column) for column in range(count)]
        names = [name_of(column) for column in self.columns]
        both = self.numbered and self.rows in ((), self.columns)
        return [f"{n} {name}" for n, name in enumerate(names)] if both else names

    def records(self) -> Records:
        """A row for each row of numbers. Raises ValueError for a tensor with three axes."""
        if self.values.ndim > 2:
            raise ValueError(f"{self.name} has three axes; to_numpy() gives it as an array")
        values = np.atleast_2d(self.values)
        names = {"row": [*self.rows]} if self.rows else {}
        columns = self.columns or tuple(map(str, range(values.shape[1])))
        return Records({**names, **dict(zip(columns, values.T, strict=True))})

    @property
    def record(self) -> dict[str, Any]:
        """The table for JSON: all numbers in full."""
        names = {"rows": self.rows, "columns": self.columns, "source": self.source}
        return {"name": self.name, "shape": self.values.shape, **names, "values": self.values}

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
    """One step: a title, text, formulas and tables, what to notice, and checks."""

    title: str
    text: str
    formula: str = ""
    tables: tuple[Table, ...] = ()
    notice: str = ""
    checks: tuple[Check, ...] = ()

    def blocks(self, digits: int = DIGITS, full: bool = False) -> list[Block]:
        """Its text, formula, tables, what to notice and checks."""
        return [
            Paragraph(self.text),
            *[Formula(self.formula)] * bool(self.formula),
            *(block for table in self.tables for block in table.blocks(digits, full)),
            *[Paragraph(f"→ {self.notice}")] * bool(self.notice),
            *[Checks(self.checks)] * bool(self.checks),
        ]

    @property
    def record(self) -> dict[str, Any]:
        """The step for JSON."""
        texts = {"title": self.title, "text": self.text, "formula": self.formula}
        tables = [table.record for table in self.tables]
        checks = [check.record for check in self.checks]
        return {**texts, "tables": tables, "notice": self.notice, "checks": checks}


@dataclass(frozen=True, repr=False)
class Lesson(Result):
    """A lesson: its name, its subject in one line, and its steps.

    note: a remark on all of its numbers. end: what to do after the lesson.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    note: str = ""
    end: str = ""

    def __repr__(self) -> str:
        checks = sum(len(step.checks) for step in self.steps)
        failed = f"FAILED checks: {', '.join(self.failed)}" if self.failed else "all passed"
        return f"<Lesson {self.name}: {len(self.steps)} steps, {checks} checks, {failed}>"

    @property
    def failed(self) -> list[str]:
        """The names of the checks that did not pass."""
        return [check.name for step in self.steps for check in step.checks if not check.passed]

    def blocks(self, digits: int = DIGITS, full: bool = False) -> list[Block]:
        """The steps, each below its title. full: show all rows and columns of tables.

        Raises ConfigError for digits outside 0 … 9.
        """
        require(0 <= digits <= 9, "digits", f"{digits} is not in 0 … 9")
        steps = [
            Fold(f"{number}. {step.title}", step.blocks(digits, full), opened=number == 1)
            for number, step in enumerate(self.steps, 1)
        ]
        failed = f"FAILED checks: {', '.join(self.failed)}"
        return [
            Title(self.name, [self.about]),
            *[Paragraph(failed, "gone")] * bool(self.failed),
            *[Paragraph(self.note)] * bool(self.note),
            *steps,
            *[Note(self.end)] * bool(self.end),
        ]

    def save(self, path: str | Path, answers: bool = False) -> Path:
        """Writes the lesson as a page to teach from, like `gptx explain -o lesson.html`.

        answers: show all results. Raises ConfigError for another ending, StorageError.
        """
        found: Path = showing.renderer().save_lesson(self, path, answers)
        return found

    def records(self) -> Records:
        """The lesson for programs: all numbers in full, null if not finite (masked)."""
        about = {"lesson": self.name, "about": self.about, "note": self.note}
        return Records(facts={**about, "steps": [step.record for step in self.steps]})


@dataclass(frozen=True)
class Material:
    """A lesson's input: words, a row of numbers for each, and a seed for random weights.

    embeddings: (words, width), float64. seed: None = the lesson's default. own: whether the user
    gave words or numbers; a lesson then leaves out remarks on the tutorials' numbers. drawn: the
    seed with which embeddings were drawn, None if they were given. Raises ConfigError for too many
    rows or columns, and for numbers that are not finite or too large.
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

    def seed_or(self, default: int) -> int:
        """The given seed, or the lesson's default."""
        return default if self.seed is None else self.seed

    @property
    def query(self) -> int:
        """The index of the word whose query is shown: the second word, as in the tutorials."""
        return min(1, len(self.words) - 1)


def digits_of(value: float, digits: int) -> str:
    """A number as tables show it: 0.9544, −0.0739, −∞; large numbers as 1.2e+09, unless whole."""
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    whole = isinstance(value, int)  # every digit of ids and row numbers counts
    text = f"{value:.1e}" if abs(value) >= 1e6 and not whole else f"{value:.{digits}f}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]  # a number that is shown as zero has no minus sign
    return text.replace("-", "−")


def name_of(text: str) -> str:
    """A word or a character as a short, visible label without control characters."""
    if len(text) == 1:
        return label(text)
    marked = (  # spaces, and marks on the letter before, stay
        each if each == " " or unicodedata.category(each) == "Mn" else label(each) for each in text
    )
    return cut("".join(marked), LABEL)
