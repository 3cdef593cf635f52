"""Building blocks for text views: numbers, coloured cells, tables, lines that fit a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from gpt.characters import NAMED, cut, label, one_line, pad
from gpt.checks import Check
from gpt.reading.layers import Array

GLYPHS = " .:-=+*#%@"
# Dark blue over teal to yellow: even steps of lightness, readable for the colour-blind.
RAMP = ((28, 16, 60), (49, 70, 130), (30, 130, 140), (75, 185, 115), (250, 225, 60))
DIM = Style(dim=True)
BOLD = Style(bold=True)
NORMAL = Style(dim=False)  # ends the dim style inside a dim line


@dataclass(frozen=True)
class Page:
    """How to draw: width in cells (None = unlimited), labels, digits, number of strongest keys,
    whether to use colours, and whether to name all checks that passed.
    """

    width: int | None = None
    ascii_only: bool = False
    precision: int = 2
    top: int = 3
    coloured: bool = False
    checks: bool = True


def number(value: float, page: Page) -> str:
    """ ".25", "−1.50", "−inf": without a leading zero, with the page's digits and minus sign."""
    text = f"{value:.{page.precision}f}"
    if text.startswith(("0.", "-0.")):
        text = text.replace("0.", ".", 1)
    return text if page.ascii_only else text.replace("-", "−")


def paint_cells(values: Array, width: int) -> Text:
    """A cell for each value: denser and brighter for larger values, blank for NaN."""
    line = Text()
    for column in np.flatnonzero(~np.isnan(values)).tolist():
        value = float(values[column])
        glyph = GLYPHS[min(len(GLYPHS) - 1, int(value * len(GLYPHS)))]
        line.pad_right(column * width - len(line))
        line.append(glyph * width, shade(value))
    return line


def shade(value: float) -> Style:
    """The colour of a value in 0 … 1; larger values look like 1."""
    return _HEAT_STYLES[min(99, int(value * 100))]


def _heat_style(value: float) -> Style:
    places = np.linspace(0, 1, len(RAMP))
    red, green, blue = (round(np.interp(value, places, part)) for part in zip(*RAMP, strict=True))
    ink = "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#ffffff"
    return Style(color=ink, bgcolor=Color.from_rgb(red, green, blue).name)


_HEAT_STYLES = [_heat_style(value / 99) for value in range(100)]


def ruler(positions: range, width: int) -> str:
    """Numbers above every fifth position, where there is room."""
    marks = ""
    for column, position in enumerate(positions):
        if position % 5 == 0 and column * width >= len(marks) + bool(marks):
            marks = marks.ljust(column * width) + str(position)
    return marks[: len(positions) * width]


def column_blocks(widths: Sequence[int], gutter: int, available: int | None) -> list[slice]:
    """Ranges of columns that fit beside the gutter, one range after the other."""
    found, first, used = [], 0, gutter
    for column, width in enumerate(widths):
        if column > first and available is not None and used + width > available:
            found.append(slice(first, column))
            first, used = column, gutter
        used += width
    return [*found, slice(first, len(widths))]


#: A row of a table: its label, its cells, and the style of cells without one.
Row = tuple[str, Sequence[str | Text], str | Style]


def grid(rows: Sequence[Row], widths: Sequence[int], page: Page) -> list[Text]:
    """Dim labels and right-aligned cells; columns that do not fit follow below, with the labels
    again.

    A row without cells is one line of text.
    """
    gutter = max(cell_len(name) for name, cells, _ in rows if cells)
    lines: list[Text] = []
    for part in column_blocks(widths, gutter, page.width):
        lines += [Text()] if lines else []
        for name, cells, style in rows:
            line = Text().append(pad(name, gutter), DIM)
            for cell, width in zip(cells[part], widths[part], strict=bool(cells)):
                line.append(" " * (width - cell_len(str(cell))))
                line.append(cell, None if isinstance(cell, Text) else style)
            line.rstrip()
            lines.append(line)
    return lines


def join_to_lines(items: Sequence[str], width: int | None, separator: str = " · ") -> list[str]:
    """Joins items into lines that fit the width; an item that is too wide is cut."""
    lines: list[str] = []
    for item in items:
        joined = f"{lines[-1]}{separator}{item}" if lines else item
        if lines and (width is None or cell_len(joined) <= width):
            lines[-1] = joined
        else:
            mark = "…" if "·" in separator else "~"
            lines.append(item if width is None else cut(item, width, mark))
    return lines


def wrap_styled(items: Sequence[str], page: Page, style: str | Style = "") -> list[Text]:
    """Fits gptx's own texts into lines, broken at spaces; in ASCII if the page asks for it.

    Names in these texts are shown in one line.
    """
    items = [one_line(item) for item in items]
    if page.ascii_only:
        items = [in_ascii(item) for item in items]
    if page.width is not None:
        items = [part for item in items for part in join_to_lines(item.split(" "), page.width, " ")]
    separator = " | " if page.ascii_only else " · "
    return [Text(line, style) for line in join_to_lines(items, page.width, separator)]


def in_ascii(text: str) -> str:
    """gptx's own texts with ASCII in place of other signs: \\s for the label of a space, and \\xe9
    for a character that has no ASCII sign.
    """
    text = text.translate(_IN_ASCII)
    return "".join(each if each.isascii() else label(each, True) for each in text)


_IN_ASCII = str.maketrans(
    {"–": "-", "…": "..", "±": "+-", "·": "*", "−": "-", "×": "x", "√": "sqrt "}
    | {"“": '"', "”": '"', "’": "'", "→": "->"}
    | {"Δ": "d", "‖": "|", "●": "o", "◌": "", "✓": "ok", "✗": "x"}
    | {sign: ascii(chr(n))[1:-1] for n, sign in enumerate(map(chr, range(0x2400, 0x2420)))}
    | {"␡": "\\x7f"}
    | {sign: in_ascii for sign, in_ascii, _ in NAMED.values()}
)


def check_lines(results: Sequence[Check], page: Page) -> list[Text]:
    """The checks with their errors. If all passed and the page does not ask for all, a short line:
    the names, and the errors that have no bound.
    """
    good, bad = ("ok", "FAILED") if page.ascii_only else ("✓", "✗ FAILED")
    passed = all(check.passed for check in results)
    if passed and not page.checks:
        short = ", ".join(check.short for check in results if not check.detail)
        return wrap_styled([f"{short} {good}"], page, DIM)
    items = [str(check) for check in results]
    items[-1] = f"{items[-1]} {good if passed else bad}"
    items[0] = f"checks: {items[0]}"  # after items[-1], because it may be the same item
    style = DIM if passed else Style(color="red", bold=True)
    return wrap_styled(items, page, style)
