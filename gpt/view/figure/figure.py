"""Attention maps as figures for papers: SVG and PDF with vector text, PNG of 300 dpi.

Everything lies on a grid of 300 dots per inch, so that all cells of a matrix have the same size and
sharp edges in every format. The same input gives the same bytes. matplotlib, an optional extra, is
imported when a figure is drawn.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.config.show import Scale, Stage
from gpt.errors import ConfigError
from gpt.reading.layers import Array
from gpt.view.figure.fonts import warning
from gpt.view.figure.layout import DPI, plan_of, points, sides
from gpt.view.figure.sheet import GREY, Sheet
from gpt.view.files.exports import Figure as Form
from gpt.view.selection import Panel, Selection
from gpt.view.terminal.lines import Page
from gpt.view.terminal.matrix import cells_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERS = 12  # most rows and columns of a single matrix whose cells show numbers
_INK, _MASKED = "#202020", "#d0d0d0"
# The terminal's ramp for white paper, in even steps of lightness. Its lowest colour is not white,
# so that a small weight differs from a masked one. Signed values have two colours, as on the
# page (assets/colours.js): orange is negative, blue-green is positive.
_RAMP = ("#f5f3d9", "#bcdfae", "#58b69b", "#1f8a96", "#28608f", "#31347a", "#1c103c")
_SIGNED_RAMP = (
    *("#702a06", "#aa521c", "#e28e52", "#f8d0a0", "#f0f3ec"),
    *("#addac7", "#40a0a0", "#1c5c8c", "#122a62"),
)
_MEANINGS: dict[Stage, str] = {
    "scores": "q·k",
    "scaled": "q·k / √d",
    "masked": "q·k / √d",
    "weights": "attention weight",
    "context": "context = weights · v",
    "concat": "contexts of all heads",
    "proj": "projection of all heads",
    "residual": "residual stream",
}
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "text.parse_math": False,  # a $ is a character
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.useoffset": False,
    "svg.fonttype": "path",  # outlines: the picture does not depend on installed fonts
    "svg.hashsalt": "gptx",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}


def to_figure(
    selection: Selection, form: Form, scale: Scale = "fixed", ascii_only: bool = False
) -> tuple[bytes, list[str]]:
    """The selected matrices as one figure, and warnings (a font that lacks characters).

    ascii_only: labels of characters are in ASCII. The selection's name stands under the title.
    Raises ConfigError if matplotlib is not installed or the figure would be too large.
    """
    with _style():
        figure, missing = draw(selection, scale, ascii_only)
        title = figure.get_suptitle()
        metadata: dict[Form, dict[str, Any]] = {
            "svg": {"Title": title, "Creator": "gptx", "Date": None, "Format": None, "Type": None},
            "pdf": {"Title": title, "Creator": "gptx", "CreationDate": None},
            "png": {"Title": title, "Software": "gptx"},
        }
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata[form])
    written = buffer.getvalue()
    if form == "svg":  # the document type has a network address; SVG needs none
        written = re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", written, count=1)
    return written, missing


def draw(
    selection: Selection, scale: Scale = "fixed", ascii_only: bool = False
) -> tuple[Figure, list[str]]:
    """The figure itself: an Axes for each panel in their order, then one for the colour bar."""
    with _style():
        panels = selection.panels()
        few = len(panels) == 1 and max(panels[0].values.shape) <= NUMBERS
        numbers = cells_of(panels[0], Page()) if few else []
        plan = plan_of(panels, numbers)
        query, key, explained, missing = sides(panels[0], plan, ascii_only)
        sheet = Sheet(plan, query, key, explained)
        shades = [_shades(panel, scale) for panel in panels]
        paint = _paint(selection, shades, scale)
        for place, panel in enumerate(panels):
            axes = sheet.panel(place)
            image = axes.imshow(shades[place], **paint)
            if selection.stage in ("weights", "masked") and plan.cell[0] >= points(1.2):
                axes.plot(*_staircase(selection), color=GREY, lw=0.4, scalex=False, scaley=False)
            if len(panels) > 1:
                axes.set_title(panel.where(" · "), size=6.5, pad=2.5)
            for row, texts in enumerate(numbers):
                for column, text in enumerate(texts):
                    ink = _ink(image.to_rgba(shades[place][row : row + 1, column : column + 1]))
                    written = axes.text(column, row, text, size=plan.digits, color=ink)
                    written.set(ha="center", va="center_baseline")
        sheet.bar(_meaning(selection, scale), paint)
        attention = selection.attention
        facts = f"T={len(attention.text)} · head_size={attention.layers[0].q.shape[-1]}"
        named = f"{selection.name} · {facts}" if selection.name else facts
        sheet.words(_title(panels), named, explained)
        return sheet.figure, [warning(missing)] if missing else []


def _title(panels: Sequence[Panel]) -> str:
    selection = panels[0].selection
    if len(panels) == 1:
        return f"{panels[0].where(' · ')} · {selection.stage}"
    layers, heads = selection.layers, selection.heads
    layer = f"layers {layers[0]}–{layers[-1]}" if len(layers) > 1 else f"layer {layers[0]}"
    head = f"heads {heads[0]}–{heads[-1]}" if len(panels) > len(layers) else panels[0].of
    return f"{layer} · {head} · {selection.stage}"


def _meaning(selection: Selection, scale: Scale) -> str:
    """The title of the colour bar."""
    meaning = _MEANINGS[selection.stage]
    if selection.stage == "masked":
        added = "" if selection.attention.bias is None else " + bias of positions"
        meaning += f"{added}; grey: masked"
    if scale == "row":
        meaning += " ÷ the row's largest" + " magnitude" * (selection.stage != "weights")
    return meaning


def _shades(panel: Panel, scale: Scale) -> Array:
    """(rows, columns) float64 values to colour; NaN for masked cells."""
    shades = panel.visible
    if scale == "row":
        largest = np.nan_to_num(np.abs(shades)).max(axis=1, keepdims=True)
        shades /= np.where(largest > 0, largest, 1.0)
    return shades


def _paint(selection: Selection, shades: Sequence[Array], scale: Scale) -> dict[str, Any]:
    """Colours and their limits, the same for all panels; signed values lie around 0."""
    from matplotlib.colors import LinearSegmentedColormap

    weights = selection.stage == "weights"
    ramp = LinearSegmentedColormap.from_list("gptx", _RAMP if weights else _SIGNED_RAMP)
    colours = ramp.with_extremes(bad="white" if weights else _MASKED)
    largest = max(float(np.nan_to_num(np.abs(part)).max()) for part in shades)
    limit = 1.0 if weights or scale == "row" else largest or 1.0
    return {
        "cmap": colours,
        "vmin": 0.0 if weights else -limit,
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
    return _INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.21 else "white"


@contextmanager
def _style() -> Iterator[None]:
    """matplotlib with its default settings and without log messages; then the user's settings
    return.

    Raises ConfigError if matplotlib is not installed.
    """
    logger = logging.getLogger("matplotlib")  # it logs that it builds a list of fonts
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        try:
            import matplotlib
        except ImportError:
            raise ConfigError(
                "figures need matplotlib, which is not installed: pip install matplotlib"
            ) from None
        with matplotlib.rc_context(), warnings.catch_warnings():
            # matplotlib before 3.11 measures lines by the letters l and p, which some fonts lack.
            warnings.filterwarnings("ignore", r"Glyph (108|112) .* missing from")
            matplotlib.rcdefaults()
            settings: Any = matplotlib.rcParams
            settings.update(_SETTINGS)
            yield
    finally:
        logger.setLevel(level)
