"""Draws attention matrices in a terminal: as numbers, as a heat map, as the largest values of every
row, or as small pictures of all heads.

Lines fit the screen's width. Columns that do not fit are drawn below the others, again with the
labels of the rows. Characters of the text are shown as labels, never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gpt.show.result import Check, Matrix, short_number
from gpt.show.terminal import GLYPHS, Screen, checks_line, render, shade_style, wrapping_text
from gpt.words import label, legend, pad

View = Literal["auto", "numbers", "heat", "top", "heads"]
THUMBNAIL = 24  # the most cells of the terminal on a side of a head's small picture


def fitting_view(matrix: Matrix, screen: Screen, digits: int) -> View:
    """The first of the views "numbers", "heat" and "top" that fits the screen's width."""
    gutter = cell_len(_row_labels(matrix, screen)[0])
    count = len(matrix.columns)
    if gutter + count * _cell_width(matrix, screen, digits) <= screen.cells:
        return "numbers"
    return "heat" if gutter + count <= screen.cells else "top"


def draw(
    matrices: Sequence[Matrix],
    titles: Sequence[str],
    remarks: Sequence[str],
    checks: Sequence[Check],
    screen: Screen,
    *,
    view: View,
    across: int,
    digits: int,
    top: int,
) -> str:
    """Draws matrices one below the other, then the first remark with the meaning of the labels and
    the checks, then the other remarks.

    titles: one for every matrix; view "heads" has a single title. across: pictures in a line of
    view "heads". digits: digits after the point. top: values in a row of view "top".
    """
    parts: list[RenderableType] = []
    if view == "heads":
        parts += [
            wrapping_text(titles[0], screen, "bold"),
            Text(),
            *draw_heads(matrices, across, screen),
        ]
    else:
        for matrix, title in zip(matrices, titles, strict=True):
            fitting = fitting_view(matrix, screen, digits) if view == "auto" else view
            if fitting == "numbers":
                lines = _numbers(matrix, screen, digits)
            elif fitting == "heat":
                lines = _heat(matrix, screen, digits)
            else:
                lines = _top(matrix, screen, digits, top)
            parts += [wrapping_text(title, screen, "bold"), Text(), *lines, Text()]
    text, style = checks_line(checks, screen)
    first, *others = remarks
    explained = " · ".join([first, *legend(matrices[0].text, screen.ascii), text])
    parts.append(wrapping_text(explained, screen, style))
    parts += [wrapping_text(remark, screen, "dim") for remark in others]
    return render(parts, screen)


def _numbers(matrix: Matrix, screen: Screen, digits: int) -> list[Text]:
    """All values. In a matrix of weights, the largest value of a row is bold, and its column is
    named at the end of the row if there is room.
    """
    width = _cell_width(matrix, screen, digits)
    labels = _row_labels(matrix, screen)
    rows = [
        [Text("" if np.isnan(value) else _number(value, screen, digits)) for value in values]
        for values in matrix.values.tolist()
    ]
    notes = [""] * len(rows)
    if matrix.weights:
        for number, values in enumerate(matrix.values):
            if not np.isnan(values).all():
                largest = int(np.nanargmax(values))
                rows[number][largest].stylize("bold")
                column = matrix.columns[largest]
                name = label(matrix.text[column], screen.ascii)
                notes[number] = f"   {screen.line('→')} {column} {name}"
    gutter = cell_len(labels[0])
    parts = _column_parts(len(matrix.columns), width, gutter, screen)
    room = gutter + width * len(parts[-1]) + max(map(cell_len, notes)) <= screen.cells
    lines: list[Text] = []
    for part in parts:
        if lines:
            lines.append(Text())
        for heading in _headings(matrix, screen):
            names = "".join(pad(heading[n], width, right=True) for n in part)
            lines.append(Text(" " * gutter + names, "dim"))
        for name, cells, note in zip(labels, rows, notes, strict=True):
            line = Text(name, "dim")
            for n in part:
                blank = width - cells[n].cell_len
                line.append(" " * blank, "not dim")
                line.append_text(Text("", "not dim").append_text(cells[n]))
            if part is parts[-1] and room and note:
                line.append(note)
            lines.append(line)
    return lines


def _heat(matrix: Matrix, screen: Screen, digits: int) -> list[Text]:
    """A coloured glyph for every value, brighter and denser for larger values."""
    labels = _row_labels(matrix, screen)
    gutter, count = cell_len(labels[0]), len(matrix.columns)
    width = 2 if gutter + 2 * count <= screen.cells else 1
    shades = _shades(matrix)
    lines: list[Text] = []
    for part in _column_parts(count, width, gutter, screen):
        if lines:
            lines.append(Text())
        lines.append(
            Text(" " * gutter + _ruler(matrix.columns[part.start : part.stop], width), "dim")
        )
        for heading in _headings(matrix, screen)[1:]:
            names = (heading[n] if cell_len(heading[n]) <= width else "?" for n in part)
            lines.append(Text(" " * gutter + "".join(pad(name, width) for name in names), "dim"))
        for name, values in zip(labels, shades[:, part.start : part.stop], strict=True):
            lines.append(Text.assemble((name, "dim"), _painted(values, width)))
    low, high = (_number(value, screen, digits) for value in _extent(matrix))
    scale = Text.assemble((f"{low} ", "dim"), _painted(np.linspace(0, 1, len(GLYPHS)), 1))
    return [*lines, Text(), scale.append(f" {high}", "dim")]


def _top(matrix: Matrix, screen: Screen, digits: int, top: int) -> list[Text]:
    """A line for every row: the `top` largest values, and the sum of the other weights. Dimensions
    of vectors are ranked by absolute value.
    """
    lines = []
    for name, values in zip(_row_labels(matrix, screen), matrix.values, strict=True):
        filled = np.flatnonzero(~np.isnan(values))
        strength = values[filled] if matrix.square else np.abs(values[filled])
        order = filled[np.argsort(-strength, kind="stable")[:top]]
        items = []
        for number in order.tolist():
            column = matrix.columns[number]
            character = f" {label(matrix.text[column], screen.ascii)}" if matrix.square else ""
            items.append(f"{column}{character} {_number(float(values[number]), screen, digits)}")
        if matrix.weights and len(filled) > len(order):
            rest = max(0.0, float(values[filled].sum() - values[order].sum()))
            items.append(f"rest {_number(rest, screen, digits)}")
        joint = screen.line(" · ")
        lines.append(Text(f"{name} {screen.line('←')} {joint.join(items)}"))
    return lines


def draw_heads(matrices: Sequence[Matrix], across: int, screen: Screen) -> list[Text]:
    """Small pictures of the matrices, at most `across` in a line. A cell of a large matrix's
    picture shows the largest value of a square of values.
    """
    step = -(-max(matrices[0].values.shape) // THUMBNAIL)  # rows and columns that a cell covers
    pictures = [_thumbnail(matrix, step, screen) for matrix in matrices]
    width = max(line.cell_len for picture in pictures for line in picture)
    across = max(1, min(across, (screen.cells + 2) // (width + 2)))
    lines = []
    for first in range(0, len(pictures), across):
        for row in zip_longest(*pictures[first : first + across], fillvalue=Text()):
            line = Text()
            for part in row:
                line.append_text(part).pad_right(width + 2 - part.cell_len)
            line.rstrip()
            lines.append(line)
        lines.append(Text())
    if step > 1:
        lines.append(
            Text(screen.line(f"a cell shows the largest of {step} × {step} values"), "dim")
        )
    return lines


def _thumbnail(matrix: Matrix, step: int, screen: Screen) -> list[Text]:
    shades = _shades(matrix)
    down, across = (-size % step for size in shades.shape)
    padded = np.pad(shades, ((0, down), (0, across)), constant_values=np.nan)
    covered = padded.reshape(len(padded) // step, step, -1, step)
    largest = np.fmax.reduce(covered, axis=(1, 3))  # NaN only where all are NaN
    return [Text(screen.line(matrix.name), "dim"), *(_painted(row, 1) for row in largest)]


def _number(value: float, screen: Screen, digits: int) -> str:
    return screen.line(short_number(value, digits))


def _cell_width(matrix: Matrix, screen: Screen, digits: int) -> int:
    """The width of a column of numbers, with the space before it."""
    values = np.unique(matrix.values[~np.isnan(matrix.values)])
    finite = values[np.isfinite(values)]
    extremes = np.concatenate((values[:1], finite[:1], finite[-1:])).tolist()
    numbers = [_number(value, screen, digits) for value in extremes]
    headings = [text for heading in _headings(matrix, screen) for text in heading]
    return 1 + max(map(cell_len, [*numbers, *headings]))


def _row_labels(matrix: Matrix, screen: Screen) -> list[str]:
    """The position and the character of every row, as " 3 t ", all of the same width."""
    names = [label(matrix.text[row], screen.ascii) for row in matrix.rows]
    digits, width = len(str(matrix.rows[-1])), max(map(cell_len, names))
    return [
        f"{row:>{digits + 1}} {pad(name, width)} "
        for row, name in zip(matrix.rows, names, strict=True)
    ]


def _headings(matrix: Matrix, screen: Screen) -> list[list[str]]:
    """The lines above the columns: positions and characters; for dimensions, only numbers."""
    headings = [[str(column) for column in matrix.columns]]
    if matrix.square:
        headings.append([label(matrix.text[column], screen.ascii) for column in matrix.columns])
    return headings


def _column_parts(count: int, width: int, gutter: int, screen: Screen) -> list[range]:
    """Splits the columns into ranges that fit beside the labels of the rows."""
    most = max(1, (screen.cells - gutter) // width)
    return [range(first, min(count, first + most)) for first in range(0, count, most)]


def _ruler(positions: range, width: int) -> str:
    """A line with the number of every fifth position, where there is room."""
    marks = ""
    for column, position in enumerate(positions):
        if position % 5 == 0 and column * width >= len(marks) + bool(marks):
            marks = marks.ljust(column * width) + str(position)
    return marks[: len(positions) * width]


def _extent(matrix: Matrix) -> tuple[float, float]:
    """The values with the darkest and the brightest shade: for weights 0 and 1."""
    values = matrix.values[np.isfinite(matrix.values)]
    if matrix.weights or not values.size:
        return 0.0, float(matrix.weights)
    return float(values.min()), float(values.max())


def _shades(matrix: Matrix) -> npt.NDArray[np.float64]:
    """(rows, columns) shades from 0 to 1; NaN for an empty cell."""
    low, high = _extent(matrix)
    values = np.where(np.isfinite(matrix.values), matrix.values, np.nan).astype(np.float64)
    return np.clip((values - low) / (high - low if high > low else 1.0), 0.0, 1.0)


def _painted(shades: npt.NDArray[np.float64], width: int) -> Text:
    """A line of glyphs, denser and brighter for larger shades, and blank for NaN."""
    line = Text()
    for column in np.flatnonzero(~np.isnan(shades)).tolist():
        shade = float(shades[column])
        line.pad_right(column * width - len(line))
        glyph = GLYPHS[min(len(GLYPHS) - 1, int(shade * len(GLYPHS)))]
        line.append(glyph * width, shade_style(shade))
    return line
