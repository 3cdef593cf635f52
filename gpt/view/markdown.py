"""Shows blocks as Markdown, with GitHub's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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

HEADING = "##"  # of a title; blocks below a title of their own have one # more


def markdown_of(blocks: Iterable[Block], heading: str = HEADING) -> str:
    """The blocks below each other, with an empty line between two."""
    return "\n\n".join(part for block in blocks for part in _parts(block, heading))


def _parts(block: Block, heading: str) -> Iterator[str]:
    match block:
        case Title(name, facts):
            yield f"{heading} {_safe(name)}"
            yield from [_safe(" · ".join(facts))] * bool(facts)
        case Facts():
            rows = [[_safe(cell.text) for cell in row] for row in block.table.rows]
            yield "\n".join(f"- {name}: {fact}" if name else f"  {fact}" for name, fact in rows)
        case Paragraph(text, tone):
            yield f"**{_safe(text)}**" if tone in ("strong", "gone") else _safe(text)
        case Passage(text):
            yield "\n".join(f"    {escape(line)}" for line in text.split("\n"))
        case Formula(text):
            lines = text.replace("    ", "\n").split("\n")
            yield _fenced("\n".join(line.strip() for line in lines if line.strip()))
        case Checks(results):
            yield "\n".join(map(_check, results))
        case Table(columns, rows):
            yield _table(columns, rows)
        case Curves():
            yield _fenced("\n".join(line.plain for line in lines_of([block], Page())))
        case Legend(characters):
            yield from [_safe(" · ".join(signs)) for signs in [legend(characters)] if signs]
        case Note(text):
            yield _safe(text)
        case Fold(title, inner):
            yield f"{heading}# {_safe(title)}"
            yield markdown_of(inner, f"{heading}#")


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
