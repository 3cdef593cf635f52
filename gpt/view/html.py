"""Shows blocks as HTML: one card with its own style, for notebooks and pages, light and dark.

Every card's style applies to the class gptx only and has no ids, so that several cards in one
document do not disturb each other. A card needs no network. Text is escaped here, and only here.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from gpt import characters
from gpt.blocks import (
    Block,
    Cell,
    Checks,
    Column,
    Curves,
    Facts,
    Fold,
    Legend,
    Line,
    Note,
    Paragraph,
    Passage,
    Table,
    Title,
)
from gpt.checks import Check

LIMIT = 300_000  # bytes in a card
MOST_ROWS = 100  # rows of a table to show
MOST_CHARACTERS = 40_000  # characters of a text to show
MOST_COLOURED = 8_000  # characters of a coloured text to show
COLOURS = 6  # number of line colours in card.css
WIDE, HIGH = 640, 260  # size of a drawing in its own pixels
LEFT, RIGHT, TOP, BOTTOM = 60, 96, 12, 26  # margins around its lines
LABEL = 14  # height of a line's name in pixels
MARGIN = 0.04  # share of the values' range to add above and below
MOST_POINTS = 3000  # points of all lines
MOST_MARKED = 100  # points that show their numbers under the mouse


def html_card(blocks: Iterable[Block], more: str = "") -> str:
    """The blocks, one below the other, in one card. more: HTML to show below them."""
    return f'<div class="gptx"><style>{style()}</style>{"".join(map(html_of, blocks))}{more}</div>'


@cache
def style() -> str:
    """The style sheet without line breaks."""
    return re.sub(r"\s+", " ", Path(__file__).with_name("card.css").read_text("utf-8"))


def escape_html(text: object) -> str:
    """A text for HTML: markup and control characters are shown as text."""
    shown = characters.escape(str(text)).replace(characters.label(" "), characters.SPACE)
    return html.escape(shown)


def html_of(block: Block) -> str:
    """One block as HTML, without the style of a card."""
    match block:
        case Title(name, facts):
            head = escape_html(name[:1].upper() + name[1:])
            return f'<p class="title">{head} <span>{escape_html(" · ".join(facts))}</span></p>'
        case Facts():
            return _table(block.table.columns, block.table.rows)
        case Paragraph(text, tone):
            return f"<p{f' class={tone}' if tone else ''}>{escape_html(text)}</p>"
        case Passage():
            return _passage(block)
        case Checks(results):
            return "".join(map(_check, results))
        case Table(columns, rows):
            rest = f"the first {MOST_ROWS} of {len(rows):,} rows; all of them: .to_pandas()"
            return _table(columns, rows[:MOST_ROWS]) + _note(rest * (len(rows) > MOST_ROWS))
        case Curves():
            return _curves(block) + _note(block.hidden)
        case Legend(of):
            return _note(" · ".join(characters.legend(of)))
        case Note(text):
            return _note(text)
        case Fold(title, inner, opened):
            summary = f"<summary>{escape_html(title)}</summary>"
            return f"<details{' open' * opened}>{summary}{''.join(map(html_of, inner))}</details>"


def _passage(passage: Passage) -> str:
    """The text, and the scale of its colours."""
    coloured = len(passage.values) > 0
    most = MOST_COLOURED if coloured else MOST_CHARACTERS
    text = passage.text[:most]
    looks = [(_shade(passage, passage.value(n)), _hint(passage, n)) for n in range(len(text))]
    spans = []
    for (shade, hint), pairs in groupby(zip(looks, text, strict=True), key=lambda pair: pair[0]):
        shown = "".join(_visible(each) if coloured else escape_html(each) for _, each in pairs)
        spans.append(f"<b{shade}{hint}>{shown}</b>")
    steps = "".join(f"<b{_shade(passage, value)}>{name}</b>" for value, name in passage.steps)
    scale = f'<p class="note legend">{escape_html(passage.unit)} {steps}</p>' if coloured else ""
    cut = f"the first {most:,} of {len(passage.text):,} characters"
    rest = _note(cut * (len(passage.text) > most))
    return f'<div class="text" dir="auto">{"".join(spans)}</div>{scale}{rest}'


def _shade(passage: Passage, value: float | None) -> str:
    """The class of a character's colour: one of nine steps."""
    if value is None:
        return ""
    if math.isnan(value):
        return " class=dim"
    return f" class=s{min(8, round(8 * value / passage.full))}"


def _hint(passage: Passage, place: int) -> str:
    return f' title="{escape_html(passage.hints[place])}"' if passage.hints else ""


def _visible(character: str) -> str:
    """A character as a label; a newline also ends the line, and a space stays a space."""
    if character == "\n":
        return "⏎\n"
    return character if character == " " else escape_html(characters.label(character))


def _check(check: Check) -> str:
    if check.passed:
        return _note(f"✓ {check.short}")
    return f'<p class="alarm">{escape_html(f"✗ {check}")}</p>'


def _note(text: str) -> str:
    return f'<p class="note">{escape_html(text)}</p>' if text else ""


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    heads = "".join(
        f"<th{' class=left' if column.left or column.bars else ''}"
        f"{' colspan=2' if column.bars else ''}>{escape_html(column.title)}</th>"
        for column in columns
    )
    top = f"<thead><tr>{heads}</tr></thead>" if any(column.title for column in columns) else ""
    lines = (
        "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table class="gptx-table">{top}<tbody>{body}</tbody></table>'


def _cell(cell: Cell, column: Column) -> str:
    classes = [name for name in (cell.tone, "left" if column.left else "") if name]
    hint = f' title="{escape_html(cell.hint)}"' if cell.hint else ""
    text = f"<bdi>{escape_html(cell.text)}</bdi>" if cell.text else ""
    share = None if cell.share is None else f"{100 * min(1.0, max(0.0, cell.share)):.0f}%"
    shade = ""
    if share and not column.bars:
        classes, shade = [*classes, "heat"], f' style="--v:{share}"'
    named = f' class="{" ".join(classes)}"' if classes else ""
    found = f"<td{named}{hint}{shade}>{text}</td>"
    if not column.bars:
        return found
    bar = f'<i class="{cell.tone}" style="width:{share}"></i>' if cell.share else ""
    return f'{found}<td class="bar">{bar}</td>'


def _curves(curves: Curves) -> str:
    """Lines in a frame, with names at their ends and marks at the lowest points."""
    (low, high), end = curves.ends, curves.last
    margin = MARGIN * (high - low) or 0.05
    width, height = WIDE - LEFT - RIGHT, HIGH - TOP - BOTTOM

    def x(place: float) -> float:
        return LEFT + place / max(end, 1) * width

    def y(value: float) -> float:
        return TOP + (high + margin - value) / (high - low + 2 * margin) * height

    parts = [
        f'<path class="grid" d="M{LEFT} {y(value):.1f}h{width}"/>'
        f'<text x="{LEFT - 7}" y="{y(value) + 4:.1f}" text-anchor="end">{text}</text>'
        for value, text in curves.ticks.items()
    ]
    below = {"start": "0", "middle": curves.unit, "end": f"{round(end):,}"}
    for place, (anchor, text) in enumerate(below.items()):
        at = f'x="{LEFT + place * width / 2:.0f}" y="{HIGH - 8}" text-anchor="{anchor}"'
        parts.append(f"<text {at}>{escape_html(text)}</text>")
    inside = f'x="{LEFT}" y="{TOP}" width="{width}" height="{height}"'
    parts.append(f'<svg {inside} viewBox="{LEFT} {TOP} {width} {height}">')  # clips the lines
    for number, line in enumerate(curves.lines):
        points = " ".join(f"{x(line.x[n]):.1f},{y(line.y[n]):.1f}" for n in _some(curves, line))
        parts.append(f'<polyline class="c{number % COLOURS}" points="{points}"/>')
    parts.append("</svg>")
    few = sum(len(line.x) for line in curves.lines) <= MOST_MARKED
    for number, line in enumerate(curves.lines):
        best = line.y.index(min(line.y)) if line.lowest else -1
        for n in range(len(line.x)) if few else [best] * line.lowest:
            if line.y[n] <= high:
                said = f"{curves.unit} {line.x[n]:,.0f}: {line.name} {line.y[n]:.5g}"
                parts.append(
                    f'<circle class="c{number % COLOURS}" cx="{x(line.x[n]):.1f}" '
                    f'cy="{y(line.y[n]):.1f}" r="{4.5 if n == best else 2}">'
                    f"<title>{escape_html(said)}</title></circle>"
                )
    free = float(HIGH - BOTTOM)  # names of near lines must not overlap
    for line in sorted(curves.lines, key=lambda line: line.y[-1]):
        middle = min(y(line.y[-1]), free)
        free = middle - LABEL
        if middle > TOP:
            at = f'x="{WIDE - RIGHT + 8}" y="{middle + 4:.1f}"'
            parts.append(f'<text class="key" {at}>{escape_html(line.name)}</text>')
    size = f'viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}"'
    label = f'role="img" aria-label="curves over {escape_html(curves.unit)}"'
    return f"<svg {size} {label}>{''.join(parts)}</svg>"


def _some(curves: Curves, line: Line) -> list[int]:
    """The points of a line to draw: all, or every n-th one with the lowest and the last."""
    count = len(line.x)
    every = math.ceil(count * len(curves.lines) / MOST_POINTS)
    return sorted({*range(0, count, every), line.y.index(min(line.y)), count - 1})
