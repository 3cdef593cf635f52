"""A lesson, step by step; tables of many rows or columns show the first and the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gpt.checks import Check
from gpt.explain.lesson import Lesson, Step, Table
from gpt.view.notebook.card import card, note, safe, table
from gpt.view.terminal.lesson import digits_of, gap, shape_of, span, texts_of

DIGITS = 3
MOST, SHOWN = 12, 10  # rows or columns shown of a table with more than MOST
SLICES = 4  # slices that are shown of a table of three axes


def lesson(found: Lesson) -> str:
    """Every step with its sentences, formula, tables, what to notice and checks."""
    steps = "".join(
        f"<details{' open' if number == 1 else ''}><summary>{number}. {safe(step.title)}</summary>"
        f"{''.join(_step(step))}</details>"
        for number, step in enumerate(found.steps, 1)
    )
    failed = f"FAILED checks: {', '.join(found.failed)}" if found.failed else ""
    about = f"{found.about} · {len(found.steps)} steps"
    return card(f"Lesson {found.name}", about, note(found.note), steps, alarm=failed)


def table_card(found: Table) -> str:
    """One table."""
    return card(found.name, shape_of(found), *_table(found))


def _step(step: Step) -> Iterator[str]:
    yield f"<p>{safe(step.text)}</p>"
    if step.formula:
        yield f"<pre>{safe(step.formula.replace('    ', chr(10)))}</pre>"
    for each in step.tables:
        yield f"<p><b>{safe(each.name)}</b> {safe(shape_of(each))}</p>"
        yield from _table(each)
    if step.notice:
        yield f"<p>→ {safe(step.notice)}</p>"
    yield from map(_check, step.checks)


def _check(check: Check) -> str:
    if check.passed:
        return note(f"✓ {check.name}")
    failed = f"✗ {check.name}: error {check.error:.1g}, allowed {check.bound:.1g}"
    return f'<p class="alarm">{safe(failed)}</p>'


def _table(found: Table) -> Iterator[str]:
    values: Any = np.atleast_2d(found.values)
    height, width = values.shape[-2:]
    rows, row_note = _kept(height, "rows")
    columns, column_note = _kept(width, "columns")
    # Names of all rows and headings of all columns, from one column and one row.
    names, _, _ = texts_of(replace(found, values=values[..., :1], columns=()), DIGITS)
    numbered = found.numbered and found.rows in ((), found.columns)
    one = replace(found, values=values[..., :1, :], rows=(), numbered=numbered)
    top = [" ".join(parts) for parts in zip(*texts_of(one, DIGITS, full=True)[1], strict=True)]
    digits = DIGITS if found.digits is None else found.digits
    if found.source:
        yield note(f"from {found.source}")
    stack = values.reshape(-1, height, width)
    for number, matrix in enumerate(stack[:SLICES]):
        corner = f"[{number}]" if values.ndim == 3 else ""
        lines = [
            [
                names[row] if found.values.ndim > 1 else "",
                *(digits_of(matrix[row, column].item(), digits) for column in columns),
            ]
            for row in rows
        ]
        yield table([corner, *(top[column] for column in columns)], lines)
    left_out = [row_note, column_note]
    left_out += [f"slices from {SLICES} on"] if len(stack) > SLICES else []
    if texts := list(filter(None, left_out)):
        yield note(f"left out: {', '.join(texts)}")


def _kept(count: int, what: str) -> tuple[list[int], str]:
    """The indices to show, and the name of those left out."""
    if count <= MOST:
        return list(range(count)), ""
    first, last = gap(count, SHOWN)
    return [*range(first), *range(last, count)], f"{what} {span(first, last)}"
