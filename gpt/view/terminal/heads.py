"""A table of all heads: their measures with errors, beside those of uniform attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.text import Text

from gpt.errors import ConfigError
from gpt.heads.measures import RULE, Measure, kinds, strengths
from gpt.heads.survey import Survey
from gpt.view.characters import pad
from gpt.view.records import measure_record
from gpt.view.terminal.lines import BOLD, DIM, Page, in_ascii, number, styled

SCHEMA = 1
#: Measures that are shown without --all.
FIRST = (
    *("previous", "duplicate", "induction", "induction_synthetic"),
    *("sink", "entropy", "distance", "ablation"),
)
NO_INDUCTION = "no head gets the name induction; to train a model that has one: gptx train repeats"
CAVEAT = "weights show where a head looks, not what that causes"


def ranked(survey: Survey, by: str | None = None) -> list[tuple[int, int]]:
    """(layer, head) of every head, the largest of a measure first.

    Without a name: by the loss that ablation costs, if it was measured, else by how near the head
    is to a named kind. Raises ConfigError for an unknown measure.
    """
    known = {measure.name: measure.values for measure in survey.measures}
    if by is not None and by not in known:
        raise ConfigError("sort", f"{by!r} is not one of {', '.join(known)}")
    values = known.get(by or "ablation")
    values = strengths(survey.measures) if values is None else values
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")
    return [divmod(place, values.shape[1]) for place in order.tolist()]


def heads_table(
    survey: Survey, order: Sequence[tuple[int, int]], page: Page, every: bool = False
) -> list[Text]:
    """A row for each head in the given order, one for uniform attention, and explanations."""
    shown = [measure for measure in survey.measures if every or measure.name in FIRST]
    if every:  # each measure followed by its parts
        shown = [each for measure in shown for each in (measure, *measure.parts)]
    named = kinds(survey.measures)
    names = [f"layer {layer} head {head}" for layer, head in order]
    if page.width is not None and page.width < 100:
        names = [f"{layer}.{head}" for layer, head in order]
    kind = [named[layer][head] or "-" for layer, head in order]
    rows = [pad(text, max(map(len, names)) + 2) for text in names]
    rows = [row + pad(text, max(map(len, kind)) + 1) for row, text in zip(rows, kind, strict=True)]
    gutter = max(len(rows[0]), len("uniform "))
    rows = [pad(row, gutter) for row in [*rows, "uniform"]]
    columns = [_column(measure, order, page) for measure in shown]
    lines: list[Text] = []
    for group in _beside(columns, page.width and page.width - gutter):
        lines += [Text()] if lines else []
        for n, row in enumerate(["", *rows]):
            cells = "".join(cell[n] for cell in group)
            lines.append(Text(pad(row, gutter), DIM).append(cells, DIM if n > len(order) else ""))
            if not n:
                lines[-1].stylize(BOLD)
            lines[-1].rstrip()
    ablated = any(measure.name == "ablation" for measure in shown)
    texts = [
        *(f"{measure.title}: {measure.explained}" for measure in shown if measure.explained),
        "±: standard error" if survey.windows > 1 else "one window: little evidence",
        RULE,
        *[NO_INDUCTION] * (not any("induction" in row for row in named)),
        CAVEAT + ("; --ablate mean measures the effect" * (not ablated)),
    ]
    return [*lines, Text(), *(line for text in texts for line in styled([text], page, DIM))]


def title(survey: Survey, page: Page) -> list[Text]:
    """Heading: the text on which the heads were measured."""
    return [*styled(["heads", survey.measured], page, BOLD), Text()]


def heads_record(survey: Survey, origin: dict[str, Any]) -> dict[str, Any]:
    """For programs: every measure of every head, null for unknown values."""
    return {
        "schema": SCHEMA,
        **origin,
        "text": survey.text,
        "windows": survey.windows,
        "characters": survey.characters,
        "kinds": kinds(survey.measures),
        "rule": RULE,
        "measures": [_record(measure) for measure in survey.measures],
    }


def _record(measure: Measure) -> dict[str, Any]:
    parts = {"parts": [_record(part) for part in measure.parts]} if measure.parts else {}
    return measure_record(measure) | parts


def _column(measure: Measure, order: Sequence[tuple[int, int]], page: Page) -> list[str]:
    """Its title, ".93±.01" of each head, and the uniform head's value."""
    between, name = "±", measure.title
    if page.ascii_only:
        between, name = "+-", in_ascii(name)
    if measure.name == "ablation":  # differences of losses are small
        page = replace(page, precision=min(9, page.precision + 2))
    cells = []
    for place in order:
        error = float(measure.errors[place])
        told = "" if math.isnan(error) else f"{between}{_plain(error, page)}"
        cells.append(_plain(float(measure.values[place]), page) + told)
    cells = [name, *cells, _plain(measure.uniform, page)]
    width = max(map(len, cells)) + 2
    return [cell.rjust(width) for cell in cells]


def _beside(columns: list[list[str]], available: int | None) -> list[list[list[str]]]:
    """Columns in groups that fit side by side."""
    groups: list[list[list[str]]] = [[]]
    for column in columns:
        width = sum(len(each[0]) for each in [*groups[-1], column])
        if groups[-1] and available is not None and width > available:
            groups.append([])
        groups[-1].append(column)
    return groups


def _plain(value: float, page: Page) -> str:
    return "-" if math.isnan(value) else number(value, page)
