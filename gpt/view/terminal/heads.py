"""A table of all heads: their measures with errors, and those of uniform attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.style import Style
from rich.text import Text

from gpt.errors import ConfigError
from gpt.heads.kinds import kinds, strengths
from gpt.heads.measures import Measure
from gpt.heads.survey import Survey
from gpt.view.records import measure_record
from gpt.view.terminal.lines import BOLD, DIM, Page, grid, in_ascii, number, styled

SCHEMA = 1
#: Measures that are shown without --all.
FIRST = (
    *("back", "duplicate", "induction", "induction_synthetic"),
    *("sink", "entropy", "distance", "ablation"),
)
NO_INDUCTION = "no head gets the name induction; to train a model that has one: gptx train repeats"
CAVEAT = "weights show where a head looks, not what that causes"


def ranked(survey: Survey, by: str | None = None) -> list[tuple[int, int]]:
    """(layer, head) of every head, the largest of a measure first.

    Without a name: sorted by the rise of the loss under ablation, if measured, else by how near the
    head is to a named kind. Raises ConfigError for an unknown measure.
    """
    known = {measure.name: measure.values for measure in survey.measures}
    if by is not None and by not in known:
        if by == "ablation":
            raise ConfigError("sort", "ablation is measured only with `ablate=mean`")
        raise ConfigError("sort", f"{by!r} is not one of {', '.join(known)}")
    values = known.get(by or "ablation")
    values = strengths(survey.measures) if values is None else values
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")
    return [divmod(place, values.shape[1]) for place in order.tolist()]


def heads_table(
    survey: Survey, order: Sequence[tuple[int, int]], page: Page, every: bool = False
) -> list[Text]:
    """A row for each head in the given order, one for uniform attention, and explanations."""
    shown = [each for one in shown_measures(survey, every) for each in (one, *one.parts)]
    named = kinds(survey.measures)
    labels = head_labels(order, named, page)
    columns = [_column(measure, order, page) for measure in shown]
    styles: list[str | Style] = [BOLD, *[""] * (len(order) + 1)]
    rows = zip(["", *labels, "uniform "], zip(*columns, strict=True), styles, strict=True)
    lines = grid(list(rows), [max(map(len, cells)) + 2 for cells in columns], page)
    ablated = any(measure.name == "ablation" for measure in shown)
    texts = [
        *(f"{measure.title}: {measure.explained}" for measure in shown if measure.explained),
        "±: standard error" if survey.windows > 1 else "one window: little evidence",
        survey.rule,
        *[NO_INDUCTION] * (not survey.kind and not any("induction" in row for row in named)),
        CAVEAT + ("; --ablate mean measures the effect" * (not ablated)),
    ]
    return [*lines, Text(), *(line for text in texts for line in styled([text], page, DIM))]


def shown_measures(survey: Survey, every: bool = False) -> list[Measure]:
    """The measures that tables and figures show: all with `every`, else those in FIRST.

    All of cross-attention and of an encoder, which have few.
    """
    every = every or survey.kind in ("cross", "encoder")
    return [measure for measure in survey.measures if every or measure.name in FIRST]


def head_labels(
    order: Sequence[tuple[int, int]], named: Sequence[Sequence[str]], page: Page
) -> list[str]:
    """ "layer 1 head 0  induction ", or "L1H0  induction " on a narrow page, for each row."""
    narrow = page.width is not None and page.width < 100
    names = [("L{}H{}" if narrow else "layer {} head {}").format(*place) for place in order]
    widest = max(map(len, names))
    return [
        f"{name:<{widest}}  {named[layer][head] or '-'} "
        for name, (layer, head) in zip(names, order, strict=True)
    ]


def title(survey: Survey, page: Page) -> list[Text]:
    """Heading: the text on which the heads were measured."""
    return [*styled([survey.title, survey.measured], page, BOLD), Text()]


def heads_record(survey: Survey, origin: dict[str, Any]) -> dict[str, Any]:
    """For programs: every measure of every head, null for unknown values."""
    return {
        "schema": SCHEMA,
        **origin,
        **({"attention": survey.kind} if survey.kind else {}),
        "text": survey.text,
        "windows": survey.windows,
        "characters": survey.characters,
        "kinds": kinds(survey.measures),
        "rule": survey.rule,
        "measures": [_record(measure) for measure in survey.measures],
    }


def _record(measure: Measure) -> dict[str, Any]:
    parts = {"parts": [_record(part) for part in measure.parts]} if measure.parts else {}
    return measure_record(measure) | parts


def _column(measure: Measure, order: Sequence[tuple[int, int]], page: Page) -> list[str]:
    """A measure's title, ".93±.01" for each head, and the uniform head's value. If that depends on
    the head: "6: .06±.01/.04" and "/".
    """
    between, name = "±", measure.title
    if page.ascii_only:
        between, name = "+-", in_ascii(name)
    page, cells = precise(measure, page), []
    for place in order:
        error = float(measure.errors[place])
        error_text = "" if math.isnan(error) else f"{between}{plain(error, page)}"
        value = plain(float(measure.values[place]), page) + error_text
        cells.append(with_offset(measure, place, value, page))
    return [name, *cells, plain_uniform(measure, page)]


def with_offset(measure: Measure, place: tuple[int, int], value: str, page: Page) -> str:
    """A head's value; of `back`, between the offset and a uniform head's value there."""
    if measure.offsets is None:
        return value
    return f"{measure.offsets[place]}: {value}/{plain(measure.uniform_of(*place), page)}"


def plain_uniform(measure: Measure, page: Page) -> str:
    """The value of a uniform head; "/" for `back`, where it stands beside each head's value."""
    return "/" if measure.offsets is not None else plain(measure.uniform_of(0, 0), page)


def precise(measure: Measure, page: Page) -> Page:
    """The page with the measure's digits: two more for differences of losses, which are small."""
    more = 2 * (measure.name == "ablation")
    return replace(page, precision=min(9, page.precision + more))


def plain(value: float, page: Page) -> str:
    """A number, or - where it is unknown."""
    return "-" if math.isnan(value) else number(value, page)
