"""Shows blocks as Markdown, with GitHub's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpt.blocks import (
    Block,
    Cell,
    Checks,
    Column,
    Curves,
    Facts,
    Fold,
    Formula,
    Legend,
    Note,
    Paragraph,
    Passage,
    Table,
    Title,
)
from gpt.characters import escape, legend
from gpt.checks import Check
from gpt.view.terminal.blocks import lines_of
from gpt.view.terminal.lines import Page

HEADING = "##"  # marks a title; titles of inner blocks have one # more


def markdown_of(blocks: Iterable[Block], heading: str = HEADING) -> str:
    """The blocks, one below the other, with an empty line between two."""
    return "\n\n".join(part for block in blocks for part in _parts(block, heading))


def _parts(block: Block, heading: str) -> list[str]:
    match block:
        case Title(name, facts):
            return [f"{heading} {_safe(name)}", *[_safe(" · ".join(facts))] * bool(facts)]
        case Facts():
            rows = [[_safe(cell.text) for cell in row] for row in block.table.rows]
            lines = (f"- {name}: {fact}" if name else f"  {fact}" for name, fact in rows)
            return ["\n".join(lines)]
        case Paragraph(text, tone):
            return [f"**{_safe(text)}**" if tone in ("strong", "gone") else _safe(text)]
        case Passage(text):
            return ["\n".join(f"    {escape(line)}" for line in "".join(text).split("\n"))]
        case Formula(text):
            lines = (line.strip() for line in text.replace("    ", "\n").split("\n"))
            return [_fenced("\n".join(filter(None, lines)))]
        case Checks(results):
            return ["\n".join(map(_check, results))]
        case Table(columns, rows):
            return [_table(columns, rows)]
        case Curves():
            return [_fenced("\n".join(line.plain for line in lines_of([block], Page())))]
        case Legend(characters):
            return [_safe(" · ".join(signs)) for signs in [legend(characters)] if signs]
        case Note(text):
            return [_safe(text)]
        case Fold(title, inner):
            return [f"{heading}# {_safe(title)}", markdown_of(inner, f"{heading}#")]


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def _check(check: Check) -> str:
    if check.passed:
        within = f" (within {check.bound:.0e})" if check.bound else ""
        return f"- ✓ {_safe(check.name)}{within}"
    return f"- ✗ {_safe(check.name)} (error {check.error:.1g}, allowed {check.bound:.1g})"


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    ends = "".join("---|" if column.left else "---:|" for column in columns)
    texts = [[column.title for column in columns], *([cell.text for cell in row] for row in rows)]
    heading, *lines = ("| " + " | ".join(map(_safe, row)) + " |" for row in texts)
    return "\n".join([heading, f"|{ends}", *lines])


def _safe(text: str) -> str:
    """Text in which Markdown's special characters are escaped."""
    return "".join(f"\\{each}" if each in "|*_<[\\" else each for each in escape(text))
