"""Draws results in a terminal, a pipe, a text file or a notebook, with rich.

Text is shown as it is, never as markup, and control characters are escaped here. A table that does
not fit becomes lines "heading value" below each row's first cell, so that no number is ever cut.
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
    Line,
    Passage,
    Result,
    short_number,
    values_of,
)
from gpt.words import NAMED, escape, label, one_line, pad

UNLIMITED = 10_000  # cells in a line of a pipe or a file
BAR = 10  # cells of a bar for the value 1
NARROWEST = 12  # cells of a column of texts
GAP = 2  # cells between two columns
HEIGHT, WIDTH = 10, 76  # lines, and most columns, of a drawing
PAGE = 100  # cells in a line of HTML
MARKS = 9  # cells from one letter of a line to its next
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
GLYPHS = " .:-=+*#%@"
# Dark blue over teal to yellow: even steps of lightness, readable for the colour-blind.
RAMP = ((28, 16, 60), (49, 70, 130), (30, 130, 140), (75, 185, 115), (250, 225, 60))


@dataclass(frozen=True)
class Screen:
    """Where to draw. width: in cells; None: unlimited, as in a pipe or a file. color: auto needs a
    terminal on stdout and no NO_COLOR. all: the long form of a result.
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
        """A console that writes into a string."""
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
        """A text within a line: without control characters, in ASCII if the screen needs it."""
        return in_ascii(one_line(text)) if self.ascii else one_line(text)


def draw(result: Result, screen: Screen) -> str:
    return render(parts_of(result, screen), screen)


def draw_facts(facts: Mapping[str, str | Sequence[str]], screen: Screen) -> str:
    """Names and texts, which may have several lines, in two columns."""
    texts = {
        name: fact if isinstance(fact, str) else "\n".join(fact) for name, fact in facts.items()
    }
    return render([_facts(texts, screen)], screen)


def parts_of(result: Result, screen: Screen) -> list[RenderableType]:
    """What rich draws of a result, in order; an empty line stands between two parts."""
    groups: list[list[RenderableType]] = [[]]
    if result.title:
        groups[0].append(prose(result.title, screen, "bold"))
    if facts := result.facts(screen.all):
        groups[0].append(_facts(facts, screen))
    if lines := [line for line in result.curves() if line.points]:
        groups.append(_curves(lines, screen))
    if passage := result.passage():
        groups.append(_passage(passage, screen))
    if rows := [values_of(row) for row in result.shown(screen.all)]:
        groups.append([_table(result.columns(screen.all), rows, screen)])
    groups.append([])
    if sentence := result.sentence(screen.all):
        groups[-1].append(prose(sentence, screen, "dim"))
    if result.checked():
        text, style = checked_text(result.checked(), screen)
        groups[-1].append(prose(text, screen, style))
    parts: list[RenderableType] = []
    for group in groups:
        if parts and group:
            parts.append(Text())
        parts += group
    return parts


def to_html(result: Result) -> str:
    """A result as HTML with its own styles, in the colours of the notebook; text is escaped."""
    console = Console(file=io.StringIO(), record=True, width=PAGE, color_system="truecolor")
    print_parts(parts_of(result, Screen(PAGE, color="always")), console)
    style = "font-family:monospace;line-height:1.25;background:none;white-space:pre"
    return console.export_html(
        inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
    )


def render(parts: Iterable[RenderableType], screen: Screen) -> str:
    """Parts as text, each line without spaces at its end. Only the screen's own styles control the
    terminal.
    """
    console = screen.console
    with console.capture() as written:
        print_parts(parts, console)
    return written.get()


def print_parts(parts: Iterable[RenderableType], console: Console) -> None:
    coloured = console.color_system is not None and not console.no_color
    segments: list[Segment] = []
    for part in parts:
        for line in console.render_lines(part, console.options, pad=False):
            segments += [*_without_end(line, coloured), Segment.line()]
    console.print(Segments(segments), soft_wrap=True, end="")


def _without_end(line: Sequence[Segment], coloured: bool) -> list[Segment]:
    """A line without spaces at its end, unless they have a visible background."""
    kept = [segment._replace(text=escape(segment.text)) for segment in line]
    while kept and not (coloured and kept[-1].style and kept[-1].style.bgcolor):
        kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip(" "))
        if kept[-1].text:
            break
        kept.pop()
    return kept


def prose(text: str, screen: Screen, style: str = "") -> Text:
    """A sentence; rich wraps it at spaces."""
    return Text(screen.line(text), style, overflow="fold")


def checked_text(results: Sequence[Check], screen: Screen) -> tuple[str, str]:
    """The checks in a line, and its style. The long form, and one with a failure, also names
    details, and says every error; else an error is said where there is no bound.
    """
    passed = all(check.passed for check in results)
    if screen.all or not passed:
        texts = [str(check) for check in results]
    else:
        shown = [check for check in results if not check.detail]
        texts = [check.name if check.bound is not None else str(check) for check in shown]
    return ", ".join(texts) + (" ✓" if passed else " ✗ FAILED"), "dim" if passed else "bold red"


def in_ascii(text: str) -> str:
    """gptx's own texts with ASCII in place of other signs: \\s for the label of a space, and \\xe9
    for a character that has no ASCII sign.
    """
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
    """Names on the left, texts beside them; on a narrow screen below them."""
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
    """Rows below headings; lines "heading value" if they do not fit."""
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
    """The cells; numbers beside bars have equal widths."""
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
    """The width of each column; empty if they do not fit. Headings and texts may be wrapped at
    spaces, numbers not.
    """
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
    for wanted in (texts, whole):  # headings are wrapped before texts
        for number, width in enumerate(wanted):
            more = max(0, min(room, width - widths[number]))
            widths[number] += more
            room -= more
    return widths


def _listed(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> Text:
    """Each row as its first cell and, below it, a line for each other cell."""
    lines = []
    for first, *others in texts:
        lines.append(Text(first, "bold"))
        for heading, text in zip(headings[1:], others, strict=True):
            if text:
                lines.append(Text(f"  {heading} ").append(text))
    return Text("\n", overflow="fold").join(lines)


def _curves(lines: Sequence[Line], screen: Screen) -> list[RenderableType]:
    """Lines as letters in a frame, the first one on top; then their names. Values before the first
    quarter may lie above the frame, because they would hide later differences.
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
                marked = (column + 3 * number) % MARKS == 0 or column == columns[-1]
                if marked or grid[row][column].plain in (" ", dot):
                    grid[row][column] = Text(letter if marked else dot, colour)
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
    """The text, with coloured characters; without colours, a digit from 0 to 9 stands below each
    character that has a shade.
    """
    lines = [(Text(), Text(style="dim"))]  # with the digits below
    for character, shade in zip(passage.text, passage.shades, strict=True):
        shown = character if character == " " else label(character, screen.ascii)
        size, known = cell_len(shown), math.isfinite(shade)
        if lines[-1][0].cell_len + size > max(2, screen.cells):
            lines.append((Text(), Text(style="dim")))
        line, digits = lines[-1]
        line.append(shown, shade_style(shade) if known else "dim")
        digits.append(pad(str(min(9, round(shade * 10))) if known else "", size))
        if character == "\n":
            lines.append((Text(), Text(style="dim")))
    parts: list[RenderableType] = []
    for line, digits in lines:
        if line.plain:
            parts.append(line)
        if digits.plain.strip() and not screen.coloured:
            parts.append(digits)
    return [*parts, prose(passage.meaning, screen, "dim")]


def shade_style(value: float) -> Style:
    """The colour of a value in 0 … 1; larger values look like 1."""
    return _shade(max(0, min(99, int(value * 100))) / 99)


@cache
def _shade(value: float) -> Style:
    places = np.linspace(0, 1, len(RAMP))
    red, green, blue = (round(np.interp(value, places, part)) for part in zip(*RAMP, strict=True))
    ink = "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#ffffff"
    return Style(color=ink, bgcolor=Color.from_rgb(red, green, blue).name)
