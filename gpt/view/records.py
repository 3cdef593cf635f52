"""Numbers, checks and measures for programs: their form in JSON, in CSV and in the page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.checks import Check

if TYPE_CHECKING:
    from gpt.heads.measures import Measure
    from gpt.heads.survey import Development

SCHEMA = 1
COLUMNS = ("step", "layer", "head", "kind", "measure", "value", "error", "uniform", "offset")


def rounded(values: Any) -> Any:
    """A number, an array, or nested lists: floats with the nine digits that float32 needs.

    None replaces numbers that are not finite; whole numbers stay whole.
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(value) for value in values]
    if isinstance(values, int):
        return values
    return float(f"{values:.9g}") if math.isfinite(values) else None


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV: None is an empty cell. A text that a spreadsheet would run as a formula begins
    with an apostrophe, as OWASP advises; a single character is none.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{value}" if len(value) > 1 and value[0] in "=+-@\t\r" else value


def picked(item: object, *names: str) -> dict[str, Any]:
    """The attributes with these names, in this order."""
    return {name: getattr(item, name) for name in names}


def check_record(check: Check) -> dict[str, Any]:
    """One check; error is None if it is not finite."""
    return picked(check, "name", "error", "bound", "passed") | {"error": rounded(check.error)}


def measure_record(measure: Measure) -> dict[str, Any]:
    """A measure of every head: values, standard errors and offsets are (layers, heads); with
    offsets, uniform is, too.
    """
    record = picked(measure, "name", "explained", "uniform", "windows", "values", "errors")
    offsets = {} if measure.offsets is None else {"offsets": measure.offsets.tolist()}
    numbers = {name: rounded(record[name]) for name in ("uniform", "values", "errors")}
    return record | numbers | offsets


def measures_record(measures: Iterable[Measure]) -> list[dict[str, Any]]:
    """For a page: each measure with its title, followed by its parts."""
    every = (each for one in measures for each in (one, *one.parts))
    return [measure_record(each) | {"title": each.title} for each in every]


def development_record(found: Development, run: str) -> dict[str, Any]:
    """For JSON: values and errors are [step][layer][head], null where unknown."""
    last = found.surveys[-1]
    measures = []
    for number, measure in enumerate(found.measures):
        record = measure_record(measure)
        record["values"] = rounded(found.values[:, number])
        record["errors"] = rounded(found.errors[:, number])
        if measure.offsets is not None:
            record["uniform"] = rounded(found.uniform[:, number])
            every = [survey.measures[number].offsets for survey in found.surveys]
            record["offsets"] = np.stack([each for each in every if each is not None]).tolist()
        measures.append(record)
    return {
        "schema": SCHEMA,
        "run": run,
        "steps": found.steps.tolist(),
        "text": last.text,
        "windows": last.windows,
        "characters": last.characters,
        "axes": ["step", "layer", "head"],
        "kinds": found.kinds.tolist(),
        "rule": found.surveys[-1].rule,
        "measures": measures,
    }


def development_csv(found: Development) -> str:
    """A line for each step, head and measure; empty where a number is unknown."""
    rows: list[Sequence[Any]] = [COLUMNS]
    for step, named, survey in zip(found.steps.tolist(), found.kinds, found.surveys, strict=True):
        for measure in survey.measures:
            for layer, head in np.ndindex(measure.values.shape):
                at = layer, head
                numbers = [float(measure.values[at]), float(measure.errors[at])]
                numbers.append(measure.uniform_of(*at))
                offset = None if measure.offsets is None else int(measure.offsets[at])
                known = (*rounded(numbers), offset)
                rows.append([step, layer, head, str(named[at]), measure.name, *known])
    return csv_text(rows)
