"""Attention maps in the terminal: the selected matrices, all heads at a glance, two checkpoints.

`matrix` draws a single matrix; here are titles, arrangement, the legend and the checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from rich.text import Text

from gpt.config.show import Drawing
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.view.characters import legend, quoted
from gpt.view.selection import Look, Panel, Selection
from gpt.view.terminal.lines import BOLD, DIM, Page, checks, number, painted, styled
from gpt.view.terminal.matrix import ROW_SCALE, VIEWS, axes, fitting, shades_of, title_of

THUMBNAIL = 24  # most cells a side of a head in the overview


def render(attention: AttentionMap, selection: Selection, view: Drawing, page: Page) -> list[Text]:
    """The selected matrices, then a legend and the checks."""
    panels = selection.panels(attention)
    if view == "heads":
        lines = overview(attention, selection, panels, page)
    else:
        lines = []
        for panel in panels:
            drawn = view if view != "auto" else fitting(attention, selection, panel, page)
            title = title_of(attention, selection, panel, drawn, page)
            lines += [*styled(title, page, BOLD), Text()]
            lines += [*VIEWS[drawn](attention, selection, panel, page), Text()]
    return [*lines, *meanings(attention.text, page), *checks(attention.checks, page)]


def meanings(text: str, page: Page) -> list[Text]:
    """What the signs in the labels stand for."""
    return styled(legend(text, page.ascii_only), page, DIM)


def overview(
    attention: AttentionMap, selection: Selection, panels: Sequence[Panel], page: Page
) -> list[Text]:
    """Small pictures of every head side by side, each cell the largest of what it covers."""
    title = [f"{selection.stage} of every head", axes(selection), f"T={len(attention.text)}"]
    step = -(-max(panels[0].values.shape) // THUMBNAIL)  # rows and columns that a cell covers
    title += [f"a cell = the largest of {step} × {step}"] if step > 1 else []
    each = "scale 0–1" if selection.stage == "weights" else "each from its least to its largest"
    title.append(ROW_SCALE if page.scale == "row" else each)
    lines = [*styled(title, page, BOLD), Text()]
    pictures = [_thumbnail(selection, panel, step, page) for panel in panels]
    width = max(line.cell_len for picture in pictures for line in picture)
    across = len(selection.heads) if page.width is None else max(1, (page.width + 2) // (width + 2))
    for first in range(0, len(pictures), across):
        lines += [*_beside(pictures[first : first + across], width, Text("  ")), Text()]
    return lines


def _thumbnail(selection: Selection, panel: Panel, step: int, page: Page) -> list[Text]:
    shades = shades_of(selection, panel, page.scale)
    rows, columns = (range(0, size, step) for size in shades.shape)
    lines = [Text(panel.where(), DIM)]
    for row in rows:
        covered = [shades[row : row + step, column : column + step] for column in columns]
        largest = [np.nan if np.isnan(part).all() else np.nanmax(part) for part in covered]
        lines.append(painted(np.array(largest), 1))
    return lines


def compare(sides: Sequence[Look], view: Drawing, page: Page) -> list[Text]:
    """Both sides of every selected head that both have, how much it changed, and all checks.

    Raises ConfigError if they share none.
    """
    lines: list[Text] = []
    if view == "heads":
        for side in sides:
            lines.append(Text(side.name, BOLD))
            panels = side.selection.panels(side.attention)
            lines += overview(side.attention, side.selection, panels, page)
    else:
        for pair in _common(sides):
            lines += _pair(sides, pair, view, page)
    lines += meanings(sides[0].attention.text, page)
    for side in sides:
        lines += styled([side.name], page, DIM)
        lines += checks(side.attention.checks, page)
    return lines


def _common(sides: Sequence[Look]) -> list[tuple[Panel, Panel]]:
    first, second = (
        {(panel.layer, panel.head): panel for panel in side.selection.panels(side.attention)}
        for side in sides
    )
    shared = [(panel, second[place]) for place, panel in first.items() if place in second]
    if not shared:
        raise ConfigError("diff", "the two checkpoints share no such head")
    return shared


def _pair(
    sides: Sequence[Look], panels: tuple[Panel, Panel], view: Drawing, page: Page
) -> list[Text]:
    """One head on both sides."""
    both = list(zip(sides, panels, strict=True))
    half = replace(page, width=page.width and (page.width - 3) // 2)
    drawn = _widest(both, view, half)
    if drawn is None:
        half, drawn = page, _widest(both, view, page) or (view if view != "auto" else "top")
    pictures = [VIEWS[drawn](side.attention, side.selection, panel, half) for side, panel in both]
    title = title_of(sides[0].attention, sides[0].selection, panels[0], drawn, page)
    lines = [*styled(title, page, BOLD), Text()]
    if half is page and page.width is not None:
        for side, picture in zip(sides, pictures, strict=True):
            lines += [Text(side.name, BOLD), *picture, Text()]
    else:
        headed = [
            [*styled([side.name], half, BOLD), *picture]
            for side, picture in zip(sides, pictures, strict=True)
        ]
        between = Text(" | " if page.ascii_only else " │ ", DIM)
        for line in _beside(headed, max(line.cell_len for line in headed[0]), between):
            line.rstrip()
            lines.append(line)
        lines.append(Text())
    change = _change(sides[0], panels, page)
    return [*lines, *styled(change, page, DIM), Text()]


def _widest(both: Sequence[tuple[Look, Panel]], view: Drawing, page: Page) -> str | None:
    """The most telling view that both sides have room for: numbers or heat, or the given one."""
    order = ("numbers", "heat", "top")
    fits = max(order.index(fitting(s.attention, s.selection, panel, page)) for s, panel in both)
    if view == "auto":
        return order[fits] if fits < 2 else None
    return view if fits <= order.index(view) and fits < 2 else None


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


def _change(side: Look, panels: tuple[Panel, Panel], page: Page) -> list[str]:
    """Mean and largest difference, second less first, over what the mask allows."""
    before, after = (panel.values.astype(np.float64) for panel in panels)
    if before.shape != after.shape:
        return ["change: not of one shape"]
    seen = np.isfinite(before) & np.isfinite(after)
    if side.selection.stage == "weights":
        seen &= side.selection.allowed
    if not seen.any():
        return ["change: nothing to compare"]
    difference = np.where(seen, after, 0.0) - np.where(seen, before, 0.0)
    row, column = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    query = side.selection.queries[int(row)]
    where = f"query {query} {quoted(side.attention.text[query], page.ascii_only)}"
    if side.selection.square:
        key = side.selection.keys[int(column)]
        where += f", key {key} {quoted(side.attention.text[key], page.ascii_only)}"
    else:
        where += f", dimension {int(column)}"
    largest = float(difference[row, column])
    sign = "+" if largest > 0 else ""
    mean = float(np.abs(difference[seen]).mean())
    return [
        f"mean change {number(mean, page)}",
        f"largest {sign}{number(largest, page)} at {where}",
    ]
