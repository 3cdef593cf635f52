"""What a result says of itself: a title, tables, texts, notes. Every renderer shows these.

A result's method `blocks` returns them, and renderers (gpt/view) know nothing else of results.
Texts are plain: a renderer escapes control characters, writes labels and signs in ASCII where it
has to, and fits the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpt.checks import Check

#: How a text looks: dim is less important, strong stands out, good agrees with the text, gone was
#: removed.
Tone = Literal["", "dim", "strong", "good", "gone"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    share: its strength in 0 … 1, which shades it; in a column of bars the length of its bar. curve:
    values in 0 … 1 that are drawn as a small curve, NaN for unknown ones. hint: more about the
    text, shown only under a mouse.
    """

    text: str
    share: float | None = None
    tone: Tone = ""
    hint: str = ""
    curve: Sequence[float] = ()


@dataclass(frozen=True)
class Column:
    """A column of a table. left: its texts begin at the left, as those of names do. bars: each cell
    has a bar, whose full width is 1. spare: a narrow page leaves it out.
    """

    title: str = ""
    left: bool = False
    bars: bool = False
    spare: bool = False


@dataclass(frozen=True)
class Title:
    """The heading of a result: its name, and facts about it."""

    name: str
    facts: Sequence[str] = ()


@dataclass(frozen=True)
class Facts:
    """Names and facts; empty facts are left out, long ones are wrapped."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more, as important as the tables. tone: as of a cell."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Passage:
    """A text as it is, line by line.

    values: (n,) one for each character, which colours it, from 0 to `full` and above; NaN for none.
    Empty: no character has a colour. unit: what the values count. hints: more about each character,
    shown only under a mouse. dim: how many first characters are less important.
    """

    text: str
    values: Sequence[float] = ()
    unit: str = ""
    full: float = 8.0
    hints: Sequence[str] = ()
    dim: int = 0

    def value(self, place: int) -> float | None:
        """A character's value, NaN for one that is dim; None if no character has a colour."""
        if place < self.dim:
            return math.nan
        return float(self.values[place]) if len(self.values) else None

    @property
    def steps(self) -> list[tuple[float, str]]:
        """Nine values from 0 to `full`, as a scale of the colours names them."""
        values = [self.full * step / 8 for step in range(9)]
        return [(value, f"{value:g}" + "+" * (value == self.full)) for value in values]


@dataclass(frozen=True)
class Formula:
    """Formulas; four spaces or a newline separate two of them."""

    text: str


@dataclass(frozen=True)
class Checks:
    """Checks of computed numbers."""

    results: Sequence[Check]


@dataclass(frozen=True)
class Table:
    """Rows of cells. A narrow page shows the columns in groups, each with the first `labels`
    columns.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    labels: int = 1


@dataclass(frozen=True)
class Legend:
    """The signs in the labels of these characters, explained."""

    characters: str


@dataclass(frozen=True)
class Note:
    """A remark; " · " separates its parts."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks below a title of their own, which a page can hide; opened: whether it shows them."""

    title: str
    blocks: Sequence[Block]
    opened: bool = False


Block = Title | Facts | Paragraph | Passage | Formula | Checks | Table | Legend | Note | Fold


def shapes_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Table:
    """The names and shapes of arrays."""
    rows = [[Cell(name), Cell(" × ".join(map(str, each.shape)))] for name, each in arrays.items()]
    return Table([Column("stage", left=True), Column("shape", left=True)], rows)


def number(value: float, digits: int = 2) -> str:
    """ ".25", "−1.50", "−inf", without a leading zero; "–" for NaN."""
    if math.isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    if text.startswith(("0.", "-0.")):
        text = text.replace("0.", ".", 1)
    return text.replace("-", "−")


@dataclass(frozen=True)
class Records:
    """A result for programs: columns of equal length (name -> values), and facts about all rows.

    JSON, CSV and DataFrames are made from these. schema: grows when a name changes its meaning.
    """

    columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = 1
