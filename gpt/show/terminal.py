"""Draws results in a terminal, a pipe, a text file or a notebook, with rich.

Text is never read as rich's markup, and control characters are escaped. If a table is too wide,
its cells become lines "heading value", one below the other, so that no number is ever cut.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gpt.show.result import (
    Check,
    Column,
    Passage,
    PlotLine,
    Result,
    short_number,
    values_of_row,
)
from gpt.words import NAMED, escape, label, one_line, pad

# Widths are in cells of the terminal.
UNLIMITED = 10_000  # the width of a pipe or a file
BAR = 10  # the width of a bar for the value 1
NARROWEST = 12  # the least width of a column of texts
GAP = 2  # between two columns
HEIGHT, WIDTH = 10, 76  # the lines and the largest width of a drawing
PAGE = 100  # the width of HTML
MARKS = 9  # columns from one letter on a curve to the next; the columns between have dots
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
GLYPHS = " .:-=+*#%@"
# From dark blue over teal to yellow, in even steps of lightness; colour-blind people can read it.
RAMP = ((28, 16, 60), (49, 70, 130), (30, 130, 140), (75, 185, 115), (250, 225, 60))


@dataclass(frozen=True)
class Screen:
    """Where and how to draw. width: in cells; None: unlimited, as in a pipe or a file. color: auto
    uses colours if stdout is a terminal and NO_COLOR is not set. all: draw a result's long form.
    """

    width: int | None = None
    ascii: bool = False
    color: Literal["auto", "always", "never"] = "never"
    all: bool = False

    @property
    def cells(self) -> int:
        return UNLIMITED if self.width is None else max(1, self.width)

    @property
    def console(self) -> Console:
        """A rich console that writes into a string."""
        return Console(
            file=io.StringIO(),  # not stdout, whose encoding would change the output
            width=self.cells,
            force_terminal={"always": True, "never": False}.get(self.color, sys.stdout.isatty()),
            color_system="truecolor" if self.color == "always" else "auto",
            no_color=False if self.color == "always" else None,
            legacy_windows=False,
            markup=False,
            highlight=False,
            emoji=False,
        )

    @property
    def coloured(self) -> bool:
        console = self.console
        return console.color_system is not None and not console.no_color

    def line(self, text: str) -> str:
        """The text in one line, with escaped control characters; in ASCII on an ASCII screen."""
        return in_ascii(one_line(text)) if self.ascii else one_line(text)


def draw(result: Result, screen: Screen) -> str:
    return render(parts_of_result(result, screen), screen)


def draw_facts(facts: Mapping[str, str | Sequence[str]], screen: Screen) -> str:
    """Draws names and texts in two columns. A sequence is a text with several lines."""
    texts = {
        name: fact if isinstance(fact, str) else "\n".join(fact) for name, fact in facts.items()
    }
    return render([_facts(texts, screen)], screen)


def parts_of_result(result: Result, screen: Screen) -> list[RenderableType]:
    """The parts of a result as objects that rich draws. Empty lines separate groups of parts."""
    groups: list[list[RenderableType]] = [[]]
    if result.title:
        groups[0].append(wrapping_text(result.title, screen, "bold"))
    if facts := result.facts(screen.all):
        groups[0].append(_facts(facts, screen))
    if lines := [line for line in result.curves() if line.points]:
        groups.append(_curves(lines, screen))
    if passage := result.passage():
        groups.append(_passage(passage, screen))
    if rows := [values_of_row(row) for row in result.table_rows(screen.all)]:
        groups.append([_table(result.columns(screen.all), rows, screen)])
    groups.append([])
    if sentence := result.sentence(screen.all):
        groups[-1].append(wrapping_text(sentence, screen, "dim"))
    if checks := result.list_checks():
        text, style = checks_line(checks, screen)
        groups[-1].append(wrapping_text(text, screen, style))
    parts: list[RenderableType] = []
    for group in groups:
        if parts and group:
            parts.append(Text())
        parts += group
    return parts


def to_html(result: Result) -> str:
    """A result as HTML for a notebook, with inline styles. The result's texts are escaped."""
    console = Console(file=io.StringIO(), record=True, width=PAGE, color_system="truecolor")
    print_parts(parts_of_result(result, Screen(PAGE, color="always")), console)
    style = "font-family:monospace;line-height:1.25;background:none;white-space:pre"
    return console.export_html(
        inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
    )


def render(parts: Iterable[RenderableType], screen: Screen) -> str:
    """Parts as text. The only control sequences in it are those of colours and styles."""
    console = screen.console
    with console.capture() as capture:
        print_parts(parts, console)
    return capture.get()


def print_parts(parts: Iterable[RenderableType], console: Console) -> None:
    """Prints parts one below the other, without spaces at the ends of lines."""
    coloured = console.color_system is not None and not console.no_color
    segments: list[Segment] = []
    for part in parts:
        for line in console.render_lines(part, console.options, pad=False):
            segments += [*_without_end(line, coloured), Segment.line()]
    console.print(Segments(segments), soft_wrap=True, end="")


def _without_end(line: Sequence[Segment], coloured: bool) -> list[Segment]:
    """Escapes control characters; removes spaces at the end that have no visible background."""
    segments = [segment._replace(text=escape(segment.text)) for segment in line]
    while segments and not (coloured and segments[-1].style and segments[-1].style.bgcolor):
        segments[-1] = segments[-1]._replace(text=segments[-1].text.rstrip(" "))
        if segments[-1].text:
            break
        segments.pop()
    return segments


def wrapping_text(text: str, screen: Screen, style: str = "") -> Text:
    """A sentence, which rich wraps at spaces."""
    return Text(screen.line(text), style, overflow="fold")


def checks_line(results: Sequence[Check], screen: Screen) -> tuple[str, str]:
    """A line about the checks, and the line's style. In the long form, or if a check failed, it has
    all checks with their errors. Otherwise it leaves out the checks with `detail`, and the errors
    of checks with a bound.
    """
    passed = all(check.passed for check in results)
    if screen.all or not passed:
        texts = [str(check) for check in results]
    else:
        main = [check for check in results if not check.detail]
        texts = [check.name if check.bound is not None else str(check) for check in main]
    return ", ".join(texts) + (" ✓" if passed else " ✗ FAILED"), "dim" if passed else "bold red"


def in_ascii(text: str) -> str:
    """A text in ASCII. The label ␠ becomes "\\s"; a sign without a replacement becomes its code."""
    text = text.translate(_IN_ASCII)
    return "".join(sign if sign.isascii() else label(sign, True) for sign in text)


_IN_ASCII = str.maketrans(
    {"–": "-", "…": "..", "±": "+-", "·": "*", "−": "-", "×": "x", "√": "sqrt "}
    | {"“": '"', "”": '"', "’": "'", "→": "->", "←": "<-", "▇": "#"}
    | {"Δ": "d", "●": "o", "◌": "", "✓": "ok", "✗": "x"}
    | {sign: ascii(chr(n))[1:-1] for n, sign in enumerate(map(chr, range(0x2400, 0x2420)))}
    | {"␡": "\\x7f"}
    | {sign: in_ascii for sign, in_ascii, _ in NAMED.values()}
)


def _facts(facts: Mapping[str, str], screen: Screen) -> RenderableType:
    """Names on the left, with the texts beside them, or below them on a narrow screen."""
    named = {screen.line(name): text for name, text in facts.items() if text}
    names = max(map(cell_len, named), default=0)
    table = Table.grid(padding=(0, GAP, 0, 0))
    if names + GAP + NARROWEST <= screen.cells:
        table.add_column(width=names)
    table.add_column(overflow="fold")
    for name, text in named.items():
        lines = Text("\n".join(map(screen.line, text.split("\n"))))
        if len(table.columns) == 2:
            table.add_row(Text(name, "bold cyan"), lines)
        else:
            table.add_row(Text(name, "bold cyan"))
            table.add_row(lines)
    return table


def _table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], screen: Screen
) -> RenderableType:
    """A table with headings; if it does not fit, lines "heading value"."""
    headings = [screen.line(column.heading) for column in columns]
    texts = [[_cell(column, row[column.field], screen) for column in columns] for row in rows]
    cells = [
        [_with_bar(text, column, row, screen) for text, column in zip(line, columns, strict=True)]
        for line, row in zip(_aligned(texts, columns), rows, strict=True)
    ]
    widths = _widths(columns, headings, cells, screen.cells)
    if not widths:
        return _listed(headings, texts)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, heading, width in zip(columns, headings, widths, strict=True):
        side: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(heading), justify=side, width=width, overflow="fold")
    for line in cells:
        table.add_row(*line)
    return table


def _cell(column: Column, value: Any, screen: Screen) -> str:
    return "" if value is None else screen.line(column.write(value))


def _aligned(texts: Sequence[Sequence[str]], columns: Sequence[Column]) -> list[list[str]]:
    """The cells' texts. Those in columns with bars are padded to equal widths."""
    widest = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    return [
        [
            pad(text, width, right=True) if column.bar and text else text
            for text, column, width in zip(row, columns, widest, strict=True)
        ]
        for row in texts
    ]


def _with_bar(text: str, column: Column, row: Mapping[str, Any], screen: Screen) -> Text:
    value = row[column.field]
    if not column.bar or value is None or not math.isfinite(value):
        return Text(text)
    bar = "▇" * round(BAR * min(1.0, max(0.0, value)))
    return Text(f"{text} ").append(screen.line(bar), "cyan")


def _widths(
    columns: Sequence[Column],
    headings: Sequence[str],
    cells: Sequence[Sequence[Text]],
    available: int,
) -> list[int]:
    """The widths of the columns; empty if the table is too wide. Numbers are never wrapped."""
    widths, texts, whole = [], [], []
    for number, (column, heading) in enumerate(zip(columns, headings, strict=True)):
        widest = max(row[number].cell_len for row in cells)
        word = max(map(cell_len, heading.split(" ")))
        numbers = column.right or column.bar
        widths.append(max(word, widest if numbers else min(widest, NARROWEST)))
        texts.append(widest)
        whole.append(max(cell_len(heading), widest))
    room = available - sum(widths) - GAP * (len(columns) - 1)
    if room < 0:
        return []
    for limits in (texts, whole):  # the room goes to texts first, then to headings
        for number, width in enumerate(limits):
            more = max(0, min(room, width - widths[number]))
            widths[number] += more
            room -= more
    return widths


def _listed(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> Text:
    """Draws rows as lists: the first cell; below it, lines "heading value" for the others."""
    lines = []
    for first, *others in texts:
        lines.append(Text(first, "bold"))
        for heading, text in zip(headings[1:], others, strict=True):
            if text:
                lines.append(Text(f"  {heading} ").append(text))
    return Text("\n", overflow="fold").join(lines)


def _curves(lines: Sequence[PlotLine], screen: Screen) -> list[RenderableType]:
    """A drawing of curves and, below it, their names. The first curve is drawn over the others.

    High values in the first quarter are cut off at the frame's top, because a scale up to them
    would hide later differences.
    """
    points = [point for line in lines for point in line.points]
    last = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for x, y in points if x >= last / 4)
    names = [short_number(high, 3), short_number(low, 3)]
    gutter = max(map(cell_len, names)) + 2
    across = max(8, min(screen.cells, WIDTH) - gutter)
    dot, edge = (".", "|") if screen.ascii else ("·", "│")
    grid = [[Text(" ")] * across for _ in range(HEIGHT)]
    for number, line in reversed(list(enumerate(lines))):
        colour, letter = COLOURS[number % len(COLOURS)], screen.line(line.name)[:1] or dot
        places = np.array([x for x, _ in line.points]) / max(last, 1) * (across - 1)
        columns = range(round(places[0]), round(places[-1]) + 1)
        heights = np.interp(columns, places, [y for _, y in line.points])
        for column, y in zip(columns, heights.tolist(), strict=True):
            if y <= high:
                row = round((high - y) / (high - low) * (HEIGHT - 1)) if high > low else 0
                lettered = (column + 3 * number) % MARKS == 0 or column == columns[-1]
                if lettered or grid[row][column].plain in (" ", dot):
                    grid[row][column] = Text(letter if lettered else dot, colour)
    drawn: list[RenderableType] = []
    for number, cells in enumerate(grid):
        name = names[0] if number == 0 else names[1] if number == HEIGHT - 1 else ""
        start = Text(f"{pad(screen.line(name), gutter - 2, right=True)} {edge}", "dim")
        drawn.append(Text.assemble(start, *cells))
    end = f"{round(last):,}"
    axis = f"0{'step'.center(max(0, across - len(end) - 1))}{end}"
    drawn.append(Text(" " * gutter + axis, "dim"))
    if len(lines) > 1:
        legend = [
            Text(screen.line(line.name), COLOURS[number % len(COLOURS)])
            for number, line in enumerate(lines)
        ]
        drawn.append(Padding(Text(", ").join(legend), (0, 0, 0, gutter)))
    return drawn


def _passage(passage: Passage, screen: Screen) -> list[RenderableType]:
    """The text on coloured backgrounds; without colours, digits below it show the shades."""
    lines = [(Text(), Text(style="dim"))]  # with the digits below
    for character, shade in zip(passage.text, passage.shades, strict=True):
        sign = character if character == " " else label(character, screen.ascii)
        size, shaded = cell_len(sign), math.isfinite(shade)
        if lines[-1][0].cell_len + size > max(2, screen.cells):
            lines.append((Text(), Text(style="dim")))
        line, digits = lines[-1]
        line.append(sign, shade_style(shade) if shaded else "dim")
        digits.append(pad(str(min(9, round(shade * 10))) if shaded else "", size))
        if character == "\n":
            lines.append((Text(), Text(style="dim")))
    parts: list[RenderableType] = []
    for line, digits in lines:
        if line.plain:
            parts.append(line)
        if digits.plain.strip() and not screen.coloured:
            parts.append(digits)
    return [*parts, wrapping_text(passage.meaning, screen, "dim")]


def shade_style(value: float) -> Style:
    """The background and the text colour for a value from 0 to 1; larger values look like 1."""
    return _shade(max(0, min(99, int(value * 100))) / 99)


@cache
def _shade(value: float) -> Style:
    stops = np.linspace(0, 1, len(RAMP))
    red, green, blue = (round(np.interp(value, stops, hue)) for hue in zip(*RAMP, strict=True))
    ink = "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#ffffff"
    return Style(color=ink, bgcolor=Color.from_rgb(red, green, blue).name)
