"""Tables of measures over a training: one table for each measure, the most changed heads first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.text import Text

from gpt.errors import ConfigError
from gpt.heads.development import Development
from gpt.reading.layers import Array
from gpt.view.terminal.heads import (
    CAVEAT,
    head_labels,
    plain,
    plain_uniform,
    precise,
    shown_measures,
    with_offset,
)
from gpt.view.terminal.lines import BOLD, DIM, GLYPHS, Page, Row, grid, styled

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
