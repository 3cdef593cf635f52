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
#: removed, name says what the text beside it is.
Tone = Literal["", "dim", "strong", "good", "gone", "name"]
MOST_TICKS = 5  # distances between numbers of an axis


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
    """A column of a table. left: its texts begin at the left, as those of names do, and are wrapped
    if the page is narrow. bars: each cell has a bar, whose full width is 1. spare: a narrow page
    leaves out some of these columns. least: a page of fewer cells leaves it out.
    """

    title: str = ""
    left: bool = False
    bars: bool = False
    spare: bool = False
    least: int = 0


@dataclass(frozen=True)
class Title:
    """The heading of a result: its name, and facts about it."""

    name: str
    facts: Sequence[str] = ()


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more, as important as the tables. tone: as of a cell."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Passage:
    """A text as it is, line by line; some of its characters may be symbols of several characters.

    values: (n,) one for each character, which colours it, from 0 to `full` and above; NaN for none.
    Empty: no character has a colour. unit: what the values count. hints: more about each character,
    shown only under a mouse. dim: how many first characters are less important. scale: whether the
    scale of the colours stands below.
    """

    text: str | tuple[str, ...]
    values: Sequence[float] = ()
    unit: str = ""
    full: float = 8.0
    hints: Sequence[str] = ()
    dim: int = 0
    scale: bool = True

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
class Facts:
    """Names and facts; empty facts are left out, long ones are wrapped. Several texts are a line
    each.
    """

    values: Mapping[str, str | Sequence[str]]

    @property
    def table(self) -> Table:
        """A row for each line."""
        rows = [
            [Cell("" if number else name, tone="name"), Cell(line)]
            for name, fact in self.values.items()
            for number, line in enumerate([fact] if isinstance(fact, str) else fact)
            if fact
        ]
        return Table([Column(left=True), Column(left=True)], rows)


@dataclass(frozen=True)
class Line:
    """y over ascending x, all of them known numbers. name: stands at its end; its first character
    draws the line where there are only characters. lowest: a mark shows the lowest y.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    lowest: bool = False


@dataclass(frozen=True)
class Curves:
    """Lines over one axis, which begins at 0. unit: of x. top: higher y are not drawn.

    The axis of y has the values between the lowest and the highest, because small improvements
    would not be visible on an axis from 0.
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
        """ "above 1.9708 not shown", if there are higher y."""
        above = any(y > self.top for line in self.lines for y in line.y)
        return f"above {number(self.top, 4)} not shown" if above else ""

    @property
    def ticks(self) -> dict[float, str]:
        """Round values between the ends, and their texts: 1, 2 or 5 times a power of ten apart."""
        low, high = self.ends
        if low == high:
            return {low: number(low, 4)}
        power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
        step = next(power * n for n in (1, 2, 5, 10) if power * n * MOST_TICKS >= high - low)
        digits = max(0, math.ceil(-math.log10(step) - 1e-9))
        places = range(math.ceil(low / step), math.floor(high / step) + 1)
        return {place * step: number(place * step, digits) for place in places}


@dataclass(frozen=True)
class Legend:
    """The signs in the labels of these characters, explained."""

    characters: Sequence[str]


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


Block = (
    Title | Facts | Paragraph | Formula | Checks | Table | Passage | Curves | Legend | Note | Fold
)


def shapes_of(arrays: Mapping[str, npt.NDArray[Any]], what: str = "stage") -> Table:
    """The names and shapes of arrays. what: each is."""
    rows = [[Cell(name), Cell(" × ".join(map(str, each.shape)))] for name, each in arrays.items()]
    return Table([Column(what, left=True), Column("shape", left=True)], rows)


def number(value: float, digits: int = 2) -> str:
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

    JSON, CSV and DataFrames are made from these. schema: grows when a name changes its meaning.
    """

    columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = 1
