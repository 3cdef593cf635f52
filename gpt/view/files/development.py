"""Measures over a training for programs: JSON and CSV. One survey is a training of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt.heads.development import Development
from gpt.view.records import csv_text, measure_record, rounded

SCHEMA = 1
COLUMNS = ("step", "layer", "head", "kind", "measure", "value", "error", "uniform", "offset")


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
