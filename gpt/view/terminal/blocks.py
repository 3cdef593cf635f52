"""Shows blocks in a terminal: as lines that fit the page, in ASCII if the page asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from gpt.blocks import (
    Block,
    Cell,
    Checks,
    Column,
    Facts,
    Fold,
    Formula,
    Legend,
    Note,
    Paragraph,
    Passage,
    Table,
    Title,
    Tone,
)
from gpt.characters import cut, label, legend, one_line, pad
from gpt.view.terminal.lines import BOLD, DIM, GLYPHS, Page, blocks, checks, in_ascii, shade, styled

TONES: dict[Tone, str] = {"": "", "dim": "dim", "strong": "bold", "good": "bold", "gone": "red"}
BARS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
PROSE = 80  # most cells of a line of sentences
LONGEST = 32  # cells of a bar
LEAST = 3  # even if a line becomes too long
SHORTEST = 6  # if all bars of a line have fewer cells, only the first column has bars
FEWEST = 2  # spare columns that are kept, and wrapped if there is no room
NARROWEST = 12  # cells of a column of texts that is cut
GAP = 2  # cells before a column


def lines_of(blocks: Iterable[Block], page: Page) -> list[Text]:
    """The blocks below each other, with an empty line between two, but for remarks below each other
    and below a strong sentence, which is their heading.
    """
    lines: list[Text] = []
    before: Block | None = None
    for block in blocks:
        drawn = _lines(block, page)
        if drawn:
            lines += [Text()] * (before is not None and not _belongs(before, block))
            lines += drawn
            before = block
    return lines


def _belongs(before: Block, block: Block) -> bool:
    """Whether a block follows another one without an empty line."""
    if isinstance(before, Paragraph) and before.tone == "strong":
        return isinstance(block, Note | Table)
    return isinstance(before, Note | Legend) and isinstance(block, Note | Legend)


def _lines(block: Block, page: Page) -> list[Text]:
    match block:
        case Title(name, facts):
            return styled([name, *facts], page, BOLD)
        case Facts(values):
            return _facts({name: fact for name, fact in values.items() if fact}, page)
        case Paragraph(text, tone):
            return styled([text], _narrowed(page, PROSE), TONES[tone])
        case Passage():
            return [*_passage(block, page), *_scale(block, page)]
        case Formula(text):
            parts = [part for line in text.split("\n") for part in line.split("    ") if part]
            lines = [line for part in parts for line in styled([part], _narrowed(page, PROSE, 2))]
            return [Text(f"  {line.plain}", "italic") for line in lines]
        case Checks(results):
            return checks(results, page)
        case Table():
            return _table(block, page)
        case Legend(characters):
            return styled(legend(characters, page.ascii_only), page, DIM)
        case Note(text):
            return styled(text.split(" · "), page, DIM)
        case Fold(title, inner, _):
            return [*styled(title.split(" · "), page, BOLD), *lines_of(inner, page)]


def _narrowed(page: Page, most: int, indent: int = 0) -> Page:
    """The page with lines of at most so many cells, some of them left for an indent."""
    return replace(page, width=min(page.width or most, most) - indent)


def _facts(values: Mapping[str, str], page: Page) -> list[Text]:
    """A line for each fact, beside its name; further lines of a long one below its begin."""
    values = {_line(name, page): fact for name, fact in values.items()}
    gutter = max(map(cell_len, values), default=0) + GAP
    narrow = replace(page, width=page.width and max(NARROWEST, page.width - gutter))
    lines = []
    for name, fact in values.items():
        for place, line in enumerate(styled([fact], narrow)):
            label = pad("" if place else name, gutter)
            lines.append(Text(label, "bold cyan").append(line.plain, "not bold default"))
    return lines


def _passage(passage: Passage, page: Page) -> list[Text]:
    """The text in lines that fit. A page without colours has each value, rounded, below its
    character; 9 means nine or more.
    """
    width = math.inf if page.width is None else max(2, page.width)
    rows: list[tuple[Text, Text]] = []  # characters, and the digits below them
    before = "\n"
    for place, character in enumerate(passage.text):
        value = passage.value(place)
        shown = character if character == " " else label(character, page.ascii_only)
        if character == "\n" and not len(passage.values):
            shown = ""
        size = cell_len(shown)
        if before == "\n" or rows[-1][0].cell_len + size > width:
            rows.append((Text(), Text(style=DIM)))
        line, below = rows[-1]
        digit = ""
        if value is None:
            line.append(shown)
        elif math.isnan(value):
            line.append(shown, DIM)
        else:
            line.append(shown, shade(value / passage.full))
            digit = str(min(9, round(value)))
        below.append(pad(digit, size))
        before = character
    for _, below in rows:
        below.rstrip()
    digits = len(passage.values) > 0 and not page.coloured
    return [line for row in rows for line in row[: 1 + digits]]


def _scale(passage: Passage, page: Page) -> list[Text]:
    """What the colours or digits of a text mean."""
    if not len(passage.values):
        return []
    if not page.coloured:
        return styled([f"digits: {passage.unit}", "9: nine or more"], page, DIM)
    lines = styled([passage.unit], page, DIM)
    for value, name in passage.steps:
        step = f" {name} "
        if page.width is not None and lines[-1].cell_len + cell_len(step) > page.width:
            lines.append(Text())
        lines[-1].append(step, shade(value / passage.full))
    return lines


def _table(table: Table, page: Page) -> list[Text]:
    """Rows below the columns' titles; columns that do not fit follow below, with the labels."""
    table = _without_spare(table, page)
    titles = [_line(each.title, page) for each in table.columns]
    texts = [[_plain(cell, page) for cell in row] for row in table.rows]
    numbers = [max(map(cell_len, each), default=0) for each in zip(*texts, strict=True)]
    bars = _bars(table.columns, numbers, titles, page)
    widths = [
        max(cell_len(title), number + (1 + bar if bar else 0))
        for title, number, bar in zip(titles, numbers, bars, strict=True)
    ]
    labels = range(table.labels)
    if page.width is not None:
        half = page.width // 2 // len(labels)
        widths = [min(width, half) if n in labels else width for n, width in enumerate(widths)]
    gutter = sum(GAP + widths[n] for n in labels) - GAP
    if page.width is not None:
        most = max(NARROWEST, page.width - gutter - GAP)
        widths = [width if n in labels else min(width, most) for n, width in enumerate(widths)]
    lines: list[Text] = []
    for part in blocks([GAP + width for width in widths[table.labels :]], gutter, page.width):
        chosen = [*labels, *range(table.labels, len(widths))[part]]
        heading = Text(style=BOLD)
        for n in chosen:
            left = table.columns[n].left or bool(bars[n])
            _append(heading, _fit(titles[n], widths[n], left, page), first=n == 0)
        lines += [Text()] if lines else []
        lines.append(heading)
        for row, plain in zip(table.rows, texts, strict=True):
            line = Text()
            for n in chosen:
                style, text = _style(row[n], table.columns[n]), plain[n]
                if bars[n]:
                    _append(line, pad(text, numbers[n], right=True), first=n == 0)
                    bar = _bar(row[n].share or 0.0, bars[n], page)
                    line.append(f" {pad(bar, widths[n] - numbers[n] - 1)}", style or "cyan")
                else:
                    _append(line, _fit(text, widths[n], table.columns[n].left, page), style, n == 0)
            lines.append(line)
    for line in lines:
        line.rstrip()
    return lines


def _append(line: Text, text: str, style: str = "", first: bool = False) -> None:
    """Appends a cell after a gap, unless it is the first one."""
    line.append(" " * GAP * (not first))
    line.append(text, style)


def _fit(text: str, width: int, left: bool, page: Page) -> str:
    """A text in so many cells."""
    return pad(cut(text, width, "~" if page.ascii_only else "…"), width, right=not left)


def _without_spare(table: Table, page: Page) -> Table:
    """The table without the spare columns for which the page is too narrow: every second one or
    fewer stays, the first and the last among them.
    """
    spare = [n for n, column in enumerate(table.columns) if column.spare]
    if page.width is None or not spare:
        return table
    titles = [Cell(column.title) for column in table.columns]
    wide = [
        GAP + max(cell_len(_plain(cell, page)) for cell in each)
        for each in zip(titles, *table.rows, strict=True)
    ]
    room = page.width + GAP - sum(width for n, width in enumerate(wide) if n not in spare)
    fitting = room // max(wide[n] for n in spare)
    count = min(len(spare), max(FEWEST, fitting))
    kept = {spare[n] for n in np.linspace(0, len(spare) - 1, count).round().astype(int).tolist()}
    chosen = [n for n in range(len(wide)) if n in kept or n not in spare]
    rows = [[row[n] for n in chosen] for row in table.rows]
    return Table([table.columns[n] for n in chosen], rows, table.labels)


def _bars(
    columns: Sequence[Column], numbers: Sequence[int], titles: Sequence[str], page: Page
) -> list[int]:
    """The length of each column's bars, 0 for none. numbers: the widths of the columns' texts.

    If all bars would be too short, only the first column has some.
    """
    places = [n for n, column in enumerate(columns) if column.bars]

    def longest(places: Sequence[int]) -> float:
        """Cells for the bars of each of these columns."""
        if page.width is None:
            return LONGEST
        used = sum(
            GAP + (number + 1 if n in places else max(number, cell_len(titles[n])))
            for n, number in enumerate(numbers)
        )
        return (page.width + GAP - used) // len(places)

    if len(places) > 1 and longest(places) < SHORTEST:
        places = places[:1]
    lengths = [0] * len(columns)
    for n in places:
        lengths[n] = int(max(LEAST, min(LONGEST, longest(places))))
    return lengths


def _bar(share: float, longest: int, page: Page) -> str:
    """A bar of `share` (0 … 1) × longest cells, in eighths of a cell; in ASCII in whole cells."""
    if page.ascii_only:
        return "#" * round(share * longest)
    eighths = round(share * longest * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _plain(cell: Cell, page: Page) -> str:
    """A cell's text and curve."""
    curve = _curve(cell.curve, page)
    return f"{curve} {_line(cell.text, page)}".strip() if curve else _line(cell.text, page)


def _line(text: str, page: Page) -> str:
    """A text within a line."""
    return in_ascii(one_line(text)) if page.ascii_only else one_line(text)


def _curve(shares: Sequence[float], page: Page) -> str:
    """A sign for each value, higher or denser for larger ones; blank for NaN."""
    signs = GLYPHS if page.ascii_only else BARS
    last = len(signs) - 1
    return "".join(" " if math.isnan(each) else signs[round(each * last)] for each in shares)


def _style(cell: Cell, column: Column) -> str:
    """A cell's style: that of its tone, else by its share."""
    if cell.tone or cell.share is None or column.bars:
        return TONES[cell.tone]
    return "dim" if cell.share < 1 / 3 else "bold" if cell.share > 2 / 3 else ""
