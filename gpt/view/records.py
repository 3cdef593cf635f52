"""Measures of heads for the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpt.heads.measures import Measure
from gpt.show.programs import round_floats as round_floats


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
        for each in measures
    ]
