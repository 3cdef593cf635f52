"""The blocks that a result describes itself with: title, tables, texts, notes.

A result's method `blocks` returns them, and renderers (gpt/view) know nothing else of results. The
texts are plain: a renderer escapes control characters, replaces labels and signs by ASCII where the
terminal needs it, and fits them to the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpt.checks import Check

#: How a text looks. dim: less important; strong: stands out; good: agrees with the text; gone: was
#: removed; name: names the text beside it.
Tone = Literal["", "dim", "strong", "good", "gone", "name"]
MOST_TICKS = 5  # the most steps between the labels of an axis


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    share: a number in 0 … 1 that shades the cell; in a column of bars, the length of its bar. hint:
    an explanation that appears under the mouse only.
    """

    text: str
    share: float | None = None
    tone: Tone = ""
    hint: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table. left: texts are aligned left, as names are, and wrapped on a narrow
    page. bars: each cell has a bar, whose full width is 1. least: a page with fewer cells than this
    leaves the column out.
    """

    title: str = ""
    left: bool = False
    bars: bool = False
    least: int = 0


@dataclass(frozen=True)
class Title:
    """The heading of a result: its name, and facts about it."""

    name: str
    facts: Sequence[str] = ()


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more, as important as the tables. tone: see `Cell`."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Passage:
    """A text shown as it is, line by line.

    values: (n,) a number for each character, which colours it: 0 is no colour, `full` and above the
    strongest; NaN: unknown. If `values` is empty, no character has a colour. unit: what the values
    count. hints: an explanation for each character, which appears under the mouse only. dim: this
    many first characters are less important.
    """

    full: ClassVar[float] = 8.0

    text: str
    values: Sequence[float] = ()
    unit: str = ""
    hints: Sequence[str] = ()
    dim: int = 0

    def value(self, place: int) -> float | None:
        """A character's value, NaN for a dim character; None if no character has a colour."""
        if place < self.dim:
            return math.nan
        return float(self.values[place]) if len(self.values) else None

    @property
    def steps(self) -> list[tuple[float, str]]:
        """Nine values from 0 to `full`, which label the scale of the colours."""
        values = [self.full * step / 8 for step in range(9)]
        return [(value, f"{value:g}" + "+" * (value == self.full)) for value in values]


@dataclass(frozen=True)
class Checks:
    """Checks of computed numbers."""

    results: Sequence[Check]


@dataclass(frozen=True)
class Table:
    """Rows of cells. A narrow page shows groups of columns, each with the first `labels` ones."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    labels: int = 1


@dataclass(frozen=True)
class Facts:
    """Names and facts: empty ones are left out, long ones wrapped; each text has its own line."""

    values: Mapping[str, str | Sequence[str]]

    @property
    def table(self) -> Table:
        """The facts as a table with a row for each line."""
        rows = [
            [Cell("" if number else name, tone="name"), Cell(line)]
            for name, fact in self.values.items()
            for number, line in enumerate([fact] if isinstance(fact, str) else fact)
            if fact
        ]
        return Table([Column(left=True), Column(left=True)], rows)


@dataclass(frozen=True)
class Line:
    """A curve: y over ascending x, without NaN. name: is written at the end of the line; a renderer
    that has only characters draws the line with its first character. lowest: a mark shows the
    lowest y.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    lowest: bool = False


@dataclass(frozen=True)
class Curves:
    """Lines over one x axis, which begins at 0. unit: the unit of x. top: higher y are not drawn.

    The y axis spans only the values that occur, because small improvements would not be visible on
    an axis from 0.
    """

    lines: Sequence[Line]
    unit: str = "step"
    top: float = math.inf

    @property
    def last(self) -> float:
        """The largest x."""
        return max(max(line.x) for line in self.lines)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest y that are drawn."""
        drawn = [y for line in self.lines for y in line.y if y <= self.top]
        return min(drawn), max(drawn)

    @property
    def hidden(self) -> str:
        """ "above 1.9708 not shown" if there are higher y, else ""."""
        above = any(y > self.top for line in self.lines for y in line.y)
        return f"above {format_number(self.top, 4)} not shown" if above else ""

    @property
    def ticks(self) -> dict[float, str]:
        """Round values between the ends, 1, 2 or 5 times a power of ten apart, and their labels."""
        low, high = self.ends
        if low == high:
            return {low: format_number(low, 4)}
        power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
        step = next(power * n for n in (1, 2, 5, 10) if power * n * MOST_TICKS >= high - low)
        digits = max(0, math.ceil(-math.log10(step) - 1e-9))
        places = range(math.ceil(low / step), math.floor(high / step) + 1)
        return {place * step: format_number(place * step, digits) for place in places}


@dataclass(frozen=True)
class Legend:
    """Explains the signs that stand for these characters."""

    characters: Sequence[str]


@dataclass(frozen=True)
class Note:
    """A remark; " · " separates its parts."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks below a title, which a page can hide. opened: whether it shows them at first."""

    title: str
    blocks: Sequence[Block]
    opened: bool = False


Block = Title | Facts | Paragraph | Checks | Table | Passage | Curves | Legend | Note | Fold


def shapes_table(arrays: Mapping[str, npt.NDArray[Any]], what: str = "stage") -> Table:
    """The names and shapes of arrays. what: names each array."""
    rows = [[Cell(name), Cell(" × ".join(map(str, each.shape)))] for name, each in arrays.items()]
    return Table([Column(what, left=True), Column("shape", left=True)], rows)


def format_number(value: float, digits: int = 2) -> str:
    """ ".25", "−1.50", "−inf", without a leading zero; "–" for NaN."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if text.startswith(("0.", "-0.")):
        text = text.replace("0.", ".", 1)
    return text.replace("-", "−")


@dataclass(frozen=True)
class Records:
    """A result for programs: columns of equal length (name -> values), and facts about all rows.

    JSON, CSV and DataFrames are made from these. schema: a version, which increases when a name
    changes its meaning.
    """

    columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = 1
