"""What a result is: a title, facts, curves, rows, a sentence, and the checks of its numbers.

Whatever draws or writes a result knows these names only, and a result knows nothing of terminals,
notebooks and files. Importing this does not import rich.
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

SCHEMA = 1  # of the JSON of all results; increases when a name changes its meaning
ROW_DIGITS = 9  # what float32 needs
RECORD_DIGITS = 17  # what float64 needs


@dataclass(frozen=True)
class Check:
    """A check: `error` must be at most `bound`, which must be finite; without a bound, the error is
    measured, and only has to be finite.

    detail: only the long form of a result names it, unless it failed.
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
        """ "rows sum to 1 ±1e-7"; if it failed, the error and what is allowed."""
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
    """A column that people see.

    field: the row's field. write: its value as text; None becomes an empty cell. bar: the value, in
    0 … 1, has a bar beside it. right: values are numbers, aligned right and never broken.
    """

    field: str
    heading: str
    write: Callable[[Any], str] = str
    bar: bool = False
    right: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a drawing: y over ascending x. y that are not finite are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]


@dataclass(frozen=True)
class Passage:
    """A text shown character by character. shades: (n,) 0 … 1 colours each character; NaN: no
    colour. meaning: what the colours say.
    """

    text: str
    shades: Sequence[float]
    meaning: str


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


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def all_read_only(value: Any) -> Any:
    """The value; arrays are made read-only, also within a dictionary or tuple."""
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, dict):
        return {name: all_read_only(item) for name, item in value.items()}
    if type(value) is tuple:
        return tuple(map(all_read_only, value))
    return value


class Arrays:
    """Base of frozen dataclasses: their arrays are read-only, also after copying and unpickling."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(all_read_only(state))

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Name -> array."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


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
        return self.COLUMNS

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
        return to_json(self)

    def to_csv(self) -> str:
        """The rows as CSV; without rows, the record as one row."""
        names, rows = table_of(self)
        return csv_text([names, *round_floats(rows)])

    def to_pandas(self) -> Any:
        """The rows as a pandas.DataFrame; without rows, the record as one row. Raises ImportError
        if pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            problem = f"to_pandas needs {words.missing_package('pandas')}; to_csv() has the same"
            raise ImportError(problem) from None
        names, rows = table_of(self)
        return pandas.DataFrame(rows, columns=names)

    def _repr_html_(self) -> str:
        from gpt.show.terminal import to_html

        return to_html(self)


def values_of(row: Any) -> Mapping[str, Any]:
    if is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    mapping: Mapping[str, Any] = row
    return mapping


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


def round_floats(values: Any, digits: int = ROW_DIGITS) -> Any:
    """A number, an array, or nested lists and dictionaries, with floats rounded to `digits`; floats
    of arrays to the nine digits that float32 needs.

    None replaces numbers that are not finite; whole numbers and texts stay as they are.
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
    """A result as nested dictionaries and lists. origin: the model that it comes from."""
    record = {"schema": SCHEMA, **(origin or {}), **round_floats(result.record(), RECORD_DIGITS)}
    if rows := result.rows:
        record["rows"] = [round_floats(values_of(row)) for row in rows]
    return record


def to_json(result: Result, origin: Mapping[str, Any] | None = None) -> str:
    """A line of JSON, safe on a terminal."""
    return words.to_json(to_record(result, origin)) + "\n"


def table_of(result: Result) -> tuple[list[str], list[list[Any]]]:
    """Names and rows: the result's rows, or its record as the only one."""
    rows = [values_of(row) for row in result.rows] or [result.record()]
    names = list(rows[0])
    return names, [[row[name] for name in names] for row in rows]


def named_form(path: Path, forms: Sequence[str]) -> Any:
    """The one of these formats that a path's ending names. Raises ConfigError."""
    form = path.suffix.lower().removeprefix(".")
    if form not in forms:
        raise ConfigError("path", f"{path.name} does not end in one of .{', .'.join(forms)}")
    return form


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV: None becomes an empty cell, the values of a list are separated by spaces. A text
    that a spreadsheet would run as a formula gets an apostrophe before it, as OWASP advises; a
    single character cannot be a formula.
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
