"""Attention maps as figures for papers: SVG and PDF with vector text, PNG of 300 dpi.

All cells of a matrix have the same size and sharp edges in every format, because everything lies on
a grid of 300 dots per inch. The same input gives the same bytes. matplotlib, an optional package,
is imported when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.reading.layers import Array
from gpt.view.figure.fonts import font_warning
from gpt.view.figure.layout import plan_figure, points, sides
from gpt.view.figure.sheet import GREY, INK, Sheet, figure_style
from gpt.view.selection import Panel, Selection
from gpt.view.terminal.attention import number_cells
from gpt.view.terminal.lines import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERS = 12  # if a single matrix has at most so many rows and columns, cells show numbers
_MASKED = "#d0d0d0"
# The terminal's colours for white paper, in even steps of lightness. The lowest colour is not
# white, so that a small weight differs from a masked one. Signed values have two colours, as on the
# page (assets/colours.js): orange is negative, blue-green is positive.
_RAMP = ("#f5f3d9", "#bcdfae", "#58b69b", "#1f8a96", "#28608f", "#31347a", "#1c103c")
_SIGNED_RAMP = (
    *("#702a06", "#aa521c", "#e28e52", "#f8d0a0", "#f0f3ec"),
    *("#addac7", "#40a0a0", "#1c5c8c", "#122a62"),
)
_MEANINGS: dict[str, str] = {
    "scores": "q·k",
    "scaled": "q·k / √d",
    "masked": "q·k / √d",
    "weights": "attention weight",
    "context": "context = weights · v",
    "concat": "contexts of all heads",
    "proj": "projection of all heads",
    "resid_mid": "residual stream",
}


def draw(selection: Selection, ascii_only: bool = False) -> tuple[Figure, list[str]]:
    """Draws the selected matrices as one figure: an Axes for each panel in order, then one for the
    colour bar. Also returns warnings (if fonts lack characters).

    ascii_only: characters have ASCII labels. Raises ConfigError if matplotlib is not installed, and
    if the figure would be too large.
    """
    with figure_style():
        panels = selection.panels()
        few = len(panels) == 1 and max(panels[0].values.shape) <= NUMBERS
        numbers = number_cells(panels[0], Page()) if few else []
        plan = plan_figure(panels, numbers)
        query, key, explained, missing = sides(panels[0], plan, ascii_only)
        sheet = Sheet(plan, query, key, explained)
        shades = [panel.visible_values for panel in panels]
        paint = _paint(selection, shades)
        for place, panel in enumerate(panels):
            axes = sheet.panel(place)
            image = axes.imshow(shades[place], **paint)
            edged = selection.stage in ("weights", "masked") and not selection.allowed.all()
            if edged and plan.cell[0] >= points(1.2):
                axes.plot(*_staircase(selection), color=GREY, lw=0.4, scalex=False, scaley=False)
            if len(panels) > 1:
                axes.set_title(panel.where(" · "), size=6.5, pad=2.5)
            for row, texts in enumerate(numbers):
                for column, text in enumerate(texts):
                    cell = shades[place][row : row + 1, column : column + 1]
                    colour = _ink(image.to_rgba(cell))
                    written = axes.text(column, row, text, size=plan.digits, color=colour)
                    written.set(ha="center", va="center_baseline")
        sheet.bar(_meaning(selection), paint)
        facts = f"{selection.size} · head_size={selection.attention.head_size}"
        name = selection.name
        sheet.words(_title(panels), f"{name} · {facts}" if name else facts, explained)
        return sheet.figure, [font_warning(missing)] if missing else []


def _title(panels: Sequence[Panel]) -> str:
    """The title of the figure."""
    selection = panels[0].selection
    if len(panels) == 1:
        return f"{panels[0].where(' · ')} · {selection.stage}"
    layers, heads = selection.layers, selection.heads
    layer = f"layers {layers[0]}–{layers[-1]}" if len(layers) > 1 else f"layer {layers[0]}"
    head = f"heads {heads[0]}–{heads[-1]}" if len(panels) > len(layers) else panels[0].of
    return f"{layer} · {head} · {selection.stage}"


def _meaning(selection: Selection) -> str:
    """The title of the colour bar."""
    grey = selection.stage == "masked" and not selection.attention.allowed.all()
    return _MEANINGS[selection.stage] + ("; grey: masked" if grey else "")


def _paint(selection: Selection, shades: Sequence[Array]) -> dict[str, Any]:
    """The colour map and its limits, the same for all panels; for signed values symmetric around 0.
    NaN is white or grey.
    """
    from matplotlib.colors import LinearSegmentedColormap

    signed = selection.stage != "weights"
    largest = max(float(np.nan_to_num(np.abs(part)).max()) for part in shades) or 1.0
    limit = largest if signed else 1.0
    ramp = LinearSegmentedColormap.from_list("gptx", _SIGNED_RAMP if signed else _RAMP)
    return {
        "cmap": ramp.with_extremes(bad=_MASKED if signed else "white"),
        "vmin": -limit if signed else 0.0,
        "vmax": limit,
        "aspect": "auto",
        "interpolation": "nearest",
    }


def _staircase(selection: Selection) -> tuple[Array, Array]:
    """The edge of the allowed keys, as x and y of a line."""
    allowed = selection.allowed.sum(axis=1)
    edges = np.arange(len(allowed) + 1) - 0.5
    return np.repeat(allowed - 0.5, 2), np.repeat(edges, 2)[1:-1]


def _ink(colour: Any) -> str:
    """The text colour on a cell: dark or white, whichever has more contrast (WCAG 2)."""
    red, green, blue = np.asarray(colour)[..., :3].ravel() ** 2.2
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.21 else "white"
