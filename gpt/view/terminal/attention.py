"""Attention maps in the terminal: selected matrices, an overview of all heads, several checkpoints.

matrix.py draws a single matrix; this module adds titles, arrangement, legend and checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

import numpy as np
from rich.text import Text

from gpt.characters import legend, quoted
from gpt.config import Drawing
from gpt.view.selection import Panel, Selection, shared_panels
from gpt.view.terminal.lines import BOLD, DIM, Page, checks, number, painted, styled
from gpt.view.terminal.matrix import ROW_SCALE, VIEWS, axes, fitting, kind_of, shades_of, title_of

#: What a row of cross-attention is.
READS = ["each row is what the decoder reads; it predicts the character after it"]
THUMBNAIL = 24  # most cells on a side of a head in the overview


def render(selection: Selection, view: Drawing, page: Page) -> list[Text]:
    """The selected matrices, then a legend and the checks."""
    lines: list[Text] = []
    if view == "heads":
        lines += overview(selection, page)
    else:
        for panel in selection.panels():
            drawn = view if view != "auto" else fitting(panel, page)
            lines += styled(title_of(panel, drawn, page), page, BOLD)
            lines += [*because(selection, page), Text(), *VIEWS[drawn](panel, page), Text()]
    attention = selection.attention
    lines += styled(READS if attention.kind == "cross" else [], page, DIM)
    return [*lines, *meanings(shown(selection), page), *checks(attention.checks, page)]


def because(selection: Selection, page: Page) -> list[Text]:
    """Why this head, and how to choose another, if the reader chose none."""
    return styled([selection.why], page) if selection.why else []


def shown(selection: Selection) -> str:
    """All characters of the labels."""
    return selection.rows + selection.columns


def meanings(text: str, page: Page) -> list[Text]:
    """The meaning of the signs in the labels."""
    return styled(legend(text, page.ascii_only), page, DIM)


def overview(selection: Selection, page: Page) -> list[Text]:
    """Small pictures of all heads side by side; a cell shows the largest value that it covers."""
    panels = selection.panels()
    title = [*kind_of(selection), f"{selection.stage} of every head", axes(selection)]
    title += selection.sizes
    step = -(-max(panels[0].values.shape) // THUMBNAIL)  # rows and columns that a cell covers
    title += [f"a cell = the largest of {step} × {step}"] if step > 1 else []
    each = "scale 0–1" if selection.stage == "weights" else "each from its least to its largest"
    title.append(ROW_SCALE if page.scale == "row" else each)
    lines = [*styled(title, page, BOLD), Text()]
    pictures = [_thumbnail(panel, step, page) for panel in panels]
    width = max(line.cell_len for picture in pictures for line in picture)
    across = len(selection.heads) if page.width is None else max(1, (page.width + 2) // (width + 2))
    for first in range(0, len(pictures), across):
        lines += [*_beside(pictures[first : first + across], width, Text("  ")), Text()]
    return lines


def _thumbnail(panel: Panel, step: int, page: Page) -> list[Text]:
    shades = shades_of(panel, page.scale)
    down, across = (-size % step for size in shades.shape)
    padded = np.pad(shades, ((0, down), (0, across)), constant_values=np.nan)
    covered = padded.reshape(len(padded) // step, step, -1, step)
    largest = np.fmax.reduce(covered, axis=(1, 3))  # NaN only where all are NaN
    return [Text(panel.where(), DIM), *(painted(row, 1) for row in largest)]


def compare(sides: Sequence[Selection], view: Drawing, page: Page) -> list[Text]:
    """Every selected head that all checkpoints have: its matrices, how they differ, and all checks.

    Raises ConfigError if they have no such head in common.
    """
    lines: list[Text] = []
    if view == "heads":
        for side in sides:
            lines += [Text(side.name, BOLD), *overview(side, page)]
    else:
        for panels in shared_panels(sides):
            lines += _compared(panels, view, page)
    lines += meanings(shown(sides[0]), page)
    for side in sides:
        lines += [*styled([side.name], page, DIM), *checks(side.attention.checks, page)]
    return lines


def _compared(panels: Sequence[Panel], view: Drawing, page: Page) -> list[Text]:
    """One head of all checkpoints: as many side by side as fit as numbers or heat."""
    part, drawn = page, None
    for across in range(len(panels), 0, -1):
        part = replace(page, width=page.width and (page.width - 3 * (across - 1)) // across)
        drawn = _widest(panels, view, part)
        if drawn is not None:
            break
    drawn = drawn or (view if view != "auto" else "top")
    pictures = [
        [*styled([panel.selection.name], part, BOLD), *VIEWS[drawn](panel, part)]
        for panel in panels
    ]
    lines = styled(title_of(panels[0], drawn, page), page, BOLD)
    lines += [*because(panels[0].selection, page), Text()]
    width = max(line.cell_len for picture in pictures[:-1] for line in picture)
    between = Text(" | " if page.ascii_only else " │ ", DIM)
    for first in range(0, len(pictures), across):
        lines += [*_beside(pictures[first : first + across], width, between), Text()]
    for pair in pairwise(panels):
        names = [" to ".join(panel.selection.name for panel in pair)] * (len(panels) > 2)
        lines += styled([*names, *_change(pair, page)], page, DIM)
    return [*lines, Text()]


def _widest(panels: Sequence[Panel], view: Drawing, page: Page) -> str | None:
    """The view for all sides: for "auto", the first of numbers and heat that fits; else the given
    one if it fits.
    """
    order = ("numbers", "heat", "top")
    fits = max((fitting(panel, page) for panel in panels), key=order.index)
    drawn = fits if view == "auto" else view
    return drawn if fits != "top" and order.index(fits) <= order.index(drawn) else None


def _beside(pictures: Sequence[list[Text]], width: int, between: Text) -> list[Text]:
    """Pictures side by side, each but the last filled up to `width` cells."""
    lines = []
    for first, *others in zip_longest(*pictures, fillvalue=Text()):
        line, before = first.copy(), first
        for part in others:
            line.append(" " * (width - before.cell_len)).append_text(between).append_text(part)
            before = part
        lines.append(line)
    return lines


def _change(panels: tuple[Panel, Panel], page: Page) -> list[str]:
    """Mean and largest difference, second minus first, over the keys that the mask allows."""
    before, after = (panel.visible for panel in panels)
    if before.shape != after.shape:
        return ["change: not of one shape"]
    difference = after - before
    if np.isnan(difference).all():
        return ["change: nothing to compare"]
    row, column = np.unravel_index(np.nanargmax(np.abs(difference)), difference.shape)
    selection = panels[0].selection
    query, at = selection.queries[int(row)], panels[0].columns[int(column)]
    where = f"query {query} {quoted(selection.rows[query], page.ascii_only)}, "
    if selection.square:
        where += f"key {at} {quoted(selection.columns[at], page.ascii_only)}"
    else:
        where += f"dimension {at}"
    largest = float(difference[row, column])
    mean = float(np.nanmean(np.abs(difference)))
    sign = "+" if largest > 0 else ""
    return [
        f"mean change {number(mean, page)}",
        f"largest {sign}{number(largest, page)} at {where}",
    ]
