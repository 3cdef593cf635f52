"""The layout of a figure on paper: its panels, the size of their cells, the labels beside the
panels.

Lengths are pixels at 300 per inch, font sizes are points. Draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from gpt.characters import PICTURES, drawn_legend
from gpt.config.model import HEAD_STAGES
from gpt.view.figure.fonts import drawable_label, label_characters
from gpt.view.selection import Panel

DPI = 300
COLUMN, _PAGE, _PAGE_HEIGHT = round(3.4 * DPI), 7 * DPI, 9 * DPI  # width of a column in a paper
GLYPH = 0.64  # width of a terminal's cell in DejaVu Sans, as a multiple of the font size


def points(size: float) -> int:
    """Converts a length from points to pixels."""
    return round(size * DPI / 72)


@dataclass(frozen=True)
class FigureLayout:
    """The grid of panels, the size of their cells (pixels), and of the digits in them (points)."""

    shape: tuple[int, int]  # rows and columns of a panel
    panels: int
    across: int
    cell: tuple[int, int]  # height and width
    digits: float


def plan_figure(panels: Sequence[Panel], numbers: list[list[str]]) -> FigureLayout:
    """Plans a figure. One head of T ≤ 16 is as wide as a paper's column; for larger T it grows up
    to the page's width.

    A cell has at least one pixel, even if the figure becomes larger than the page, because an
    omitted cell could be the strongest.
    """
    selection, (rows, columns) = panels[0].selection, panels[0].values.shape
    count, layers = len(panels), len(selection.layers)
    across = _across(count, layers, selection.stage not in HEAD_STAGES)
    widest = max((_ems(text) for row in numbers for text in row), default=0.0) or 1.0
    smallest = points(5 * widest + 2.2) if numbers else 1
    if count == 1:
        width = float(np.interp(max(rows, columns), (16, 64), (COLUMN, _PAGE))) - points(80)
        height, largest = float(_PAGE - points(60)), points(30)
    else:
        width = max(0.8 * DPI, (_PAGE - points(80)) / across - points(8))
        height = max(0.8 * DPI, (_PAGE_HEIGHT - points(60)) * across / count - points(17))
        largest = points(18)
    wide = max(smallest, min(largest, round(width / columns)))
    high = max(smallest, min(largest, round(height / rows)))
    if selection.square:
        wide = high = min(wide, high)
    else:  # there are many dimensions, so their cells need not be square
        high, wide = min(high, max(wide, points(8))), min(wide, max(high, points(16)))
    digits = min(8.0, (wide * 72 / DPI - 2.2) / widest) if numbers else 0.0
    return FigureLayout((rows, columns), count, across, (high, wide), digits)


def _ems(digits: str) -> float:
    """Width of a number as a multiple of the font size: points are narrow, minus signs wide."""
    return 0.64 * len(digits) - 0.32 * digits.count(".") + 0.2 * digits.count("−")


def _across(count: int, layers: int, wide: bool) -> int:
    """How many rows and columns of panels: one row for each layer; a long single row or column is
    folded.
    """
    heads = count // layers
    if wide or min(layers, heads) > 1:
        return heads
    side = math.ceil(math.sqrt(count))
    return count if count <= 5 else next((n for n in range(side, 7) if count % n == 0), side)


@dataclass(frozen=True)
class SideLabels:
    """The labels along one side of the panels."""

    name: str
    places: Sequence[int]  # numbers of the labelled cells
    texts: Sequence[str]
    fonts: Sequence[str]  # a file for each text; empty if the labels are positions
    size: float  # points
    pitch: float  # points from one cell to the next

    def turned(self, text: str) -> bool:
        """Whether a character's label is too wide for the space between its neighbours."""
        return bool(self.fonts) and self.length(text) > points(self.pitch + 1)

    def length(self, text: str) -> int:
        """Approximate length in pixels."""
        return points(cell_len(text) * GLYPH * self.size)

    @property
    def longest(self) -> int:
        return max(map(self.length, self.texts))

    @property
    def deepest(self) -> int:
        """Height in pixels of the texts below a panel."""
        turned = [self.length(text) for text in self.texts if self.turned(text)]
        return max(points(1.2 * self.size), *turned, 0)


def sides(
    panel: Panel, plan: FigureLayout, ascii_only: bool
) -> tuple[SideLabels, SideLabels, str, list[str]]:
    """Labels of rows and columns, the legend of labels, and the characters that no font draws.

    Labels are characters if these are legible (5 points), else positions.
    """
    selection = panel.selection
    text = selection.text
    lettered = [[text[at] for at in selection.queries]]
    lettered += [[text[at] for at in selection.keys]] if selection.square else []
    legible = 0.8 * plan.cell[0] * 72 / DPI > 4.98  # 5 points
    lettered = lettered if legible else []  # for square matrices, rows and columns
    shown = [*dict.fromkeys(each for side in lettered for each in side)]
    names, fonts, missing = label_characters(shown, ascii_only)
    sides = []
    names_of_axes = "query", "key" if selection.square else "dimension"
    for axis, positions in enumerate((selection.queries, panel.columns)):
        title = names_of_axes[axis]
        single, pitch = plan.panels == 1, plan.cell[axis] * 72 / DPI
        if axis < len(lettered):
            texts = [names[each] for each in lettered[axis]]
            files = [fonts[each] for each in lettered[axis]]
            size, places = min(8.0 if single else 6.5, 0.8 * pitch), list(range(len(texts)))
        else:
            size, files = 6.0 if single else 5.5, []
            step = next((n for n in (1, 2, 5, 10, 20, 50, 100) if n * pitch >= 3 * size), 200)
            marked = [at for at in positions if at % step == 0] or [positions.start]
            texts, places = list(map(str, marked)), [at - positions.start for at in marked]
            title += " position" if title != "dimension" else ""
        sides.append(SideLabels(title, places, texts, files, size, pitch))
    signs = drawn_legend(shown, ascii_only)
    explained = " · ".join(each for each in signs if each[0] not in PICTURES)
    if not lettered:  # labels are positions, so the text is written below
        drawn = (" " if each == " " else drawable_label(each, ascii_only) for each in text)
        explained = f'"{"".join(drawn)}"'
    return sides[0], sides[1], explained, missing
