"""Measures of heads in the terminal: all heads with errors and those of uniform attention; over a
training, one table for each measure, the most changed heads first.
"""

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
from gpt.heads.survey import Development, Survey
from gpt.reading.layers import Array
from gpt.view.records import measure_record
from gpt.view.terminal.lines import BOLD, DIM, GLYPHS, Page, Row, grid, in_ascii, number, styled

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


BARS = "▁▂▃▄▅▆▇█"
LONGEST = 32  # most characters of a curve


def by_change(found: Development, name: str) -> list[tuple[int, int]]:
    """(layer, head) of every head, the one whose measure changed most first.

    Raises ConfigError for an unknown measure.
    """
    if name not in found.names:
        raise ConfigError("sort", f"{name!r} is not one of {', '.join(found.names)}")
    change = found.change(name)
    order = np.argsort(-change, axis=None, kind="stable")
    return [divmod(place, change.shape[1]) for place in order.tolist()]


def development_lines(
    found: Development,
    page: Page,
    every: bool = False,
    sort: str | None = None,
    top: int | None = None,
) -> list[Text]:
    """A title, the names with the steps since which heads have them, and the tables.

    every: all measures; else those that `gptx heads` shows. sort: the order of the heads in all
    tables; by default, the change of each table's own measure. Raises ConfigError.
    """
    steps, S = found.steps, len(found.steps)
    heading = ["heads over training", f"{S} steps, {steps[0]:,} to {steps[-1]:,}", found.measured]
    lines = [*styled(heading, page, BOLD), Text(), *_names(found, page)]
    shown = shown_measures(found.surveys[-1], every)
    for measure in shown:
        order = by_change(found, sort or measure.name)[:top]
        lines += [Text(), *_table(found, measure.name, order, page)]
    notes = [
        *(f"{measure.title}: {measure.explained}" for measure in shown if measure.explained),
        "curve: all steps, from 0 to the highest value in its table",
        found.surveys[-1].rule,
        CAVEAT,
    ]
    return [*lines, Text(), *(line for note in notes for line in styled([note], page, DIM))]


def _names(found: Development, page: Page) -> list[Text]:
    """The names of heads, in the order in which heads got them."""
    since, last = found.named_since(), found.kinds[-1]
    named: dict[tuple[int, str], list[str]] = {}
    for place in zip(*np.nonzero(last != ""), strict=True):
        key = int(since[place]), str(last[place])
        named.setdefault(key, []).append("L{}H{}".format(*place))
    items = [
        f"{name} since step {step:,}: {', '.join(heads)}"
        for (step, name), heads in sorted(named.items())
    ]
    return styled(items or ["no head has a name at the last step"], page)


def _table(
    found: Development, name: str, order: Sequence[tuple[int, int]], page: Page
) -> list[Text]:
    """A measure's title, then for each head its curve and its values at the steps that fit."""
    number = found.names.index(name)
    measure, values = found.measures[number], found.of(name)  # (S, L, H)
    digits = precise(measure, page)
    labels = head_labels(order, found.kinds[-1].tolist(), page)
    cells = [[_cell(found, number, n, each, digits) for n in range(len(values))] for each in order]
    steps = [str(step) for step in found.steps.tolist()]
    gutter, S = max(map(len, labels)), len(steps)
    wide = 2 + max(len(cell) for row in (steps, *cells) for cell in row)
    if page.width is not None and gutter + 1 + 2 * wide > page.width:  # without the uniform values
        cells = [[cell.partition("/")[0] for cell in row] for row in cells]
        wide = 2 + max(len(cell) for row in (steps, *cells) for cell in row)
    long, some = min(S, LONGEST), list(range(S))
    if page.width is not None:
        room = page.width - gutter
        long = max(1, min(long, room - 2 * wide))
        some = _spread(S, max(2, (room - long) // wide))
    rows: list[Row] = [("", [" " * long, *(steps[n] for n in some)], DIM)]
    known = [0.0, *values[~np.isnan(values)].tolist()]
    lowest, highest = min(known), max(known)
    for place, label, row in zip(order, labels, cells, strict=True):
        curve = (values[(_spread(S, long), *place)] - lowest) / max(1e-9, highest - lowest)
        rows.append((label, [_curve(curve, page), *(row[n] for n in some)], ""))
    heading = [measure.title, f"uniform {plain_uniform(measure, digits)}"]
    return [
        *styled(heading, page, BOLD),
        *grid(rows, [long, *[wide] * len(some)], page),
    ]


def _cell(found: Development, number: int, n: int, place: tuple[int, int], page: Page) -> str:
    """One value; of `back`, with the offset and a uniform head's."""
    measure = found.surveys[n].measures[number]
    value = plain(float(measure.values[place]), page)
    return with_offset(measure, place, value, page).replace(": ", ":")


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers 0 … count − 1, evenly spread, with the first and the last."""
    numbers: list[int] = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return numbers


def _curve(shares: Array, page: Page) -> str:
    """A sign for each value in 0 … 1, higher or denser for larger ones; blank for NaN."""
    signs = GLYPHS if page.ascii_only else BARS
    last = len(signs) - 1
    return "".join(" " if math.isnan(each) else signs[round(each * last)] for each in shares)
