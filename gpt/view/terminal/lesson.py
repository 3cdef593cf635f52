"""A lesson in the terminal: wrapped sentences, folded or cut tables, and its checks."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from gpt.explain.lesson import Lesson, Step, Table
from gpt.view.characters import cut, escape, label, pad
from gpt.view.terminal.lines import BOLD, DIM, Page, blocks, checks, flow, in_ascii

PROSE = 80  # most cells of a line of sentences
LABEL = 10  # most cells of a word beside or above its numbers
MOST, SHOWN = 8, 6  # more columns without names than MOST: the first SHOWN
SHOWN_ROWS = 7  # of a table with more than MOST rows: a third the first, the others the last
GAP = 4  # cells of the column that marks omitted ones
FULL = "--full shows all"


def lesson_lines(lesson: Lesson, page: Page, full: bool = False) -> list[Text]:
    """The whole lesson, a step after the other. full: tables with all their rows and columns."""
    lines = [
        *prose(f"{lesson.name}: {lesson.about}", page, BOLD),
        *prose(lesson.note, page),
        Text(),
    ]
    for number, step in enumerate(lesson.steps, 1):
        lines += [*step_lines(number, step, page, full), Text()]
    return lines[:-1]


def list_lines(about: Mapping[str, str], page: Page) -> list[Text]:
    """A line a lesson: its name, and what it is about."""
    widest = max(map(len, about))
    lines = []
    for name, text in about.items():
        first, *rest = _wrapped(text, page, indent=widest + 2)
        lines.append(Text(f"{pad(name, widest)}  ").append(first))
        lines[-1].stylize(BOLD, 0, len(name))
        lines += [Text(" " * (widest + 2) + part) for part in rest]
    return lines


def step_lines(number: int, step: Step, page: Page, full: bool = False) -> Iterator[Text]:
    """Title, sentences, formula, tables, what to notice, checks."""
    yield from prose(f"{number}. {step.title}", page, BOLD)
    yield from prose(step.text, page)
    if step.formula:
        yield Text()
        yield from _formula(step.formula, page)
    for table in step.tables:
        yield Text()
        yield from table_lines(table, page, full)
    if step.notice or step.checks:
        yield Text()
    if step.notice:
        arrow = "->" if page.ascii_only else "→"
        indent = len(arrow) + 1
        for nth, line in enumerate(_wrapped(step.notice, page, indent)):
            yield Text((" " * indent if nth else f"{arrow} ") + line)
    if step.checks:
        narrow = Page(_width(page), page.ascii_only, page.precision)
        yield from checks(step.checks, narrow)


def prose(text: str, page: Page, style: str | Style = "") -> list[Text]:
    """Sentences, wrapped."""
    return [Text(line, style) for line in _wrapped(text, page)]


def table_lines(table: Table, page: Page, full: bool = False) -> Iterator[Text]:
    """Name and shape, where the numbers come from, and the numbers.

    Without `full`, a table of more than MOST rows shows the first and the last ones, and a table of
    more than MOST columns as many as fit side by side; a line says what is left out.
    """
    stack = matrices(table, page.precision, page.ascii_only, full)
    rows = row_names(table, page.ascii_only)
    headings = column_names(table, page.ascii_only, full)
    texts = (text for part in (*stack, headings) for line in part for text in line)
    width = max(map(cell_len, texts), default=1) + 2
    gutter = max(map(cell_len, rows), default=0) + 2
    count = table.values.shape[-1]
    fitting = count if page.width is None else max(3, (page.width - gutter - GAP) // width)
    columns = list(range(len(stack[0][0])))
    title = f"{table.name} {shape_of(table)}"
    if not full and not table.columns and count > MOST:
        columns = columns[:fitting]
        title += f", first {len(columns)} columns"
    elif not full and count > MOST and gutter + count * width > (page.width or math.inf):
        columns = kept(count, fitting)
        title += f", columns {left_out(columns)} left out; {FULL}"
    yield from prose(title, page)
    if table.source:
        yield from prose(f"from {table.source}", page, DIM)
    for nth, matrix in enumerate(stack):
        if table.values.ndim == 3:
            yield Text(f"  [{nth}]", DIM)
        yield from _matrix(rows, headings, matrix, columns, (gutter, width), page, full)


def kept(count: int, room: int) -> list[int]:
    """The indices of `count` rows or columns that fit in `room`: all, or the first and last."""
    if count <= room:
        return list(range(count))
    first = max(1, room // 3)
    return [*range(first), *range(count - room + first, count)]


def left_out(shown: Sequence[int]) -> str:
    """ "2–24": the only gap in what is shown."""
    after = next(n for n, each in enumerate(shown) if each > n)
    last = shown[after] - 1
    return str(after) if last == after else f"{after}–{last}"


def _matrix(
    rows: list[str],
    headings: list[list[str]],
    cells: list[list[str]],
    columns: Sequence[int],
    sizes: tuple[int, int],
    page: Page,
    full: bool,
) -> Iterator[Text]:
    """One matrix; `sizes`: cells of the row names, and of a column."""
    gutter, width = sizes
    gaps = {column for n, column in enumerate(columns) if n and column > columns[n - 1] + 1}
    dots = ".." if page.ascii_only else "…"

    def line(texts: Sequence[str]) -> str:
        return "".join(
            (pad(dots, GAP, right=True) if column in gaps else "")
            + pad(texts[column], width, right=True)
            for column in block
        )

    shown = kept(len(rows), len(rows) if full or len(rows) <= MOST else SHOWN_ROWS)
    ranges = [(0, len(columns))] if gaps else blocks(len(columns), width, gutter, page.width)
    for first, last in ranges:
        block = columns[first:last]
        if first:
            yield Text()
        for heading in headings:
            yield Text(" " * gutter + line(heading), DIM)
        for n, row in enumerate(shown):
            if n and row > shown[n - 1] + 1:
                words = f"{dots} rows {left_out(shown)} left out; {FULL}"
                yield from (Text(f"  {part}", DIM) for part in _wrapped(words, page, 2))
            yield Text().append(f"  {pad(rows[row], gutter - 2)}", DIM).append(line(cells[row]))


def shape_of(table: Table) -> str:
    """ "(6, 3)" """
    return f"({', '.join(map(str, table.values.shape))})"


def shown_columns(table: Table, full: bool = False) -> int:
    """How many columns are shown: all that have names, and of the others not too many."""
    count: int = table.values.shape[-1]
    return count if full or table.columns or count <= MOST else SHOWN


def matrices(
    table: Table, precision: int, ascii_only: bool, full: bool = False
) -> list[list[list[str]]]:
    """[slice][row][column] in digits."""
    digits = precision if table.digits is None else table.digits
    values = table.values[..., : shown_columns(table, full)]
    stack = values.reshape(-1, *(values.shape[-2:] if values.ndim > 1 else (1, values.shape[-1])))
    return [
        [[digits_of(value, digits, ascii_only) for value in row] for row in matrix]
        for matrix in stack.tolist()
    ]


def row_names(table: Table, ascii_only: bool) -> list[str]:
    """A name for each row; a single row needs none."""
    if table.values.ndim == 1:
        return [""]
    count = table.values.shape[-2]
    if not table.rows:
        return [str(row) for row in range(count)]
    names = [name_of(row, ascii_only) for row in table.rows]
    if not table.numbered:
        return names
    return [f"{row:>{len(str(count - 1))}} {name}" for row, name in enumerate(names)]


def column_names(table: Table, ascii_only: bool, full: bool = False) -> list[list[str]]:
    """One line of headings, or two: positions and characters."""
    names = [name_of(column, ascii_only) for column in table.columns]
    counted = [str(column) for column in range(shown_columns(table, full))]
    if not names:
        return [counted]
    positions = table.numbered and table.rows in ((), table.columns)
    return [counted, names] if positions else [names]


def digits_of(value: float, digits: int, ascii_only: bool = False) -> str:
    """A number as the tables show it: 0.9544, −0.0739, −∞; large ones as 1.2e+09, unless whole."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        sign = "−" if value < 0 else ""
        return f"{'-' if sign else ''}inf" if ascii_only else f"{sign}∞"
    whole = isinstance(value, int)  # ids and row numbers, of which every digit counts
    text = f"{value:.{digits}f}" if whole or abs(value) < 1e6 else f"{value:.1e}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]  # no minus before what is shown as zero
    return text if ascii_only else text.replace("-", "−")


def name_of(text: str, ascii_only: bool) -> str:
    """A word or a character as a label: safe, visible, not too long."""
    if len(text) == 1:
        return label(text, ascii_only)
    if ascii_only:
        text = in_ascii(text)
    marked = "".join(each if _stays(each, ascii_only) else label(each, ascii_only) for each in text)
    return cut(marked, LABEL, "~" if ascii_only else "…")


def _stays(character: str, ascii_only: bool) -> bool:
    """Whether it stands within a word as it is: spaces, and marks on the letter before."""
    return character == " " or (not ascii_only and unicodedata.category(character) == "Mn")


def _formula(formula: str, page: Page) -> Iterator[Text]:
    """Formulas side by side where they fit; `    ` parts them."""
    for line in formula.split("\n"):
        parts = [part for each in line.split("    ") for part in _wrapped(each, page, 2)]
        for joined in flow([part for part in parts if part], _width(page) - 2, "    "):
            yield Text(f"  {joined}", "italic")


def _width(page: Page) -> int:
    return min(page.width or PROSE, PROSE)


def _wrapped(text: str, page: Page, indent: int = 0) -> list[str]:
    """Lines of words; a word that is too long for one is broken."""
    text = escape(text)
    if page.ascii_only:
        text = "".join(each if each.isascii() else ascii(each)[1:-1] for each in in_ascii(text))
    width = max(8, _width(page) - indent)
    words: list[str] = []
    for word in text.split():
        while cell_len(word) > width:
            fitting = cut(word, width - 1, "")
            words.append(fitting)
            word = word[len(fitting) :]
        words.append(word)
    return flow(words, width, " ")
