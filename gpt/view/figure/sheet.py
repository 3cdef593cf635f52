"""The sheet of a figure: places panels, colour bar and texts, in pixels from the upper left corner,
with fixed matplotlib settings that do not depend on the user's.

Uses the sizes from layout.py; knows nothing of attention maps.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpt.characters import SPACE, cut, one_line
from gpt.errors import ConfigError
from gpt.view.exports import Figure as Form
from gpt.view.figure.fonts import find_fonts
from gpt.view.figure.layout import COLUMN, DPI, GLYPH, FigureLayout, SideLabels, points
from gpt.words import absent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#202020"
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "text.parse_math": False,  # shows a $ as it is
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.useoffset": False,
    "svg.fonttype": "path",  # outlines: the picture does not depend on installed fonts
    "svg.hashsalt": "gptx",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}


@contextmanager
def figure_style() -> Iterator[None]:
    """A context in which matplotlib has its default settings and writes no log messages; afterwards
    the user's settings are back.

    Raises ConfigError if matplotlib is not installed.
    """
    logger = logging.getLogger("matplotlib")  # it logs that it builds a list of fonts
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        try:
            import matplotlib
        except ImportError:
            raise ConfigError(f"figures need {absent('matplotlib')}") from None
        with matplotlib.rc_context(), warnings.catch_warnings():
            # matplotlib before 3.11 measures the height of lines by the letters l and p, which some
            # fonts lack.
            warnings.filterwarnings("ignore", r"Glyph (108|112) .* missing from")
            matplotlib.rcdefaults()
            settings: Any = matplotlib.rcParams
            settings.update(_SETTINGS)
            yield
    finally:
        logger.setLevel(level)


def to_bytes(figure: Figure, form: Form) -> bytes:
    """The figure as a file, without a date, so that the same figure gives the same bytes."""
    with figure_style():
        title = figure.get_suptitle()
        metadata: dict[Form, dict[str, Any]] = {
            "svg": {"Title": title, "Creator": "gptx", "Date": None, "Format": None, "Type": None},
            "pdf": {"Title": title, "Creator": "gptx", "CreationDate": None},
            "png": {"Title": title, "Software": "gptx"},
        }
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata[form])
    written = buffer.getvalue()
    if form == "svg":  # the document type names a network address, which SVG does not need
        written = re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", written, count=1)
    return written


MOST = 100_000_000  # pixels; drawing a PNG of this size takes 0.4 GB
GREY = "#707070"


class Sheet:
    """A figure to which panels, the colour bar and words are added."""

    def __init__(
        self, plan: FigureLayout, query: SideLabels, key: SideLabels, explained: str
    ) -> None:
        """Raises ConfigError if the figure would be too large."""
        from matplotlib import figure

        self.plan, self.query, self.key = plan, query, key
        (rows, columns), (high, wide) = plan.shape, plan.cell
        self.size = columns * wide, rows * high
        head, gap = points(10) if plan.panels > 1 else 0, points(8)
        self.step = max(self.size[0], points(54)) + gap, self.size[1] + head + gap
        down = -(-plan.panels // plan.across)
        inner = plan.across * self.step[0] - gap, down * self.step[1] - gap
        left, top, right = query.longest + points(18), points(29), points(54)
        self.middle = max(inner[1], round(0.9 * DPI))  # the colour bar needs some height
        self.width = max(COLUMN, left + inner[0] + right)
        self.height = top + self.middle + key.deepest + points(26 if explained else 17)
        if self.width * self.height > MOST or max(self.width, self.height) >= 2**16:
            raise ConfigError(
                f"a figure of {self.width} x {self.height} pixels is too large; choose fewer "
                "matrices with --layer and --head, or a part with --query and --key"
            )
        left += (self.width - left - inner[0] - right) // 2
        self.corner = left, top + head + (self.middle - inner[1]) // 2
        self.bar_corner = left + inner[0] + points(9), top
        self.figure = figure.Figure(figsize=(self.width / DPI, self.height / DPI), dpi=DPI)

    def _axes(self, x: int, y: int, across: int, down: int) -> Axes:
        """An Axes in a frame two pixels wide; the frame lies outside, so that it hides no cell."""
        below, whole = self.height - y - down, np.array([self.width, self.height])
        # Slightly smaller, because matplotlib before 3.11 rounds any excess up to a whole pixel.
        corner = np.array([x + 1e-5, below + 1e-5]) / whole
        size = np.array([across - 2e-5, down - 2e-5]) / whole
        axes = self.figure.add_axes((corner[0], corner[1], size[0], size[1]))
        axes.tick_params(width=0.4, length=1.5, pad=2, color=GREY, labelsize=6)
        for spine in axes.spines.values():
            spine.set(color=GREY, linewidth=2 * 72 / DPI)
            spine.set_position(("outward", 72 / DPI))
        return axes

    def panel(self, place: int) -> Axes:
        """The axes of the n-th panel. Only outer panels have labels."""
        row, column = divmod(place, self.plan.across)
        x, y = self.corner[0] + column * self.step[0], self.corner[1] + row * self.step[1]
        axes = self._axes(x, y, *self.size)
        _label(axes.yaxis, self.query, outer=column == 0)
        lowest = place + self.plan.across >= self.plan.panels
        _label(axes.xaxis, self.key, outer=lowest)
        return axes

    def bar(self, meaning: str, paint: Mapping[str, Any]) -> None:
        """Draws the colour bar with its values as an image, since 256 rectangles would show
        gaps.
        """
        low, high = paint["vmin"], paint["vmax"]
        axes = self._axes(*self.bar_corner, points(7), self.middle)
        ramp = np.linspace(low, high, 256)[:, None]
        extent = (0, 1, low, high)
        axes.imshow(ramp, origin="lower", extent=extent, **paint)
        axes.set_xticks([])
        axes.yaxis.tick_right()
        axes.yaxis.set_label_position("right")
        axes.yaxis.set_offset_position("right")
        axes.yaxis.get_offset_text().set_fontsize(6)
        room = 72 * self.middle / DPI / (0.55 * len(meaning))
        axes.set_ylabel(meaning, size=min(7.0, room))

    def words(self, title: str, facts: str, explained: str) -> None:
        """Adds a title above everything, and the legend of labels below everything."""
        self.figure.suptitle(title, y=1 - points(5) / self.height, va="top", size=8.5)
        self._line(facts, 1 - points(16) / self.height, "top")
        self._line(explained, points(3) / self.height, "bottom")

    def _line(self, text: str, y: float, side: Literal["top", "bottom"]) -> None:
        """Adds a small grey line of text in the middle, at the height y in 0 … 1, cut to the width;
        in ASCII if no font has all its characters.
        """
        from matplotlib.font_manager import FontProperties

        text = one_line(text)
        fonts = find_fonts(frozenset({text}))
        font = FontProperties(fname=fonts.get(text, fonts[""]), size=6)
        text = cut(text if text in fonts else ascii(text)[1:-1], self.width // points(GLYPH * 6))
        self.figure.text(0.5, y, text, fontproperties=font, color=GREY, ha="center", va=side)


def _label(axis: Axis, side: SideLabels, outer: bool) -> None:
    """Draws tick marks; outer panels also get a name and labels, each in a font that has it."""
    from matplotlib.axis import XAxis
    from matplotlib.font_manager import FontProperties

    below = isinstance(axis, XAxis)
    axis.set_ticks(side.places, side.texts if outer else [""] * len(side.texts))
    axis.set_tick_params(length=0 if side.fonts else 1.5, labelsize=side.size)
    if not outer:
        return
    axis.set_label_text(side.name, size=7)
    for tick, text, font in zip(axis.get_ticklabels(), side.texts, side.fonts, strict=False):
        tick.set_fontproperties(FontProperties(fname=font, size=side.size))
        if below and side.turned(text):
            tick.set_rotation(90)
        if not below and text == SPACE:  # so low that it seems to label the next row
            tick.set_verticalalignment("baseline")
