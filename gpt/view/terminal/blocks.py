"""Shows blocks in a terminal, as lines that fit the page; in ASCII if the page asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from rich.cells import cell_len, chop_cells
from rich.text import Text

from gpt.blocks import (
    Block,
    Cell,
    Checks,
    Column,
    Curves,
    Facts,
    Fold,
    Legend,
    Note,
    Paragraph,
    Passage,
    Table,
    Title,
    Tone,
)
from gpt.characters import cut, label, legend, one_line, pad
from gpt.view.terminal.lines import (
    BOLD,
    DIM,
    Page,
    check_lines,
    column_blocks,
    in_ascii,
    join_to_lines,
    shade,
    wrap_styled,
)

TONES: dict[Tone, str] = {"": "", "dim": "dim", "strong": "bold", "good": "bold", "gone": "red"}
TONES |= {"name": "bold cyan"}
EIGHTHS = " ▏▎▍▌▋▊▉"
PROSE = 80  # cells in a line of sentences
LONGEST = 32  # cells in a bar
LEAST = 3  # even if a line becomes too long
SHORTEST = 6  # if all bars of a line have fewer cells, only the first column keeps its bars
NARROWEST = 10  # cells of a column whose texts are wrapped or cut
GAP = 2  # cells before a column
WIDEST = 100  # cells in a drawing
HEIGHT, LOW, NARROW = 16, 12, 60  # lines of a drawing; and of one with fewer cells than NARROW
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
APART = 9  # cells between two letters of a line


def lines_of(blocks: Iterable[Block], page: Page) -> list[Text]:
    """The blocks, one below the other, with an empty line between two. There is none between
    remarks, and none after a strong sentence, which is the heading of what follows.
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
    """Whether a block follows the one before it without an empty line."""
    if isinstance(before, Paragraph) and before.tone == "strong":
        return isinstance(block, Note | Table)
    return isinstance(before, Note | Legend) and isinstance(block, Note | Legend)


def _lines(block: Block, page: Page) -> list[Text]:
    match block:
        case Title(name, facts):
            return wrap_styled([name, *facts], page, BOLD)
        case Facts():
            return _table(block.table, page)
        case Paragraph(text, tone):
            narrow = replace(page, width=min(page.width or PROSE, PROSE))
            return wrap_styled([text], narrow, TONES[tone])
        case Passage():
            return [*_passage(block, page), *_scale(block, page)]
        case Checks(results):
            return check_lines(results, page)
        case Table():
            return _table(block, page)
        case Curves():
            return _curves(block, page)
        case Legend(characters):
            return wrap_styled(legend(characters, page.ascii_only), page, DIM)
        case Note(text):
            return wrap_styled(text.split(" · "), page, DIM)
        case Fold(title, inner, _):
            return [*wrap_styled(title.split(" · "), page, BOLD), *lines_of(inner, page)]


def _folded(text: str, width: int | None) -> list[str]:
    """Breaks a line into lines of at most `width` cells, at spaces, and within words that are
    longer.
    """
    if width is None or cell_len(text) <= width:
        return [text]
    words = [part for word in text.split(" ") for part in chop_cells(word, width) or [""]]
    return join_to_lines(words, width, " ")


def _passage(passage: Passage, page: Page) -> list[Text]:
    """The text, in lines that fit. On a page without colours, each character has its rounded value
    below it; 9 means nine or more.
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
    return [line for row in rows for line in row[: 1 + (digits and row[1].cell_len > 0)]]


def _scale(passage: Passage, page: Page) -> list[Text]:
    """What the colours or digits below a text mean."""
    if not len(passage.values):
        return []
    if not page.coloured:
        return wrap_styled([f"digits: {passage.unit}", "9: nine or more"], page, DIM)
    lines = wrap_styled([passage.unit], page, DIM)
    for value, name in passage.steps:
        step = f" {name} "
        if page.width is not None and lines[-1].cell_len + cell_len(step) > page.width:
            lines.append(Text())
        lines[-1].append(step, shade(value / passage.full))
    return lines


def _table(table: Table, page: Page) -> list[Text]:
    """Rows below the columns' titles; columns that do not fit follow below, with the labels
    again.
    """
    table = _fitting(table, page)
    titles = [_line(each.title, page) for each in table.columns]
    texts = [[_line(cell.text, page) for cell in row] for row in table.rows]
    numbers = [max(map(cell_len, each), default=0) for each in zip(*texts, strict=True)]
    bars = _bars(table.columns, numbers, titles, page)
    widths = [
        max(cell_len(title), number + (1 + bar if bar else 0))
        for title, number, bar in zip(titles, numbers, bars, strict=True)
    ]
    labels, wraps = range(table.labels), _wrapping(table)
    gutter = sum(GAP + widths[n] for n in labels) - GAP
    if page.width is not None:
        over, narrowed = sum(GAP + width for width in widths) - GAP - page.width, wraps
        if over > sum(max(0, widths[n] - NARROWEST) for n in wraps):  # columns will follow below
            over, narrowed = gutter - page.width // 2, [n for n in wraps if n in labels]
        for n in sorted(narrowed, key=lambda n: -widths[n]):
            less = max(0, min(over, widths[n] - NARROWEST))
            widths[n], over = widths[n] - less, over - less
        if over > 0:
            half = page.width // 2 // len(labels)
            widths = [min(width, half) if n in labels else width for n, width in enumerate(widths)]
        gutter = sum(GAP + widths[n] for n in labels) - GAP
        most = max(NARROWEST, page.width - gutter - GAP)
        widths = [width if n in labels else min(width, most) for n, width in enumerate(widths)]
    rows = [
        [_folded(text, widths[n]) if n in wraps else [text] for n, text in enumerate(row)]
        for row in texts
    ]
    lines: list[Text] = []
    for part in column_blocks(
        [GAP + width for width in widths[table.labels :]], gutter, page.width
    ):
        chosen = [*labels, *range(table.labels, len(widths))[part]]
        heading = Text(style=BOLD)
        for n in chosen:
            left = table.columns[n].left or bool(bars[n])
            _append(heading, _fit(titles[n], widths[n], left, page), first=n == 0)
        lines += [Text()] if lines else []
        lines += [heading] if heading.plain.strip() else []
        for cells, row in zip(table.rows, rows, strict=True):
            for depth in range(max(len(row[n]) for n in chosen)):
                line = Text()
                for n in chosen:
                    style = _style(cells[n], table.columns[n])
                    text = row[n][depth] if depth < len(row[n]) else ""
                    if bars[n]:
                        _append(line, pad(text, numbers[n], right=True), first=n == 0)
                        bar = _bar(cells[n].share or 0.0, bars[n], page)
                        line.append(f" {pad(bar, widths[n] - numbers[n] - 1)}", style or "cyan")
                    else:
                        fitting = _fit(text, widths[n], table.columns[n].left, page)
                        _append(line, fitting, style, n == 0)
                lines.append(line)
    for line in lines:
        line.rstrip()
    return lines


def _wrapping(table: Table) -> list[int]:
    """The columns whose texts are wrapped on a narrow page; bars prevent that."""
    if any(column.bars for column in table.columns):
        return []
    return [n for n, column in enumerate(table.columns) if column.left]


def _append(line: Text, text: str, style: str = "", first: bool = False) -> None:
    """Appends a cell after a gap, unless it is the first one."""
    line.append(" " * GAP * (not first))
    line.append(text, style)


def _fit(text: str, width: int, left: bool, page: Page) -> str:
    """A text in exactly this many cells."""
    return pad(cut(text, width, "~" if page.ascii_only else "…"), width, right=not left)


def _fitting(table: Table, page: Page) -> Table:
    """The table without columns that need a wider page."""
    if page.width is None:
        return table
    fitting = [n for n, column in enumerate(table.columns) if column.least <= page.width]
    rows = [[row[n] for n in fitting] for row in table.rows]
    return Table([table.columns[n] for n in fitting], rows, table.labels)


def _bars(
    columns: Sequence[Column], numbers: Sequence[int], titles: Sequence[str], page: Page
) -> list[int]:
    """The length of each column's bars, 0 for none. numbers: the widths of the columns'
    texts.

    If all bars would be too short, only the first column has some.
    """
    places = [n for n, column in enumerate(columns) if column.bars]

    def longest(places: Sequence[int]) -> int:
        """How many cells the bars of each of these columns may have."""
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
        lengths[n] = max(LEAST, min(LONGEST, longest(places)))
    return lengths


def _bar(share: float, longest: int, page: Page) -> str:
    """A bar of share (0 … 1) × longest cells, in eighths of a cell; in ASCII in whole cells."""
    if page.ascii_only:
        return "#" * round(share * longest)
    eighths = round(share * longest * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _line(text: str, page: Page) -> str:
    """A text within a line."""
    return in_ascii(one_line(text)) if page.ascii_only else one_line(text)


def _style(cell: Cell, column: Column) -> str:
    """A cell's style, by its tone or else by its share."""
    if cell.tone or cell.share is None or column.bars:
        return TONES[cell.tone]
    return "dim" if cell.share < 1 / 3 else "bold" if cell.share > 2 / 3 else ""


def _curves(curves: Curves, page: Page) -> list[Text]:
    """Draws lines as letters in a frame, the first line on top of the others; then the names of the
    lines.
    """
    (low, high), end = curves.ends, curves.last
    width = min(page.width or WIDEST, WIDEST)
    height = HEIGHT if width >= NARROW else LOW

    def row(y: float) -> int:
        return round((high - y) / (high - low) * (height - 1)) if high > low else height // 2

    labels = {row(y): _line(text, page) for y, text in curves.ticks.items()}
    gutter = max(map(cell_len, labels.values())) + 2
    across = width - gutter
    dot, edge, corner, floor = ".|+-" if page.ascii_only else "·│└─"
    cells = [[(" ", "")] * across for _ in range(height)]
    for number, line in [*enumerate(curves.lines)][::-1]:
        colour, name = COLOURS[number % len(COLOURS)], _line(line.name, page)
        places = np.array(line.x) / max(end, 1) * (across - 1)
        columns = range(round(places[0]), round(places[-1]) + 1)
        for column, y in zip(columns, np.interp(columns, places, line.y).tolist(), strict=True):
            if y > high:
                continue
            if (column + 3 * number) % APART == 0 or column == columns[-1]:
                cells[row(y)][column] = (name[:1] or dot, colour)
            elif cells[row(y)][column][0] in (" ", dot):  # letters of lower lines stay visible
                cells[row(y)][column] = (dot, colour)
        if line.lowest:
            best = int(np.argmin(line.y))
            cells[row(line.y[best])][round(places[best])] = (_line("●", page), "bold green")
    lines = []
    for number, signs in enumerate(cells):
        drawn = Text(f"{labels.get(number, ''):>{gutter - 2}} {edge}", DIM)
        for sign, colour in signs:
            drawn.append(sign, f"not dim {colour}")
        drawn.rstrip()
        lines.append(drawn)
    last = f"{round(end):,}"
    middle = _line(curves.unit, page).center(max(0, across - len(last) - 1))
    lines.append(Text(" " * (gutter - 1) + corner + floor * across, DIM))
    lines.append(Text(f"{' ' * gutter}0{middle}{last}"[:width], DIM))
    names = [line.name for line in curves.lines if len(line.name) > 1]
    remarks = wrap_styled([each for each in (*names, curves.hidden) if each], page, DIM)
    for number, line in enumerate(curves.lines):
        for each in remarks:
            each.highlight_words(
                [_line(line.name, page)], f"not dim {COLOURS[number % len(COLOURS)]}"
            )
    return [*lines, *remarks]
