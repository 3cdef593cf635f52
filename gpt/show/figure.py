"""Draws figures for papers with matplotlib: matrices and bars, as SVG, PDF or PNG.

The same values always give the same bytes, whatever the user's matplotlib settings are.
"""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.errors import ConfigError
from gpt.show.result import Matrix, short_number
from gpt.words import NAMED, PICTURES, SPACE, label, legend, missing_package, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 300
COLUMN, PAGE = 3.5, 7.0  # inches: the width of a column and of a page in a paper
NUMBERS = 12  # the most rows and columns of a single matrix that shows its numbers
LETTERS = 48  # the most rows and columns of a matrix whose labels are characters
MOST = 100_000_000  # the most pixels of a PNG; drawing so many takes 0.4 GB
INK, GREY, MASKED = "#202020", "#707070", "#d0d0d0"
# The colours have even steps of lightness on white paper. The lowest colour is not white, so that a
# small weight looks different from a masked cell, which is white.
RAMP = ("#f5f3d9", "#bcdfae", "#58b69b", "#1f8a96", "#28608f", "#31347a", "#1c103c")
# Orange is for negative values, blue for positive ones.
SIGNED = (
    *("#702a06", "#aa521c", "#e28e52", "#f8d0a0", "#f0f3ec"),
    *("#addac7", "#40a0a0", "#1c5c8c", "#122a62"),
)
BARS = ("#1f8a96", "#e28e52")
#: The fonts that matplotlib tries for a character, in this order. matplotlib includes the first.
FAMILIES = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP"),
    *("Hiragino Sans", "PingFang SC", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai"),
    *("WenQuanYi Zen Hei", "Noto Sans Symbols", "Noto Sans Symbols 2", "Segoe UI Symbol"),
)
_SETTINGS: dict[str, Any] = {
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "figure.titlesize": 8,
    "font.size": 7,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "path",  # outlines: the picture does not depend on installed fonts
    "svg.hashsalt": "gptx",
    "text.parse_math": False,  # a $ is an ordinary character
}


def matrices_figure(
    matrices: Sequence[Matrix], title: str, across: int, form: str, ascii_only: bool = False
) -> bytes:
    """Draws matrices side by side, `across` in a row, all with the same scale of colours.

    Raises ConfigError if matplotlib is missing, or if the figure would be too large.
    """
    rows, columns = matrices[0].values.shape
    across = min(len(matrices), across if across > 1 else math.ceil(len(matrices) ** 0.5))
    down = math.ceil(len(matrices) / across)
    side = PAGE / across
    if len(matrices) == 1:
        side = float(np.interp(max(rows, columns), (4, 16, 64), (2.0, COLUMN - 0.5, PAGE)))
    side = max(side, 0.8, max(rows, columns) / DPI)  # a cell has at least one pixel
    high = side if matrices[0].square else max(1.5, min(side, 2 * side * rows / columns))
    size = across * side + 0.6, down * high + 0.6
    if size[0] * size[1] * DPI**2 > MOST or max(size) * DPI >= 2**16:
        raise ConfigError(
            f"a figure of {size[0]:.0f} × {size[1]:.0f} inches is too large; choose fewer matrices "
            "with --layer and --head, or a part with --query and --key"
        )
    with _style() as families:
        from matplotlib.figure import Figure

        labels = _Labels(families, ascii_only)
        figure = Figure(figsize=size)
        grid = figure.subplots(down, across, squeeze=False)
        paint = _paint(matrices)
        for axes, matrix in zip(grid.flat, matrices, strict=False):
            image = axes.imshow(np.ma.masked_invalid(matrix.values), **paint)
            _label(axes, matrix, labels)
            if len(matrices) > 1:
                axes.set_title(matrix.name, size=6)
            elif max(rows, columns) <= NUMBERS:
                _write_numbers(axes, matrix, image.to_rgba)
        for axes in grid.flat[len(matrices) :]:
            axes.set_axis_off()
        figure.colorbar(image, ax=grid, shrink=0.8, aspect=30)
        figure.suptitle(
            labels.text(title if len(matrices) > 1 else f"{title} · {matrices[0].name}")
        )
        if signs := legend(labels.used, ascii_only):
            figure.supxlabel(labels.text(" · ".join(signs)), size=6, color=GREY)
        return _to_bytes(figure, form)


def bars_figure(
    labels: Sequence[str], bars: Mapping[str, Sequence[float | None]], title: str, form: str
) -> bytes:
    """Draws a chart of horizontal bars for every name in `bars`, side by side. bars: name ->
    values, one for each label; None: no bar. Raises ConfigError if matplotlib is missing.
    """
    with _style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 0.8 + 0.16 * len(labels)))
        grid = figure.subplots(1, len(bars), sharey=True, squeeze=False)[0]
        for axes, (name, values), colour in zip(grid, bars.items(), BARS, strict=False):
            axes.barh(range(len(labels)), [value or 0.0 for value in values], color=colour)
            axes.axvline(0, color=GREY, linewidth=0.5)
            axes.set_xlabel(name)
            axes.spines[["top", "right"]].set_visible(False)
        grid[0].set_yticks(range(len(labels)), labels)
        grid[0].invert_yaxis()
        figure.suptitle(one_line(title))
        return _to_bytes(figure, form)


@contextmanager
def _style() -> Iterator[list[str]]:
    """Sets gptx's settings of matplotlib for the block, and silences matplotlib's log. Yields the
    fonts of FAMILIES that are installed.

    Raises ConfigError if matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(f"figures need {missing_package('matplotlib')}") from None
    logger = logging.getLogger("matplotlib")  # logs that it builds a list of fonts
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        from matplotlib import font_manager

        installed = {entry.name for entry in font_manager.fontManager.ttflist}
        families = [name for name in FAMILIES if name in installed]
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
            matplotlib.rcdefaults()
            settings: Any = matplotlib.rcParams
            settings.update(_SETTINGS, **{"font.family": families})
            yield families
    finally:
        logger.setLevel(level)


def _to_bytes(figure: Figure, form: str) -> bytes:
    """The bytes of the figure's file, which contains no date. form: svg, pdf or png."""
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Creator": "gptx", "Date": None, "Format": None, "Type": None},
        "pdf": {"Creator": "gptx", "CreationDate": None},
        "png": {"Software": "gptx"},
    }
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata[form])
    data = buffer.getvalue()
    if form == "svg":  # the document type has a network address, which an SVG file does not need
        data = re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", data, count=1)
    return data


class _Labels:
    """Labels a character with a sign if an installed font has the sign, otherwise with U+XXXX.

    used: the characters that were labelled, in the order of their first use.
    """

    def __init__(self, families: Iterable[str], ascii_only: bool) -> None:
        from matplotlib import font_manager
        from matplotlib.ft2font import FT2Font

        files = [font_manager.findfont(family) for family in families]
        self._drawn = {point for file in files for point in FT2Font(file).get_charmap()}
        self._ascii_only = ascii_only
        self.used = dict[str, None]()

    def __call__(self, character: str) -> str:
        self.used[character] = None
        is_space = character == " " and not self._ascii_only
        name = SPACE if is_space else label(character, self._ascii_only)
        if name not in PICTURES and all(ord(sign) in self._drawn for sign in name):
            return name
        return f"U+{ord(character):04X}"

    def text(self, text: str) -> str:
        """The text in one line; □ replaces characters that no installed font has."""
        text = one_line(text.replace(NAMED[" "][0], SPACE))
        return "".join(sign if ord(sign) in self._drawn else "□" for sign in text)


def _label(axes: Axes, matrix: Matrix, labels: Callable[[str], str]) -> None:
    """Labels the rows and columns with characters if there is room, otherwise with positions."""
    sides = (axes.yaxis, matrix.rows, True), (axes.xaxis, matrix.columns, matrix.square)
    for axis, positions, lettered in sides:
        if lettered and len(positions) <= LETTERS and len(matrix.rows) <= LETTERS:
            texts = [labels(matrix.text[position]) for position in positions]
            size = min(7.0, 220 / len(positions))
            axis.set_ticks(range(len(positions)), texts, size=size)
            axis.set_tick_params(length=0)
        else:
            step = max(1, 10 ** max(0, len(str(len(positions))) - 2) * 2)
            marked = [n for n, position in enumerate(positions) if position % step == 0]
            axis.set_ticks(marked, [str(positions[n]) for n in marked], size=5)


def _write_numbers(axes: Axes, matrix: Matrix, colour_of: Callable[[Any], Any]) -> None:
    """Writes the values into their cells, dark or white, whichever has more contrast (WCAG 2)."""
    for (row, column), value in np.ndenumerate(matrix.values):
        if math.isfinite(value):
            red, green, blue = np.asarray(colour_of(value))[:3] ** 2.2
            dark = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.21
            colour = INK if dark else "white"
            text = short_number(float(value))
            axes.text(column, row, text, size=5, color=colour, ha="center", va="center_baseline")


def _paint(matrices: Sequence[Matrix]) -> dict[str, Any]:
    """The keywords of imshow. The scale is 0 to 1 for weights, otherwise symmetric around 0."""
    from matplotlib.colors import LinearSegmentedColormap

    weights = matrices[0].weights
    finite = np.concatenate([matrix.values[np.isfinite(matrix.values)] for matrix in matrices])
    limit = 1.0 if weights else float(np.abs(finite).max(initial=0.0)) or 1.0
    ramp = LinearSegmentedColormap.from_list("gptx", RAMP if weights else SIGNED)
    return {
        "cmap": ramp.with_extremes(bad="white" if weights else MASKED),
        "vmin": 0.0 if weights else -limit,
        "vmax": limit,
        "aspect": "equal" if matrices[0].square else "auto",
        "interpolation": "nearest",
    }
