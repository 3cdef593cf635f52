"""Converts numbers, results and measures for programs: for JSON, CSV and the page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.words import absent

if TYPE_CHECKING:
    from gpt.blocks import Records
    from gpt.heads.measures import Measure


def round_floats(values: Any, digits: int = 9) -> Any:
    """A number, an array, or nested lists and dictionaries, with floats rounded to `digits`; floats
    of arrays to the nine digits that float32 needs.

    None replaces numbers that are not finite; whole numbers and texts stay as they are.
    """
    if isinstance(values, np.ndarray):
        return round_floats(values.tolist())
    if isinstance(values, dict):
        return {name: round_floats(value, digits) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [round_floats(value, digits) for value in values]
    if values is None or isinstance(values, int | str):
        return values
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


def to_record(found: Records, origin: Mapping[str, Any]) -> dict[str, Any]:
    """A result for JSON: the schema, where the result comes from, its facts, and its rows if it has
    any.
    """
    columns = {name: round_floats(each) for name, each in found.columns.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    facts = round_floats(dict(found.facts), 17)  # all digits of float64
    return {"schema": found.schema, **origin, **facts} | ({"rows": rows} if columns else {})


def to_csv(found: Records) -> str:
    """A CSV line with the names, and one for each row; a cell is empty if its value is unknown."""
    columns = [round_floats(each) for each in found.columns.values()]
    return csv_text([[*found.columns], *zip(*columns, strict=True)])


def to_frame(found: Records) -> Any:
    """A pandas.DataFrame; if there are no rows, one row of the facts. Raises ImportError without
    pandas.
    """
    try:
        import pandas
    except ImportError:
        raise ImportError(
            f"to_pandas needs {absent('pandas')}; to_numpy() gives the same numbers as arrays"
        ) from None
    columns = found.columns or {name: [each] for name, each in found.facts.items()}
    return pandas.DataFrame(dict(columns))


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


def measures_record(measures: Iterable[Measure]) -> list[dict[str, Any]]:
    """Measures for a page, each followed by its parts: values, standard errors and offsets are
    (layers, heads); with offsets, uniform is, too.
    """
    return [
        {
            "name": each.name,
            "explained": each.explained,
            "uniform": round_floats(each.uniform),
            "windows": each.windows,
            "values": round_floats(each.values),
            "errors": round_floats(each.errors),
            **({} if each.offsets is None else {"offsets": each.offsets.tolist()}),
            "title": each.title,
        }
        for one in measures
        for each in one.every
    ]
