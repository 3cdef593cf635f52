"""What a result is: a title, facts, curves, rows, and a sentence.

Whatever draws or writes a result knows these names only, and a result knows nothing of terminals,
notebooks and files. Importing this imports neither numpy nor rich.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpt.checks import Check

SCHEMA = 1  # of the JSON of all results; increases when a name changes its meaning
UNSEEN = 4  # highest_late_value leaves out the first 1/UNSEEN of a curve


@dataclass(frozen=True)
class Column:
    """A column that people see.

    field: the row's field. write: its value as text; None becomes an empty cell. bar: the value, in
    0 … 1, has a bar beside it. right: values are numbers, aligned right and never broken. all: only
    the long form has this column.
    """

    field: str
    heading: str
    write: Callable[[Any], str] = str
    bar: bool = False
    right: bool = False
    all: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a drawing: y over ascending x. y that are not finite are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    @property
    def points(self) -> list[tuple[float, float]]:
        """The finite points."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]


@dataclass(frozen=True)
class Passage:
    """A text shown character by character. shades: (n,) 0 … 1 colours each character; NaN or an
    empty sequence: no colour. meaning: what the colours say.
    """

    text: str
    shades: Sequence[float] = ()
    meaning: str = ""


@dataclass(frozen=True)
class Matrix:
    """A matrix over the characters of a text. name: says which it is. values: (rows, columns), NaN
    where there is nothing to show. rows, columns: their positions in the text, or for columns the
    numbers of dimensions, if not `square`. weights: whether a row is shares that sum to 1.
    """

    name: str
    values: npt.NDArray[Any]
    text: str
    rows: range
    columns: range
    square: bool = True
    weights: bool = True


class Result:
    """Base of results. A subclass is a frozen dataclass and overrides what it has.

    Methods with `all` make the long form of what people see if it is true. People read `title`,
    `facts`, `curves`, `passage`, `columns` of `shown` and `sentence`; programs get `record` and
    `rows`. A dataclass cannot have a field with one of these names.
    """

    #: The columns of `shown`; see `columns`.
    COLUMNS: ClassVar[Sequence[Column]] = ()

    @property
    def title(self) -> str:
        """One line."""
        return ""

    def facts(self, all: bool = False) -> Mapping[str, str]:
        """Name -> text. Empty texts are left out; a text may have several lines."""
        return {}

    def curves(self) -> Sequence[Line]:
        """Lines of one drawing."""
        return ()

    def passage(self) -> Passage | None:
        """A text to show in full."""
        return None

    def columns(self, all: bool = False) -> Sequence[Column]:
        """What people see of each row."""
        return [column for column in self.COLUMNS if all or not column.all]

    def shown(self, all: bool = False) -> Sequence[Any]:
        """The rows that people see; dataclasses, or mappings with the names of COLUMNS."""
        return self.rows

    def sentence(self, all: bool = False) -> str:
        """What the reader should know or do next; at most one sentence."""
        return ""

    def checked(self) -> Sequence[Check]:
        """The checks of the numbers."""
        return ()

    @property
    def rows(self) -> Sequence[Any]:
        """The rows for programs: dataclasses, or mappings of which all have the same names."""
        return ()

    def record(self) -> Mapping[str, Any]:
        """What programs get beside the rows: name -> number, text, list or dictionary."""
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title!r}>"

    def to_json(self) -> str:
        """The record and the rows as JSON."""
        from gpt.show.programs import to_json

        return to_json(self)

    def to_csv(self) -> str:
        """The rows as CSV; without rows, the record as one row."""
        from gpt.show.programs import to_csv

        return to_csv(self)

    def to_pandas(self) -> Any:
        """The rows as a pandas.DataFrame; without rows, the record as one row. Raises ImportError
        if pandas is not installed.
        """
        from gpt.show.programs import table_of, to_frame

        return to_frame(*table_of(self))

    def _repr_html_(self) -> str:
        from gpt.show.terminal import to_html

        return to_html(self)


def values_of(row: Any) -> Mapping[str, Any]:
    """A row's fields by name."""
    if is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    mapping: Mapping[str, Any] = row
    return mapping


def highest_late_value(lines: Sequence[Line]) -> float:
    """The highest y after the first quarter: drawings end there, because the first losses would
    hide later differences.
    """
    last = max(x for line in lines for x, _ in line.points)
    return max(y for line in lines for x, y in line.points if x >= last / UNSEEN)


def short_number(value: float, digits: int = 2) -> str:
    """ ".25", "−1.50", "−inf": without a leading zero; "–" for NaN."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if text.startswith(("0.", "-0.")):
        text = text.replace("0.", ".", 1)
    return text.replace("-", "−")


def signed_number(value: float, digits: int = 2) -> str:
    """ "+1.25", "−.03"."""
    text = short_number(value, digits)
    return text if text.startswith(("−", "–")) else f"+{text}"
