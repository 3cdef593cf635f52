"""Lessons outside the terminal: a Markdown page, and records for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt.characters import escape
from gpt.explain.lesson import Lesson, Step, Table
from gpt.view.records import check_record, picked, rounded
from gpt.view.terminal.lesson import shape_of, texts_of

SCHEMA = 1
DIGITS = 4

INTRODUCTION = """# Attention, one idea at a time

Every number on this page is computed by `gptx explain`, and `gptx explain mine` shows the same
steps in a model that you trained. Written by `make lessons` from `gpt/explain/tutorials/`:
change the lessons, not the page.
"""


def lessons_markdown(lessons: Sequence[Lesson], digits: int = DIGITS, full: bool = False) -> str:
    """Lessons as Markdown, with all rows; many unnamed columns only if `full`.

    Several lessons have a title and a table of contents.
    """
    lines = [line for each in lessons for line in _chapter(each, digits, full)]
    if len(lessons) > 1:
        contents = (f"- [{each.name}](#{each.name}): {each.about}" for each in lessons)
        lines = [INTRODUCTION, *contents, "", *lines]
    return "\n".join(lines)


def lesson_record(lesson: Lesson, origin: Mapping[str, Any]) -> dict[str, Any]:
    """For programs: all numbers in full; null if not finite (masked)."""
    return {
        "schema": SCHEMA,
        "lesson": lesson.name,
        "about": lesson.about,
        "note": lesson.note,
        **origin,
        "steps": [_step_record(step) for step in lesson.steps],
    }


def _step_record(step: Step) -> dict[str, Any]:
    tables = [
        {
            "name": table.name,
            "shape": table.values.shape,
            **picked(table, "rows", "columns", "source"),
            "values": rounded(table.values),
        }
        for table in step.tables
    ]
    checks = [check_record(check) for check in step.checks]
    record = picked(step, "title", "text", "formula", "tables", "notice", "checks")
    return record | {"tables": tables, "checks": checks}


def _chapter(lesson: Lesson, digits: int, full: bool) -> Iterator[str]:
    yield f"## {lesson.name}\n\n{_safe(lesson.about)}\n"
    if lesson.note:
        yield f"{_safe(lesson.note)}\n"
    for number, step in enumerate(lesson.steps, 1):
        yield f"### {number}. {_safe(step.title)}\n\n{_safe(step.text)}\n"
        if step.formula:
            lines = step.formula.replace("    ", "\n").split("\n")
            formula = "\n".join(line.strip() for line in lines if line.strip())
            yield f"```text\n{formula}\n```\n"
        for table in step.tables:
            yield from _table(table, digits, full)
        if step.notice:
            yield f"{_safe(step.notice)}\n"
        for check in step.checks:
            if check.passed:
                within = f" (within {check.bound:.0e})" if check.bound else ""
                yield f"- ✓ {_safe(check.name)}{within}"
            else:
                found = f"error {check.error:.1g}, allowed {check.bound:.1g}"
                yield f"- ✗ {_safe(check.name)} ({found})"
        if step.checks:
            yield ""


def _table(table: Table, digits: int, full: bool) -> Iterator[str]:
    rows, headings, stack = texts_of(table, digits, full=full)
    columns = [" ".join(parts) for parts in zip(*headings, strict=True)]
    some = f", first {len(columns)} columns" if len(columns) < table.values.shape[-1] else ""
    yield f"**{_safe(table.name)}** {shape_of(table)}{some}\n"
    if table.source:
        yield f"from {_safe(table.source)}\n"
    for nth, matrix in enumerate(stack):
        corner = f"[{nth}]" if table.values.ndim == 3 else ""
        yield _row([corner, *columns])
        yield "|---|" + "---:|" * len(columns)
        for name, cells in zip(rows, matrix, strict=True):
            yield _row([name, *cells])
        yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_safe, cells)) + " |"


def _safe(text: str) -> str:
    """Text in which Markdown's special characters are escaped."""
    return "".join(f"\\{each}" if each in "|*_<[\\" else each for each in escape(text))
