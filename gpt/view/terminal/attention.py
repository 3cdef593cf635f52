"""Attention maps in the terminal: a matrix as numbers, as a heat map or by its strongest keys; an
overview of all heads.

Lines fit the page's width; if the page has none (a pipe), they are as long as needed. Characters of
the text are shown as labels, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Literal

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt.characters import label, legend, pad, quoted
from gpt.config import View
from gpt.reading.layers import Array
from gpt.view.selection import Panel, Selection
from gpt.view.terminal.lines import (
    BOLD,
    DIM,
    GLYPHS,
    NORMAL,
    Page,
    Row,
    check_lines,
    column_blocks,
    grid,
    join_to_lines,
    number,
    paint_cells,
    ruler,
    wrap_styled,
)

THUMBNAIL = 24  # largest number of cells on a side of a head in the overview


def title_of(panel: Panel, view: str) -> list[str]:
    """The title's parts: head, stage, axes, T, head_size, scale."""
    selection = panel.selection
    parts = [panel.where(), selection.stage, axes(selection)]
    parts += [selection.size, f"head_size={selection.attention.head_size}"]
    if view == "heat" and selection.stage == "weights":
        parts.append("scale 0–1")
    elif view == "heat":
        low, high = _extent(panel)
        parts.append(f"scale {low:.2f} … {high:.2f}")
    return parts


def axes(selection: Selection) -> str:
    """The names of the selected stage's rows and columns."""
    return f"rows = query, columns = {'key' if selection.square else 'dimension'}"


def fitting_view(panel: Panel, page: Page) -> Literal["numbers", "heat", "top"]:
    """The view that fits: numbers, else heat, else the strongest keys."""
    rows = row_labels(panel.selection, page)
    if page.width is None or len(numbers(panel, page)) <= len(rows) + len(_headings(panel, page)):
        return "numbers"
    return "heat" if cell_len(rows[0]) + len(panel.columns) <= page.width else "top"


def number_cells(panel: Panel, page: Page) -> list[list[str]]:
    """Every value as digits; masked weights are blank."""
    return [
        ["" if hidden else number(value, page) for value, hidden in zip(*row, strict=True)]
        for row in zip(panel.values.tolist(), panel.hidden.tolist(), strict=True)
    ]


def numbers(panel: Panel, page: Page) -> list[Text]:
    """Shows every value as digits, each row's largest weight in bold, and its key if there is
    room.
    """
    headings, cells = _headings(panel, page), number_cells(panel, page)
    labels = row_labels(panel.selection, page)
    widest = max(cell_len(text) for texts in (*headings, *cells) for text in texts)
    rows: list[Row] = [("", heading, DIM) for heading in headings]
    marks = panel.selection.stage == "weights"
    for name, texts, strongest in zip(labels, cells, panel.values.argmax(axis=1), strict=True):
        marked = [Text(it, BOLD) if marks and n == strongest else it for n, it in enumerate(texts)]
        rows.append((name, marked, ""))
    lines = grid(rows, [widest + 1] * len(panel.columns), page)
    full, notes = lines[-len(rows)].cell_len, _strongest(panel, page)
    room = page.width is None or full + max(map(cell_len, notes)) <= page.width
    for line, note in zip(lines[-len(labels) :], notes, strict=True):
        if note and room:
            line.pad_right(full - line.cell_len)
            line.append(note, DIM)
    return lines


def heat(panel: Panel, page: Page) -> list[Text]:
    """Shows a coloured glyph for every value; larger values are brighter and denser."""
    rows = row_labels(panel.selection, page)
    gutter, count = cell_len(rows[0]), len(panel.columns)
    width = 2 if page.width is None or gutter + 2 * count <= page.width else 1
    shades = shades_of(panel)
    lines: list[Text] = []
    for part in column_blocks([width] * count, gutter, page.width):
        lines += [Text()] if lines else []
        headings = [ruler(panel.columns[part], width)]
        for names in _headings(panel, page)[1:]:
            shown = [text if cell_len(text) <= width else "?" for text in names[part]]
            headings.append("".join(pad(text, width) for text in shown))
        lines += [Text(" " * gutter + heading, DIM) for heading in headings]
        for row, values in zip(rows, shades[:, part], strict=True):
            lines.append(Text().append(row, DIM).append_text(paint_cells(values, width)))
    return lines


def _legend_of_shades(panel: Panel, page: Page) -> list[Text]:
    """The shades in order, between the values of the first and the last one, if this fits."""
    low, high = _extent(panel)
    line = Text().append(f"shades: {number(low, page)} ", DIM)
    line.append_text(paint_cells(np.linspace(0, 1, len(GLYPHS)), 1)).append(
        f" {number(high, page)}", DIM
    )
    return [line] if page.width is None or line.cell_len <= page.width else []


def strongest_keys(panel: Panel, page: Page) -> list[Text]:
    """Shows a line for each query: its strongest keys, and the sum of the other weights.

    Dimensions are sorted by absolute value, keys by value.
    """
    selection = panel.selection
    arrow, separator = ("<-", " | ") if page.ascii_only else ("←", " · ")
    digits = len(str(selection.queries.stop - 1))
    masked = selection.stage in ("masked", "weights")
    lines = []
    for query, values, allowed in zip(
        selection.queries, panel.values, selection.allowed, strict=True
    ):
        if masked:
            values = values[: allowed.sum()]
        strength = values if selection.square else np.abs(values)
        order = np.argsort(-strength, kind="stable")[: page.top].tolist()
        items = []
        for column in order:
            key = panel.columns[column]
            name = f" {quoted(selection.text[key], page.ascii_only)}" if selection.square else ""
            items.append(f"{key}{name} {number(float(values[column]), page)}")
        if selection.stage == "weights" and len(values) > len(order):
            rest = max(0.0, float(values.sum() - values[order].sum()))
            items.append(f"rest {number(rest, page)}")
        start = f"{query:>{digits}} {quoted(selection.text[query], page.ascii_only)} {arrow} "
        gutter = cell_len(start)
        flowed = join_to_lines(items, page.width and page.width - gutter, separator) or ["masked"]
        for nth, part in enumerate(flowed):
            line = Text(" " * gutter if nth else start, DIM)
            lines.append(line.append(part, NORMAL))
    return lines


def row_labels(selection: Selection, page: Page) -> list[str]:
    """ " 3 t ": position and character of every row, all of the same width."""
    names = [label(selection.text[query], page.ascii_only) for query in selection.queries]
    digits, width = len(str(selection.queries.stop - 1)), max(map(cell_len, names))
    return [
        f"{query:>{digits + 2}} {pad(name, width)} "
        for query, name in zip(selection.queries, names, strict=True)
    ]


def _headings(panel: Panel, page: Page) -> list[list[str]]:
    """Two lines above the columns: positions and characters; for dimensions only positions."""
    headings = [[str(at) for at in panel.columns]]
    if panel.selection.square:
        text = panel.selection.text
        headings.append([label(text[key], page.ascii_only) for key in panel.columns])
    return headings


def _strongest(panel: Panel, page: Page) -> list[str]:
    """For each row of weights, " → 3 't'": the key with the largest weight."""
    selection = panel.selection
    if selection.stage != "weights":
        return [""] * len(selection.queries)
    arrow, notes = "->" if page.ascii_only else "→", []
    for values, allowed in zip(panel.values, selection.allowed, strict=True):
        place = int(values.argmax())
        key = selection.keys[place]
        name = quoted(selection.text[key], page.ascii_only)
        notes.append(f"  {arrow} {key} {name}" if allowed[place] else "")
    return notes


def shades_of(panel: Panel) -> Array:
    """(rows, columns) shades in 0 … 1, NaN where the mask forbids a value."""
    low, high = _extent(panel)
    shades: Array = (panel.visible_values - low) / (high - low if high > low else 1.0)
    return np.clip(shades, 0.0, 1.0)


def _extent(panel: Panel) -> tuple[float, float]:
    """The smallest and the largest value that a colour shows: 0 and 1 for weights, for other values
    those that occur; 0 and 0 if all are masked.
    """
    if panel.selection.stage == "weights":
        return 0.0, 1.0
    visible = panel.visible_values
    if np.isnan(visible).all():
        return 0.0, 0.0
    return float(np.nanmin(visible)), float(np.nanmax(visible))


#: View -> the function that draws one matrix in it.
VIEWS: dict[str, Callable[[Panel, Page], list[Text]]] = {
    "numbers": numbers,
    "heat": heat,
    "top": strongest_keys,
}


def render(selection: Selection, view: View, page: Page) -> list[Text]:
    """Shows the selected matrices, then a legend and the checks."""
    lines: list[Text] = []
    if view == "heads":
        lines += overview(selection, page)
    else:
        for panel in selection.panels():
            drawn = view if view != "auto" else fitting_view(panel, page)
            lines += wrap_styled(title_of(panel, drawn), page, BOLD)
            lines += wrap_styled([selection.why], page) if selection.why else []
            lines += [Text(), *VIEWS[drawn](panel, page), Text()]
            lines += _legend_of_shades(panel, page) if drawn == "heat" else []
    return [
        *lines,
        *wrap_styled(legend(selection.text, page.ascii_only), page, DIM),
        *check_lines(selection.attention.checks_of(selection.stage), page),
    ]


def overview(selection: Selection, page: Page) -> list[Text]:
    """Small pictures of all heads side by side; a cell shows the largest value that it covers."""
    panels = selection.panels()
    title = [f"{selection.stage} of every head", axes(selection), selection.size]
    step = -(-max(panels[0].values.shape) // THUMBNAIL)  # rows and columns that one cell covers
    title += [f"a cell = the largest of {step} × {step}"] if step > 1 else []
    weights = selection.stage == "weights"
    title.append("scale 0–1" if weights else "each from its least to its largest")
    lines = [*wrap_styled(title, page, BOLD), Text()]
    pictures = [_thumbnail(panel, step) for panel in panels]
    width = max(line.cell_len for picture in pictures for line in picture)
    across = len(selection.heads) if page.width is None else max(1, (page.width + 2) // (width + 2))
    for first in range(0, len(pictures), across):
        lines += [*_beside(pictures[first : first + across], width), Text()]
    return lines


def _thumbnail(panel: Panel, step: int) -> list[Text]:
    shades = shades_of(panel)
    down, across = (-size % step for size in shades.shape)
    padded = np.pad(shades, ((0, down), (0, across)), constant_values=np.nan)
    covered = padded.reshape(len(padded) // step, step, -1, step)
    largest = np.fmax.reduce(covered, axis=(1, 3))  # NaN only where all are NaN
    return [Text(panel.where(), DIM), *(paint_cells(row, 1) for row in largest)]


def _beside(pictures: Sequence[list[Text]], width: int) -> list[Text]:
    """Puts pictures side by side; each but the last is filled up to `width` cells."""
    lines = []
    for first, *others in zip_longest(*pictures, fillvalue=Text()):
        line, before = first.copy(), first
        for part in others:
            line.append(" " * (width - before.cell_len + 2)).append_text(part)
            before = part
        lines.append(line)
    return lines
