"""Building blocks of text views: numbers, coloured cells, cards, lines that fit a page.

Knows nothing of what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gpt.checks import Check
from gpt.config.show import Scale
from gpt.reading.layers import Array
from gpt.view.characters import cut, escape

GLYPHS = " .:-=+*#%@"
# Dark blue over teal to yellow: even steps of lightness, readable to the colour-blind.
RAMP = ((28, 16, 60), (49, 70, 130), (30, 130, 140), (75, 185, 115), (250, 225, 60))
DIM = Style(dim=True)
BOLD = Style(bold=True)


@dataclass(frozen=True)
class Page:
    """How to draw: width in cells (None = unlimited), labels, digits, scale, how many strongest."""

    width: int | None = None
    ascii_only: bool = False
    precision: int = 2
    scale: Scale = "fixed"
    top: int = 3


def number(value: float, page: Page) -> str:
    """ ".25", "−1.50", "−inf": without a leading zero, with the page's digits and minus sign."""
    if math.isinf(value):
        return "-inf" if page.ascii_only else "−inf"
    text = f"{value:.{page.precision}f}"
    if text.startswith("0.") and page.precision:
        return text[1:]
    if text.startswith("-0.") and page.precision:
        text = "-" + text[2:]
    return text if page.ascii_only else text.replace("-", "−")


def card(rows: Mapping[str, str]) -> Table:
    """Names on the left, facts on the right; facts wrap in their own column."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in rows.items():
        if fact:
            table.add_row(Text(name), Text(escape(fact)))
    return table


def painted(values: Array, width: int) -> Text:
    """A cell for each value: denser and brighter for larger ones, blank for NaN."""
    line = Text()
    seen = np.flatnonzero(~np.isnan(values))
    for value in values[: seen[-1] + 1 if seen.size else 0].tolist():
        if math.isnan(value):
            line.append(" " * width)
        else:
            glyph = GLYPHS[min(len(GLYPHS) - 1, int(value * len(GLYPHS)))]
            line.append(glyph * width, shade(value))
    return line


def shade(value: float) -> Style:
    """The colour of a value in 0 … 1; larger values look like 1."""
    return _HEAT_STYLES[min(99, int(value * 100))]


def _heat_style(value: float) -> Style:
    position = value * (len(RAMP) - 1)
    index = min(int(position), len(RAMP) - 2)
    low, high, share = RAMP[index], RAMP[index + 1], position - index
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(low, high, strict=True))
    ink = "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#ffffff"
    return Style(color=ink, bgcolor=Color.from_rgb(red, green, blue).name)


_HEAT_STYLES = [_heat_style(value / 99) for value in range(100)]


def ruler(positions: range, offset: int, width: int) -> str:
    """Every fifth position's number, where it has room."""
    marks = ""
    for position in positions:
        column = (position - positions.start) * width
        if (offset + position) % 5 == 0 and column >= len(marks) + (1 if marks else 0):
            marks = marks.ljust(column) + str(offset + position)
    return marks[: len(positions) * width]


def blocks(columns: int, width: int, gutter: int, available: int | None) -> list[tuple[int, int]]:
    """Column ranges that fit the width one after the other."""
    size = columns if available is None else max(1, (available - gutter) // width)
    return [(first, min(columns, first + size)) for first in range(0, columns, max(1, size))]


def flow(items: Sequence[str], width: int | None, separator: str = " · ") -> list[str]:
    """Items joined into lines that fit the width; an item that is too wide is cut."""
    lines: list[str] = []
    for item in items:
        joined = f"{lines[-1]}{separator}{item}" if lines else item
        if lines and (width is None or cell_len(joined) <= width):
            lines[-1] = joined
        else:
            mark = "…" if "·" in separator else "~"
            lines.append(item if width is None else cut(item, width, mark))
    return lines


def own_words(items: Sequence[str], page: Page) -> list[str]:
    """`flow` for our own words: in ASCII where the page asks for it, long ones cut at spaces."""
    if page.ascii_only:
        items = [in_ascii(item) for item in items]
    if page.width is not None:
        items = [part for item in items for part in flow(item.split(" "), page.width, " ")]
    return flow(items, page.width, " | " if page.ascii_only else " · ")


def styled(items: Sequence[str], page: Page, style: Style) -> list[Text]:
    """`own_words` in one style."""
    return [Text(line, style) for line in own_words(items, page)]


def in_ascii(text: str) -> str:
    """Our own words and formulas without signs that ASCII lacks."""
    return text.translate(_IN_ASCII)


_IN_ASCII = str.maketrans(
    {"–": "-", "…": "..", "±": "+-", "·": "*", "−": "-", "×": "x", "√": "sqrt ", "∞": "inf"}
    | {"ᵀ": "^T", "Σ": "sum ", "²": "^2", "“": '"', "”": '"', "’": "'", "→": "->", "≤": "<="}
    | {"Δ": "d", "‖": "|"}
)


def checks(results: Sequence[Check], page: Page) -> list[Text]:
    """The checks of the numbers above with their errors; a group's title comes first."""
    good, bad = ("ok", "FAILED") if page.ascii_only else ("✓", "✗ FAILED")
    passed = all(check.passed for check in results)
    items = [
        (f"{check.group}: " if check.group and check.group != before else "")
        + check.name
        + (f" ±{check.error:.0e}" if check.passed and check.error else "")
        + ("" if check.passed else f" (error {check.error:.1g}, allowed {check.bound:.1g})")
        for check, before in zip(results, ["", *(each.group for each in results[:-1])], strict=True)
    ]
    items[-1] = f"{items[-1]} {good if passed else bad}"
    items[0] = f"checks: {items[0]}"  # set after the last item: it may be the same one
    style = DIM if passed else Style(color="red", bold=True)
    return styled(items, page, style)
