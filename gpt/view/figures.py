"""Attention maps as figures for papers: SVG and PDF with vector text, PNG of 300 dpi.

Everything lies on a grid of 300 dots an inch, so that all cells of a matrix are equally large and
their edges sharp, whatever the format. Same input, same bytes. Knows no files and no terminal;
matplotlib, an optional extra, is imported when a figure is asked for.
"""

from __future__ import annotations

import io
import logging
import math
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.cells import cell_len

from gpt.config import Scale, Stage
from gpt.errors import ConfigError
from gpt.reading.inspector import LAYER_STAGES, AttentionMap
from gpt.reading.reader import Array
from gpt.view.characters import NAMED, cut, label, legend
from gpt.view.lines import Page, number
from gpt.view.selection import Panel, Selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font

Form = Literal["svg", "png", "pdf"]

DPI = 300
NUMBERS = 12  # most rows and columns of a single matrix whose cells carry their numbers
MOST = 100_000_000  # pixels: drawing a PNG of so many takes 0.4 GB
_COLUMN, _PAGE, _PAGE_HEIGHT = round(3.4 * DPI), 7 * DPI, 9 * DPI  # of a paper
_GLYPH = 0.64  # width of a terminal's cell in DejaVu Sans, in sizes of the font
_INK, _GREY, _MASKED = "#202020", "#707070", "#d0d0d0"
# The terminal's ramp for white paper, in even steps of lightness. Its lowest colour is not white,
# so that a small weight differs from a masked one. What has a sign runs both ways from 0.
_RAMP = ("#f5f3d9", "#bcdfae", "#58b69b", "#1f8a96", "#28608f", "#31347a", "#1c103c")
_SIGNED_RAMP = ("#183e80", "#689ed2", "#f1f1ee", "#e28e52", "#84300a")
_MEANINGS: dict[Stage, str] = {
    "scores": "q·k",
    "scaled": "q·k / √d",
    "masked": "q·k / √d; grey: masked",
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
    "svg.fonttype": "path",  # outlines: the same picture where the reader's fonts are others
    "svg.hashsalt": "gptx",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}


def to_figure(
    attention: AttentionMap,
    selection: Selection,
    form: Form,
    scale: Scale = "fixed",
    ascii_only: bool = False,
    run: str | None = None,
) -> tuple[bytes, list[str]]:
    """The selected matrices as one figure, and warnings (a font that lacks characters).

    ascii_only is about the characters' labels; a run's name goes under the title.
    Raises ConfigError where matplotlib is not installed or the figure would be too large.
    """
    with _style():
        figure, missing = draw(attention, selection, scale, ascii_only, run)
        title = figure.get_suptitle()
        metadata: dict[Form, dict[str, Any]] = {
            "svg": {"Title": title, "Creator": "gptx", "Date": None, "Format": None, "Type": None},
            "pdf": {"Title": title, "Creator": "gptx", "CreationDate": None},
            "png": {"Title": title, "Software": "gptx"},
        }
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata[form])
    written = buffer.getvalue()
    if form == "svg":  # the document type is an address on the network; SVG needs none
        written = re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", written, count=1)
    return written, missing


def draw(
    attention: AttentionMap,
    selection: Selection,
    scale: Scale = "fixed",
    ascii_only: bool = False,
    run: str | None = None,
) -> tuple[Figure, list[str]]:
    """The figure itself: an Axes for each panel in their order, then the colour bar's."""
    with _style():
        panels = selection.panels(attention)
        numbers = _numbers(selection, panels)
        plan = _plan(selection, panels, numbers)
        query, key, explained, missing = _sides(attention, selection, plan, ascii_only)
        sheet = _Sheet(plan, query, key, explained)
        shades = [_shades(selection, panel, scale) for panel in panels]
        paint = _paint(selection, shades, scale)
        for place, panel in enumerate(panels):
            axes = sheet.panel(place)
            image = axes.imshow(shades[place], **paint)
            if selection.stage in ("weights", "masked") and plan.cell[0] >= points(1.2):
                axes.plot(*_staircase(selection), color=_GREY, lw=0.4, scalex=False, scaley=False)
            if len(panels) > 1:
                axes.set_title(_where(panel), size=6.5, pad=2.5)
            for row, texts in enumerate(numbers):
                for column, text in enumerate(texts):
                    ink = _ink(image.to_rgba(shades[place][row : row + 1, column : column + 1]))
                    written = axes.text(column, row, text, size=plan.digits, color=ink)
                    written.set(ha="center", va="center_baseline")
        sheet.bar(_meaning(selection, scale), paint)
        size = attention.layers[0].q.shape[-1]
        facts = f"T={len(attention.text)} · head_size={size}"
        sheet.words(_title(selection, panels), f"{run} · {facts}" if run else facts, explained)
        return sheet.figure, [_warning(missing)] if missing else []


def points(size: float) -> int:
    """A length in points, in pixels."""
    return round(size * DPI / 72)


def _legible(cell: int) -> bool:
    """Whether labels of 5 points fit cells of so many pixels."""
    return 0.8 * cell * 72 / DPI > 4.98


@dataclass(frozen=True)
class _Plan:
    """How the panels lie, how large their cells are (pixels), and the digits in them (points)."""

    shape: tuple[int, int]  # rows and columns of a panel
    panels: int
    across: int
    cell: tuple[int, int]  # height and width
    digits: float

    @property
    def down(self) -> int:
        return math.ceil(self.panels / self.across)


def _plan(selection: Selection, panels: Sequence[Panel], numbers: list[list[str]]) -> _Plan:
    """One head of T ≤ 16 is a column of a paper wide, and grows with T up to the page.

    A cell has a pixel at least, even if the page becomes too small: a cell that is left out may be
    the strongest.
    """
    rows, columns = panels[0].values.shape
    count, layers = len(panels), len(selection.layers)
    across = _across(count, layers, selection.stage in LAYER_STAGES)
    widest = max((_ems(text) for row in numbers for text in row), default=0.0) or 1.0
    smallest = points(5 * widest + 2.2) if numbers else 1
    if count == 1:
        width = float(np.interp(max(rows, columns), (16, 64), (_COLUMN, _PAGE))) - points(80)
        height, largest = float(_PAGE - points(60)), points(30)
    else:
        width = max(0.8 * DPI, (_PAGE - points(80)) / across - points(8))
        height = max(0.8 * DPI, (_PAGE_HEIGHT - points(60)) * across / count - points(17))
        largest = points(18)
    wide = max(smallest, min(largest, round(width / columns)))
    high = max(smallest, min(largest, round(height / rows)))
    if selection.square:
        wide = high = min(wide, high)
    else:  # of dimensions there are many: their cells need not be square
        high, wide = min(high, max(wide, points(8))), min(wide, max(high, points(16)))
    digits = min(8.0, (wide * 72 / DPI - 2.2) / widest) if numbers else 0.0
    return _Plan((rows, columns), count, across, (high, wide), digits)


def _ems(digits: str) -> float:
    """Width of a number in sizes of the font: points are narrow, minus signs wide."""
    return 0.64 * len(digits) - 0.32 * digits.count(".") + 0.2 * digits.count("−")


def _across(count: int, layers: int, wide: bool) -> int:
    """Panels side by side: one row a layer. A single row or column of many is folded."""
    heads = count // layers
    if wide or min(layers, heads) > 1:
        return heads
    side = math.ceil(math.sqrt(count))
    return count if count <= 5 else next((n for n in range(side, 7) if count % n == 0), side)


@dataclass(frozen=True)
class _Side:
    """What is written along one side of the panels."""

    name: str
    places: Sequence[int]  # cells
    texts: Sequence[str]
    fonts: Sequence[str]  # a file for each text; none where positions are written
    size: float  # points
    pitch: float  # points from cell to cell

    def turned(self, text: str) -> bool:
        """Whether a character's label is too wide to stand beside its neighbours."""
        return bool(self.fonts) and self.length(text) > points(self.pitch + 1)

    def length(self, text: str) -> int:
        """Pixels, nearly."""
        return points(cell_len(text) * _GLYPH * self.size)

    @property
    def longest(self) -> int:
        return max(map(self.length, self.texts))

    @property
    def deepest(self) -> int:
        """Pixels that the texts take below a panel."""
        turned = [self.length(text) for text in self.texts if self.turned(text)]
        return max(points(1.2 * self.size), *turned, 0)


def _sides(
    attention: AttentionMap, selection: Selection, plan: _Plan, ascii_only: bool
) -> tuple[_Side, _Side, str, list[str]]:
    """Beside the rows, below the columns, what the symbols mean, and characters that no font has.

    Every character is written while it is legible (5 points), else positions are.
    """
    columns = selection.keys if selection.square else range(plan.shape[1])
    lettered = [selection.queries, *([columns] if selection.square else [])]
    lettered = lettered if _legible(plan.cell[0]) else []  # of a square stage both sides are alike
    shown = "".join(dict.fromkeys(attention.text[at] for positions in lettered for at in positions))
    names = {character: _name(character, ascii_only) for character in shown}
    fonts = _fonts(frozenset(names.values()))
    missing = [character for character in shown if names[character] not in fonts]
    names.update((character, f"U+{ord(character):04X}") for character in missing)
    sides = []
    for axis, positions in enumerate((selection.queries, columns)):
        title = ("query", "key" if selection.square else "dimension")[axis]
        single, pitch = plan.panels == 1, plan.cell[axis] * 72 / DPI
        if axis < len(lettered):
            texts = [names[attention.text[at]] for at in positions]
            files = [fonts.get(text, fonts[""]) for text in texts]
            size, places = min(8.0 if single else 6.5, 0.8 * pitch), list(range(len(texts)))
        else:
            size, files = 6.0 if single else 5.5, []
            step = next((n for n in (1, 2, 5, 10, 20, 50, 100) if n * pitch >= 3 * size), 200)
            marked = [at for at in positions if at % step == 0] or [positions.start]
            texts, places = list(map(str, marked)), [at - positions.start for at in marked]
            title += " position" if title != "dimension" else ""
        sides.append(_Side(title, places, texts, files, size, pitch))
    explained = " · ".join(legend(shown, ascii_only)).replace(NAMED[" "][0], _SPACE)
    return sides[0], sides[1], explained, missing


class _Sheet:
    """The figure, and where things lie on it, in pixels from its upper left corner."""

    def __init__(self, plan: _Plan, query: _Side, key: _Side, explained: str) -> None:
        """Raises ConfigError for a figure that would be too large."""
        from matplotlib.figure import Figure

        self.plan, self.query, self.key = plan, query, key
        (rows, columns), (high, wide) = plan.shape, plan.cell
        self.size = columns * wide, rows * high
        head, gap = points(10) if plan.panels > 1 else 0, points(8)
        self.step = max(self.size[0], points(54)) + gap, self.size[1] + head + gap
        inner = plan.across * self.step[0] - gap, plan.down * self.step[1] - gap
        left, top, right = query.longest + points(18), points(29), points(54)
        self.middle = max(inner[1], round(0.9 * DPI))  # the colour bar needs some height
        self.width = max(_COLUMN, left + inner[0] + right)
        self.height = top + self.middle + key.deepest + points(26 if explained else 17)
        if self.width * self.height > MOST or max(self.width, self.height) >= 2**16:
            raise ConfigError(
                f"a figure of {self.width} x {self.height} pixels is too large; choose fewer "
                "matrices with --layer and --head, or a part with --query and --key"
            )
        left += (self.width - left - inner[0] - right) // 2
        self.corner = left, top + head + (self.middle - inner[1]) // 2
        self.bar_corner = left + inner[0] + points(9), top
        self.figure = Figure(figsize=(self.width / DPI, self.height / DPI), dpi=DPI)

    def _axes(self, x: int, y: int, across: int, down: int) -> Axes:
        """Axes in a frame two pixels wide that lies just outside: it hides no cell."""
        from matplotlib.patches import Rectangle

        below, whole = self.height - y - down, np.array([self.width, self.height])
        # A hair inside the pixels: matplotlib before 3.11 rounds the least excess up to one more.
        corner = np.array([x + 1e-5, below + 1e-5]) / whole
        size = np.array([across - 2e-5, down - 2e-5]) / whole
        axes = self.figure.add_axes((corner[0], corner[1], size[0], size[1]))
        axes.tick_params(width=0.4, length=1.5, pad=2, color=_GREY, labelsize=6)
        axes.spines[:].set_visible(False)
        low, (wide, high) = corner - 1 / whole, size + 2 / whole
        frame = Rectangle((low[0], low[1]), wide, high, fill=False, ec=_GREY, lw=2 * 72 / DPI)
        self.figure.add_artist(frame)
        return axes

    def panel(self, place: int) -> Axes:
        """The axes of the n-th panel; only the outer ones have labels."""
        row, column = divmod(place, self.plan.across)
        x, y = self.corner[0] + column * self.step[0], self.corner[1] + row * self.step[1]
        axes = self._axes(x, y, *self.size)
        _label(axes.yaxis, self.query, outer=column == 0)
        _label(axes.xaxis, self.key, outer=place + self.plan.across >= self.plan.panels)
        return axes

    def bar(self, meaning: str, paint: Mapping[str, Any]) -> None:
        """The colours with their values: an image, since 256 rectangles show seams."""
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
        axes.set_ylabel(meaning, size=7)

    def words(self, title: str, facts: str, explained: str) -> None:
        """Above everything and, for the symbols, below."""
        self.figure.suptitle(title, y=1 - points(5) / self.height, va="top", size=8.5)
        self._line(facts, 1 - points(16) / self.height, "top")
        self._line(explained, points(3) / self.height, "bottom")

    def _line(self, text: str, y: float, side: Literal["top", "bottom"]) -> None:
        from matplotlib.font_manager import FontProperties

        text = cut(text, self.width // points(_GLYPH * 6))
        fonts = _fonts(frozenset({text}))
        font = FontProperties(fname=fonts.get(text, fonts[""]), size=6)
        text = text if text in fonts else ascii(text)[1:-1]
        self.figure.text(0.5, y, text, fontproperties=font, color=_GREY, ha="center", va=side)


def _label(axis: Axis, side: _Side, outer: bool) -> None:
    """Marks and, at an outer panel, what they mean; each label in a font that has it."""
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
        if not below and text == _SPACE:  # lies so low that it seems a row further on
            tick.set_verticalalignment("baseline")


def _where(panel: Panel) -> str:
    heads = {"mean": "mean of heads", "all": "all heads"}
    return f"layer {panel.layer} · {heads.get(str(panel.head), f'head {panel.head}')}"


def _title(selection: Selection, panels: Sequence[Panel]) -> str:
    if len(panels) == 1:
        return f"{_where(panels[0])} · {selection.stage}"
    layers, heads = selection.layers, selection.heads
    layer = f"layers {layers[0]}–{layers[-1]}" if len(layers) > 1 else f"layer {layers[0]}"
    head = (
        f"heads {heads[0]}–{heads[-1]}"
        if len(panels) > len(layers)
        else _where(panels[0]).partition(" · ")[2]
    )
    return f"{layer} · {head} · {selection.stage}"


def _meaning(selection: Selection, scale: Scale) -> str:
    """What the colours stand for."""
    shares = " ÷ the row's largest" + ("" if selection.stage == "weights" else " magnitude")
    return _MEANINGS[selection.stage] + (shares if scale == "row" else "")


def _masked(selection: Selection) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """(rows, columns) True for keys that come after the query."""
    return np.array(selection.keys)[None, :] > np.array(selection.queries)[:, None]


def _shades(selection: Selection, panel: Panel, scale: Scale) -> Array:
    """(rows, columns) float64 as they are coloured; NaN where the mask forbids."""
    shades = panel.values.astype(np.float64)
    if selection.stage in ("weights", "masked"):
        shades[_masked(selection)] = np.nan
    if scale == "row":
        largest = np.where(np.isnan(shades), 0.0, np.abs(shades)).max(axis=1, keepdims=True)
        shades = shades / np.where(largest > 0, largest, 1.0)
    return shades


def _paint(selection: Selection, shades: Sequence[Array], scale: Scale) -> dict[str, Any]:
    """Colours and their limits, the same for all panels; signed values lie around 0."""
    from matplotlib.colors import LinearSegmentedColormap

    weights = selection.stage == "weights"
    ramp = LinearSegmentedColormap.from_list("gptx", _RAMP if weights else _SIGNED_RAMP)
    colours = ramp.with_extremes(bad="white" if weights else _MASKED)
    largest = max(float(np.where(np.isnan(part), 0.0, np.abs(part)).max()) for part in shades)
    limit = 1.0 if weights or scale == "row" else largest or 1.0
    return {
        "cmap": colours,
        "vmin": 0.0 if weights else -limit,
        "vmax": limit,
        "aspect": "auto",
        "interpolation": "nearest",
    }


def _staircase(selection: Selection) -> tuple[list[float], list[float]]:
    """The edge of what the mask allows, as x and y of a line."""
    allowed = (~_masked(selection)).sum(axis=1)
    x = [float(count) - 0.5 for count in allowed for _ in range(2)]
    y = [row + side for row in range(len(allowed)) for side in (-0.5, 0.5)]
    return x, y


def _numbers(selection: Selection, panels: Sequence[Panel]) -> list[list[str]]:
    """The values of a single small matrix as in the terminal; empty where there is no room."""
    values = panels[0].values
    if len(panels) > 1 or max(values.shape) > NUMBERS:
        return []
    texts = [[number(value, Page()) for value in row] for row in values.tolist()]
    if selection.stage != "weights":
        return texts
    hidden = _masked(selection).tolist()
    return [
        ["" if skip else text for text, skip in zip(*both, strict=True)]
        for both in zip(texts, hidden, strict=True)
    ]


def _ink(colour: Any) -> str:
    """Dark on a light colour, white on a dark one: whichever has more contrast (WCAG 2)."""
    red, green, blue = np.asarray(colour)[..., :3].ravel() ** 2.2
    return _INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.21 else "white"


_SPACE = "␣"  # for ␠, which no common font has


def _name(character: str, ascii_only: bool) -> str:
    """The terminal's label, in signs that fonts have."""
    name = label(character, ascii_only)
    if name == NAMED[" "][0]:
        return _SPACE
    # Pictures of control characters are as rare in fonts as the characters in texts.
    return f"U+{ord(character):04X}" if "\u2400" <= name < "\u2422" else name


@cache
def _fonts(names: frozenset[str]) -> Mapping[str, str]:
    """The file of a font that draws it, for every name that has one; for "", our own font.

    Matplotlib's own font first. Only if that lacks something, all that are installed are looked
    at: the one that has most, then the one that has most of the rest, and so on.
    """
    from matplotlib import font_manager

    ours = str(font_manager.findfont("DejaVu Sans"))
    found = dict.fromkeys(["", *_drawn_by(ours, names)], ours)
    missing = names - found.keys()
    if missing:
        # Matplotlib's list is as old as its cache: a font installed since is not in it.
        folders = font_manager.OSXFontDirectories if sys.platform == "darwin" else None
        files = {entry.fname for entry in font_manager.fontManager.ttflist}
        files.update(font_manager.findSystemFonts(folders))
        drawn = {file: _drawn_by(file, missing) for file in files}
        while missing:
            best = max(sorted(drawn), key=lambda file: (len(drawn[file] & missing), _plain(file)))
            if not drawn[best] & missing:
                break
            found.update(dict.fromkeys(drawn[best] & missing, best))
            missing -= drawn[best]
    return found


def _plain(file: str) -> tuple[bool, bool]:
    """How well a font's style goes with ours."""
    name = Path(file).stem.lower()
    styled = re.search("bold|black|heavy|light|thin|medium|italic|oblique|condensed", name)
    return not styled, not re.search("serif|mincho|song|ming|mono|math", name.replace("sans", ""))


def _drawn_by(file: str, names: Iterable[str]) -> frozenset[str]:
    """Those of the names for whose every character the font has an outline."""
    from matplotlib.ft2font import FT2Font

    if "lastresort" in Path(file).stem.lower():  # it draws boxes for everything
        return frozenset()
    try:
        font = FT2Font(file)
    except (OSError, RuntimeError):  # pictures only, or damaged
        return frozenset()
    return frozenset(name for name in names if all(_has_ink(font, sign) for sign in name))


def _has_ink(font: FT2Font, sign: str) -> bool:
    """Colour fonts have glyphs without an outline, which would be drawn as nothing."""
    if not font.get_char_index(ord(sign)):
        return False
    if sign == " ":
        return True
    try:
        font.set_size(10, 72)
        font.load_char(ord(sign))
    except RuntimeError:
        return False
    return len(font.get_path()[0]) > 0


def _warning(missing: Sequence[str]) -> str:
    """Which characters have no font, how they are labelled, and what to install."""
    shown = ", ".join(label(character) for character in missing[:8])
    shown += f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    remedies = dict.fromkeys(_remedy(character) for character in missing)
    return (
        f"no installed font draws {shown}: labelled like U+{ord(missing[0]):04X}; "
        f"install {', '.join(remedies)}"
    )


def _remedy(character: str) -> str:
    name = unicodedata.name(character, "")
    if re.match("CJK|HIRAGANA|KATAKANA|HANGUL|IDEOGRAPHIC|FULLWIDTH|BOPOMOFO", name):
        return "Noto Sans CJK"
    if unicodedata.category(character)[0] == "S":
        return "Noto Emoji (the one without colours) or Noto Sans Symbols"
    return f"the Noto Sans font for {name.split()[0].title()}" if name else "a font that has it"


@contextmanager
def _style() -> Iterator[None]:
    """matplotlib as it comes, whatever its user has set, and silent; all is as before afterwards.

    Raises ConfigError where matplotlib is not installed.
    """
    logger = logging.getLogger("matplotlib")  # tells on stderr that it lists fonts
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        try:
            import matplotlib
        except ImportError:
            raise ConfigError(
                "figures need matplotlib, which is not installed: pip install 'gptx[plot]'"
            ) from None
        with matplotlib.rc_context(), warnings.catch_warnings():
            # Before 3.11 it measures a line by the letters l and p, in fonts that have neither.
            warnings.filterwarnings("ignore", r"Glyph (108|112) .* missing from")
            matplotlib.rcdefaults()
            settings: Any = matplotlib.rcParams
            settings.update(_SETTINGS)
            yield
    finally:
        logger.setLevel(level)
