"""Attention maps as figures for papers: SVG and PDF with vector text, PNG of 300 dpi.

All cells of a matrix have the same size and sharp edges in every format, because everything lies on
a grid of 300 dots per inch. The same input gives the same bytes. matplotlib, an optional package,
is imported when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.characters import cut
from gpt.config import Scale
from gpt.config.model import HEAD_STAGES
from gpt.errors import ConfigError
from gpt.reading.layers import Array
from gpt.view.figure.fonts import font_warning
from gpt.view.figure.layout import plan_figure, points, sides
from gpt.view.figure.sheet import GREY, INK, Sheet, figure_style
from gpt.view.selection import Panel, Selection, shared_panels
from gpt.view.terminal.attention import kind_of, number_cells
from gpt.view.terminal.lines import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 60  # characters of a checkpoint's name
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
    "qk": "q·k / √d",
    "ov": "added to the logit",
}


def draw(
    selections: Selection | Sequence[Selection],
    scale: Scale = "fixed",
    ascii_only: bool = False,
    name: str = "",
) -> tuple[Figure, list[str]]:
    """Draws the selected matrices as one figure: an Axes for each panel in order, then one for the
    colour bar. Also returns warnings (if fonts lack characters).

    With selections of several checkpoints for the same text, there is a row for each matrix that
    all of them have, with a panel for each checkpoint; a single matrix is drawn as a strip.
    ascii_only: characters have ASCII labels. name: is written under the title; by default, a single
    selection's name. Raises ConfigError if matplotlib is not installed, if the figure would be too
    large, and if matrices of several checkpoints differ in shape.
    """
    with figure_style():
        every = [selections] if isinstance(selections, Selection) else selections
        panels = [panel for group in shared_panels(every) for panel in group]
        selection = every[0]
        if len({panel.values.shape for panel in panels}) > 1:
            raise ConfigError(
                f"stage {selection.stage}",
                "the checkpoints' matrices differ in shape; choose one whose columns are keys, "
                "such as weights",
            )
        few = len(panels) == 1 and max(panels[0].values.shape) <= NUMBERS
        numbers = number_cells(panels[0], Page()) if few else []
        plan = plan_figure(panels, numbers, len(every))
        query, key, explained, missing = sides(panels[0], plan, ascii_only)
        sheet = Sheet(plan, query, key, explained)
        shades = [_shades(panel, scale) for panel in panels]
        paint = _paint(selection, shades, scale)
        for place, panel in enumerate(panels):
            axes = sheet.panel(place)
            image = axes.imshow(shades[place], **paint)
            edged = selection.stage in ("weights", "masked") and not selection.allowed.all()
            if edged and plan.cell[0] >= points(1.2):
                axes.plot(*_staircase(selection), color=GREY, lw=0.4, scalex=False, scaley=False)
            if len(panels) > 1:
                axes.set_title(_name_of(panel, len(every), len(panels)), size=6.5, pad=2.5)
            for row, texts in enumerate(numbers):
                for column, text in enumerate(texts):
                    cell = shades[place][row : row + 1, column : column + 1]
                    colour = ink(image.to_rgba(cell))
                    written = axes.text(column, row, text, size=plan.digits, color=colour)
                    written.set(ha="center", va="center_baseline")
        sheet.bar(_meaning(selection, scale), paint)
        facts = f"{selection.size} · head_size={selection.attention.head_size}"
        name = name or (selection.name if len(every) == 1 else "")
        title = _title(panels[:: len(every)])
        sheet.words(title, f"{name} · {facts}" if name else facts, explained)
        return sheet.figure, [font_warning(missing)] if missing else []


def _name_of(panel: Panel, checkpoints: int, panels: int) -> str:
    """The title of one of several panels: its matrix, its checkpoint, or both."""
    if checkpoints == 1:
        return panel.where(" · ")
    if checkpoints == panels:
        return cut(panel.selection.name, LONGEST)
    short = isinstance(panel.head, int) and panel.selection.stage in HEAD_STAGES
    place = f"L{panel.layer}H{panel.head}" if short else panel.where(" · ")
    return f"{place} · {cut(panel.selection.name, LONGEST)}"


def _title(panels: Sequence[Panel]) -> str:
    """The title of the figure. panels: the panels of one checkpoint."""
    selection = panels[0].selection
    stage = " · ".join([selection.stage, *kind_of(selection)])
    if len(panels) == 1:
        return f"{panels[0].where(' · ')} · {stage}"
    layers, heads = selection.layers, selection.heads
    layer = f"layers {layers[0]}–{layers[-1]}" if len(layers) > 1 else f"layer {layers[0]}"
    head = f"heads {heads[0]}–{heads[-1]}" if len(panels) > len(layers) else panels[0].of
    return f"{layer} · {head} · {stage}"


def _meaning(selection: Selection, scale: Scale) -> str:
    """The title of the colour bar."""
    meaning = _MEANINGS[selection.stage]
    if selection.stage == "masked":
        meaning += "" if selection.attention.allowed.all() else "; grey: masked"
    if scale == "row":
        meaning += " ÷ the row's largest" + " magnitude" * (selection.stage != "weights")
    return meaning


def _shades(panel: Panel, scale: Scale) -> Array:
    """(rows, columns) float64 values to colour; NaN for masked cells."""
    shades = panel.visible_values
    if scale == "row":
        largest = np.nan_to_num(np.abs(shades)).max(axis=1, keepdims=True)
        shades /= np.where(largest > 0, largest, 1.0)
    return shades


def _paint(selection: Selection, shades: Sequence[Array], scale: Scale) -> dict[str, Any]:
    """The colour map and its limits, the same for all panels; for signed values symmetric
    around 0.
    """
    weights = selection.stage == "weights"
    largest = max(float(np.nan_to_num(np.abs(part)).max()) for part in shades)
    limit = 1.0 if weights or scale == "row" else largest or 1.0
    return colours(limit, signed=not weights)


def colours(limit: float = 1.0, signed: bool = False) -> dict[str, Any]:
    """The colour map of values in 0 … limit or −limit … limit; NaN is white or grey."""
    from matplotlib.colors import LinearSegmentedColormap

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


def ink(colour: Any) -> str:
    """The text colour on a cell: dark or white, whichever has more contrast (WCAG 2)."""
    red, green, blue = np.asarray(colour)[..., :3].ravel() ** 2.2
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.21 else "white"
