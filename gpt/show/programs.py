"""Results for programs: JSON, CSV and DataFrames, from the record and the rows alone."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpt import characters
from gpt.errors import ConfigError
from gpt.show.result import SCHEMA, Result, values_of
from gpt.words import absent

ROW_DIGITS = 9  # what float32 needs
RECORD_DIGITS = 17  # what float64 needs


def round_floats(values: Any, digits: int = ROW_DIGITS) -> Any:
    """A number, an array, or nested lists and dictionaries, with floats rounded to `digits`; floats
    of arrays to the nine digits that float32 needs.

    None replaces numbers that are not finite; whole numbers and texts stay as they are.
    """
    if isinstance(values, np.ndarray):
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
    return characters.to_json(to_record(result, origin)) + "\n"


def table_of(result: Result) -> tuple[list[str], list[list[Any]]]:
    """Names and rows: the result's rows, or its record as the only one."""
    rows = [values_of(row) for row in result.rows] or [result.record()]
    names = list(rows[0])
    return names, [[row[name] for name in names] for row in rows]


def to_csv(result: Result) -> str:
    """A CSV line with the names, and one for each row; a cell is empty if its value is unknown."""
    names, rows = table_of(result)
    return csv_text([names, *round_floats(rows)])


def named_form(path: Path, forms: Sequence[str]) -> Any:
    """The one of these formats that a path's ending names. Raises ConfigError."""
    form = path.suffix.lower().removeprefix(".")
    if form not in forms:
        raise ConfigError("path", f"{path.name} does not end in one of .{', .'.join(forms)}")
    return form


def to_frame(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    """A pandas.DataFrame. Raises ImportError if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise ImportError(f"to_pandas needs {absent('pandas')}; to_csv() has the same") from None
    return pandas.DataFrame(list(rows), columns=names)


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
