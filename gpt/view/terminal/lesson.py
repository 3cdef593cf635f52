"""Shows a lesson in the terminal: wrapped sentences, folded or shortened tables, and checks."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from gpt.characters import cut, escape, label
from gpt.explain.lesson import Lesson, Step, Table
from gpt.view.terminal.lines import BOLD, DIM, NORMAL, Page, Row, checks, flow, grid, in_ascii

PROSE = 80  # most cells of a line of sentences
LABEL = 10  # most cells of a word beside or above its numbers
MOST, SHOWN = 8, 6  # columns shown of a table with more than MOST columns without names
SHOWN_ROWS = 7  # rows shown of a longer table: first a third of them, then the last ones
GAP = 4  # cells of the column that marks omitted ones
FULL = "--full shows all"


def lesson_lines(lesson: Lesson, page: Page, full: bool = False) -> list[Text]:
    """The whole lesson, step by step. full: tables with all their rows and columns."""
    lines = prose(f"{lesson.name}: {lesson.about}", page, BOLD) + prose(lesson.note, page)
    for number, step in enumerate(lesson.steps, 1):
        lines += [Text(), *step_lines(number, step, page, full)]
    return lines


def list_lines(about: Mapping[str, str], page: Page) -> list[Text]:
    """One entry per lesson: its name and its subject."""
    widest, lines = max(map(len, about)), []
    for name, text in about.items():
        hanging = _hanging(f"{name:<{widest}}  ", text, page)
        hanging[0].stylize(BOLD, 0, len(name))
        lines += hanging
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
        yield from _hanging("-> " if page.ascii_only else "→ ", step.notice, page)
    if step.checks:
        yield from checks(step.checks, replace(page, width=_width(page)))


def prose(text: str, page: Page, style: str | Style = "") -> list[Text]:
    """Sentences, wrapped."""
    return [Text(line, style) for line in _wrapped(text, page)]


def table_lines(table: Table, page: Page, full: bool = False) -> list[Text]:
    """A table: its name and shape, the source of its numbers, and the numbers.

    Without `full`, a table of more than MOST rows shows the first and the last ones, if that saves
    two lines or more, and a table of more than MOST columns shows as many as fit side by side; a
    line names the omitted ones.
    """
    names, headings, stack = texts_of(table, page.precision, page.ascii_only, full)
    texts = (text for part in (*stack, headings) for line in part for text in line)
    width = max(map(cell_len, texts)) + 2
    gutter = max(map(cell_len, names)) + 2
    count = table.values.shape[-1]
    fitting = count if page.width is None else max(3, (page.width - gutter - GAP) // width)
    columns: list[int | None] = list(range(len(headings[0])))  # None: the omitted ones
    title = f"{table.name} {shape_of(table)}"
    if not full and not table.columns and count > MOST:
        columns = columns[:fitting]
        title += f", first {len(columns)} columns"
    elif not full and count > MOST and gutter + count * width > (page.width or math.inf):
        first, last = gap(count, fitting)
        columns[first:last] = [None]
        title += f", columns {span(first, last)} left out; {FULL}"
    lines = prose(title, page)
    if table.source:
        lines += prose(f"from {table.source}", page, DIM)
    dots = ".." if page.ascii_only else "…"

    def row(name: str, texts: list[str], style: str | Style) -> Row:
        return name, [dots if at is None else texts[at] for at in columns], style

    widths = [GAP if at is None else width for at in columns]
    for nth, matrix in enumerate(stack):
        rows = [row(f"  {name}", cells, NORMAL) for name, cells in zip(names, matrix, strict=True)]
        if not full and len(rows) > MOST:
            first, last = gap(len(rows), SHOWN_ROWS)
            words = _wrapped(f"{dots} rows {span(first, last)} left out; {FULL}", page, 2)
            if last - first > len(words) + 1:  # else it would save a line or none
                rows[first:last] = [(f"  {part}", (), "") for part in words]
        if table.values.ndim == 3:
            lines.append(Text(f"  [{nth}]", DIM))
        lines += grid([*(row("", heading, "") for heading in headings), *rows], widths, page)
    return lines


def gap(count: int, room: int) -> tuple[int, int]:
    """The range to omit from `count` rows or columns to show `room` of them, a third before the
    range.
    """
    first = max(1, room // 3)
    return first, count - room + first


def span(first: int, last: int) -> str:
    """ "2–24": the rows or columns `first` … `last` - 1."""
    return str(first) if last == first + 1 else f"{first}–{last - 1}"


def shape_of(table: Table) -> str:
    """ "(6, 3)" """
    return f"({', '.join(map(str, table.values.shape))})"


def texts_of(
    table: Table, precision: int, ascii_only: bool = False, full: bool = False
) -> tuple[list[str], list[list[str]], list[list[list[str]]]]:
    """The name of each row, one or two lines of headings, and the numbers: [slice][row][column].

    Includes all columns with names, but only the first of the others, unless `full`.
    """
    count = table.values.shape[-1]
    shown = count if full or table.columns or count <= MOST else SHOWN
    headings = [[str(column) for column in range(shown)]]
    if table.columns:
        columns = [name_of(column, ascii_only) for column in table.columns]
        positions = table.numbered and table.rows in ((), table.columns)
        headings = [*headings, columns] if positions else [columns]
    values = np.atleast_2d(table.values)[..., :shown]
    height = values.shape[-2]
    names = [name_of(row, ascii_only) for row in table.rows] or [str(row) for row in range(height)]
    if table.rows and table.numbered:
        digits = len(str(height - 1))
        names = [f"{row:>{digits}} {name}" for row, name in enumerate(names)]
    if table.values.ndim == 1:
        names = [""]  # a single row needs no label
    digits = precision if table.digits is None else table.digits
    stack = [
        [[digits_of(value, digits, ascii_only) for value in row] for row in matrix]
        for matrix in values.reshape(-1, height, shown).tolist()
    ]
    return names, headings, stack


def digits_of(value: float, digits: int, ascii_only: bool = False) -> str:
    """A number as the tables show it: 0.9544, −0.0739, −∞; large ones as 1.2e+09, unless whole."""
    if math.isinf(value) and not ascii_only:
        return "−∞" if value < 0 else "∞"
    whole = isinstance(value, int)  # ids and row numbers, of which every digit counts
    text = f"{value:.1e}" if abs(value) >= 1e6 and not whole else f"{value:.{digits}f}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]  # no minus sign before a number that is shown as zero
    return text if ascii_only else text.replace("-", "−")


def name_of(text: str, ascii_only: bool) -> str:
    """A word or a character as a safe, visible, short label."""
    if len(text) == 1:
        return label(text, ascii_only)
    if ascii_only:
        text = in_ascii(text)
    marked = "".join(each if _stays(each, ascii_only) else label(each, ascii_only) for each in text)
    return cut(marked, LABEL, "~" if ascii_only else "…")


def _stays(character: str, ascii_only: bool) -> bool:
    """Whether a character is shown unchanged within a word: spaces, and marks on the previous
    letter.
    """
    return character == " " or (not ascii_only and unicodedata.category(character) == "Mn")


def _formula(formula: str, page: Page) -> Iterator[Text]:
    """Formulas side by side if they fit; four spaces separate them."""
    for line in formula.split("\n"):
        parts = [part for each in line.split("    ") for part in _wrapped(each, page, 2)]
        for joined in flow(parts, _width(page) - 2, "    "):
            yield Text(f"  {joined}", "italic")


def _hanging(start: str, text: str, page: Page) -> list[Text]:
    """A text wrapped after its first words, with other lines indented."""
    lines = _wrapped(text, page, len(start))
    return [Text((" " * len(start) if nth else start) + line) for nth, line in enumerate(lines)]


def _width(page: Page) -> int:
    return min(page.width or PROSE, PROSE)


def _wrapped(text: str, page: Page, indent: int = 0) -> list[str]:
    """Lines of words; a word that is too long for a line is broken."""
    text = escape(text)
    if page.ascii_only:
        text = "".join(each if each.isascii() else ascii(each)[1:-1] for each in in_ascii(text))
    words, width = Text(" ".join(text.split())), max(8, _width(page) - indent)
    return [line.plain.rstrip() for line in words.wrap(Console(), width) if line.plain]
