"""The base class of results: a title, facts, curves, rows, a sentence, and checks of the numbers.

Code that draws or writes a result uses only the methods of this class, and no result knows about
terminals, notebooks or files. Importing this module does not import rich.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gpt import words
from gpt.errors import ConfigError

SCHEMA = 1  # the version of all results' JSON; it increases when a name changes its meaning
ROW_DIGITS = 9  # significant digits that distinguish all float32 numbers
RECORD_DIGITS = 17  # significant digits that distinguish all float64 numbers


@dataclass(frozen=True)
class Check:
    """A measured error of a result's numbers. The check passes if `error` is at most `bound`. A
    check without a bound passes if `error` is finite.

    detail: only the long form of the result shows this check, unless it failed.
    """

    name: str
    error: float
    bound: float | None = None
    detail: bool = False

    @property
    def passed(self) -> bool:
        if self.bound is None:
            return math.isfinite(self.error)
        return self.error <= self.bound < math.inf  # False for NaN

    def __str__(self) -> str:
        """ "rows sum to 1 ±1e-7"; for a failed check, the error and the bound."""
        error = f"{self.error:.1g}".replace("e-0", "e-")
        if self.passed:
            return f"{self.name} ±{error}" if self.error else self.name
        allowed = "" if self.bound is None else f", allowed {self.bound:.1g}".replace("e-0", "e-")
        return f"{self.name} (error {error}{allowed})"

    @property
    def record(self) -> dict[str, Any]:
        """The check for JSON."""
        return {"name": self.name, "error": self.error, "bound": self.bound, "passed": self.passed}


@dataclass(frozen=True)
class Column:
    """A column of a table for people.

    field: the name of the field of a row that the column shows. write: turns the field's value into
    text; a None becomes an empty cell. bar: whether a bar beside the number shows its value, from
    0 to 1. right: whether the values are numbers, which are aligned right and never wrapped.
    """

    field: str
    heading: str
    write: Callable[[Any], str] = str
    bar: bool = False
    right: bool = False


@dataclass(frozen=True)
class PlotLine:
    """A curve of a drawing: y over ascending x. Points whose y is not finite are not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]


@dataclass(frozen=True)
class Passage:
    """A text whose characters are drawn on coloured backgrounds. shades: one number from 0 to 1 for
    every character; NaN: no colour. meaning: a sentence that explains the colours.
    """

    text: str
    shades: Sequence[float]
    meaning: str


@dataclass(frozen=True)
class Matrix:
    """A matrix whose rows stand for characters of a text. values: (rows, columns), NaN for an empty
    cell. rows: the characters' positions in the text. columns: the positions of the columns or, if
    not `square`, the dimensions of a vector. weights: whether the values are attention weights.
    """

    name: str
    values: npt.NDArray[Any]
    text: str
    rows: range
    columns: range
    square: bool = True
    weights: bool = True


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def with_read_only_arrays(value: Any) -> Any:
    """The value with read-only views of its arrays, also of those in a dictionary or a tuple."""
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, dict):
        return {name: with_read_only_arrays(item) for name, item in value.items()}
    if type(value) is tuple:
        return tuple(map(with_read_only_arrays, value))
    return value


class ReadOnlyArrays:
    """Base of frozen dataclasses. Their arrays are read-only, also after copying or unpickling."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(with_read_only_arrays(state))

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """The fields that are arrays: name -> array."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


class Result:
    """Base of results. A subclass is a frozen dataclass and overrides the methods that it needs.

    `title`, `facts`, `curves`, `passage`, `columns`, `table_rows` and `sentence` are for people. A
    method with the parameter `all` returns its long form if `all` is true. `record` and `rows` are
    for programs. No field of a subclass may have the name of one of these methods.
    """

    #: The columns of the table for people; see `columns`.
    COLUMNS: ClassVar[Sequence[Column]] = ()

    @property
    def title(self) -> str:
        """A line above the result."""
        return ""

    def facts(self, all: bool = False) -> Mapping[str, str]:
        """Name -> text. An empty text is not shown; a text may have several lines."""
        return {}

    def curves(self) -> Sequence[PlotLine]:
        """The curves, which are drawn over each other."""
        return ()

    def passage(self) -> Passage | None:
        """A text to show with coloured characters."""
        return None

    def columns(self, all: bool = False) -> Sequence[Column]:
        """The columns of the table for people."""
        return self.COLUMNS

    def table_rows(self, all: bool = False) -> Sequence[Any]:
        """The rows of the table for people: dataclasses or mappings."""
        return self.rows

    def sentence(self, all: bool = False) -> str:
        """One sentence below the result: what the reader should know or do next."""
        return ""

    def list_checks(self) -> Sequence[Check]:
        """The checks that the result's numbers went through."""
        return ()

    @property
    def rows(self) -> Sequence[Any]:
        """The rows for programs: dataclasses or mappings, all with the same names."""
        return ()

    def record(self) -> Mapping[str, Any]:
        """The values for programs besides the rows: name -> number, text, list or dictionary."""
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title!r}>"

    def to_json(self) -> str:
        """The record and the rows as a line of JSON."""
        return to_json(self)

    def to_csv(self) -> str:
        """The rows as CSV; without rows, the record as one row."""
        names, rows = table_of_result(self)
        return csv_text([names, *round_floats(rows)])

    def to_pandas(self) -> Any:
        """A pandas.DataFrame of the rows, or else the record. Raises ImportError without pandas."""
        try:
            import pandas
        except ImportError:
            problem = f"to_pandas needs {words.missing_package('pandas')}; to_csv() has the same"
            raise ImportError(problem) from None
        names, rows = table_of_result(self)
        return pandas.DataFrame(rows, columns=names)

    def _repr_html_(self) -> str:
        from gpt.show.terminal import to_html

        return to_html(self)


def values_of_row(row: Any) -> Mapping[str, Any]:
    """The values of a result's row, which is a dataclass or a mapping: name -> value."""
    if is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    mapping: Mapping[str, Any] = row
    return mapping


def short_number(value: float, digits: int = 2) -> str:
    """A number without a leading zero: ".25", "−1.50", "−inf"; "–" for NaN."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if text.startswith(("0.", "-0.")):
        text = text.replace("0.", ".", 1)
    return text.replace("-", "−")


def signed_number(value: float, digits: int = 2) -> str:
    """A number with its sign: "+1.25", "−.03"."""
    text = short_number(value, digits)
    return text if text.startswith(("−", "–")) else f"+{text}"


def round_floats(values: Any, digits: int = ROW_DIGITS) -> Any:
    """Rounds the floats in a number, in an array, or in nested lists and dictionaries to `digits`
    significant digits.

    An array becomes a list of numbers with ROW_DIGITS. A float that is not finite becomes None.
    """
    if getattr(values, "ndim", 0):  # an array
        return round_floats(values.tolist())
    if isinstance(values, Mapping):
        return {name: round_floats(value, digits) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [round_floats(value, digits) for value in values]
    if values is None or isinstance(values, int | str):
        return values
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


def to_record(result: Result, origin: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A result as nested dictionaries and lists. origin: names the model (StoredModel.origin)."""
    record = {"schema": SCHEMA, **(origin or {}), **round_floats(result.record(), RECORD_DIGITS)}
    if rows := result.rows:
        record["rows"] = [round_floats(values_of_row(row)) for row in rows]
    return record


def to_json(result: Result, origin: Mapping[str, Any] | None = None) -> str:
    """A result as a line of JSON that is safe to print on a terminal."""
    return words.to_json(to_record(result, origin)) + "\n"


def table_of_result(result: Result) -> tuple[list[str], list[list[Any]]]:
    """The columns' names and the rows of a result. Without rows, its record is the only row."""
    rows = [values_of_row(row) for row in result.rows] or [result.record()]
    names = list(rows[0])
    return names, [[row[name] for name in names] for row in rows]


def format_of_path(path: Path, forms: Sequence[str]) -> Any:
    """The file format that a path's ending names. Raises ConfigError unless it is in `forms`."""
    form = path.suffix.lower().removeprefix(".")
    if form not in forms:
        raise ConfigError("path", f"{path.name} does not end in one of .{', .'.join(forms)}")
    return form


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Writes rows as CSV. None becomes an empty cell. Spaces separate the values of a list.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, as OWASP advises.
    A single character cannot be a formula, so it stays as it is.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{value}" if len(value) > 1 and value[0] in "=+-@\t\r" else value
