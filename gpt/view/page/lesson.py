"""Lessons as a page to teach from: one step at a time, results to guess, numbers to change.

The numbers that a table's rule gives are hidden until the user has guessed them. The page computes
them when it opens, and again when the user changes numbers on which they depend.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpt.blocks import Block, Checks
from gpt.blocks import Table as Grid
from gpt.lessons.lesson import DIGITS, Lesson, Step, Table
from gpt.view.html import escape_html, html_of
from gpt.view.mathml import mathml_of
from gpt.view.page.document import PageKind, template, to_json
from gpt.view.page.packing import in_base64

LESSON = PageKind(
    "lesson",
    "lesson/lesson.js",
    ("tokens.css", "lesson/lesson.css"),
    body="lesson/lesson.html",
)
#: A citation in a text, as in "Vaswani et al. 2017".
SOURCE = r"(?:de )?[A-Z][\w’-]+(?: et al\.|(?:, [A-Z][\w’-]+)* & [A-Z][\w’-]+)? (?:1[6-9]|20)\d\d"
#: The page's tables in order, each with the numbers of the tables that its rule names.
Tables = Sequence[tuple[Table, Mapping[str, int]]]


def lesson_page(
    lessons: Sequence[Lesson],
    digits: int = DIGITS,
    full: bool = False,
    answers: bool = False,
    start: int = 1,
) -> str:
    """One or more lessons as an HTML page. full: show all rows and columns of tables. answers: show
    all results. start: the first step of the first lesson to show.
    """
    content, tables = list[str](), list[tuple[Table, Mapping[str, int]]]()
    for lesson in lessons:
        known, steps = dict[str, int](), list[str]()
        for step in lesson.steps:
            own = range(len(tables), len(tables) + len(step.tables))
            for number, table in zip(own, step.tables, strict=True):
                names = re.findall(r"[^\W\d]\w*", table.rule)
                tables.append((table, {each: known[each] for each in names if each in known}))
                known[table.key] = number
            steps.append(_step(step, own, tables, digits, full))
        content.append(_article(lesson, steps))
    used = {number for _, uses in tables for number in uses.values()}
    records = {
        number: {
            "shape": table.values.shape,
            "base64": in_base64(table.values.astype("<f8")),
            "digits": digits if table.digits is None else table.digits,
            "rule": rule_tree(table.rule) if table.rule else None,
            "uses": uses,
        }
        for number, (table, uses) in enumerate(tables)
        if table.rule or number in used
    }
    title = lessons[0].name if len(lessons) == 1 else "lessons"
    payload = to_json({"tables": records, "answers": answers, "start": start})
    return template(LESSON)(title, payload, "\n".join(content))


def rule_tree(rule: str | ast.AST) -> Any:
    """A rule in the form that rules.js computes: a number, the key of a table, or a list of a
    function's name and its operands; operators have Python's names. Raises SyntaxError, or
    ValueError for anything that rules do not allow.
    """
    match ast.parse(rule, mode="eval").body if isinstance(rule, str) else rule:
        case ast.Constant(value):
            return value
        case ast.Name("inf"):
            return ["inf"]
        case ast.Name(key):
            return key
        case ast.UnaryOp(operator, operand):
            return [type(operator).__name__, rule_tree(operand)]
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return [type(operator).__name__, rule_tree(left), rule_tree(right)]
        case ast.Call(ast.Name(name), operands):
            return [name, *map(rule_tree, operands)]
        case ast.Attribute(operand, "T"):
            return ["T", rule_tree(operand)]
        case ast.Subscript(operand, index):
            indices = index.elts if isinstance(index, ast.Tuple) else [index]
            return ["part", rule_tree(operand), *map(rule_tree, indices)]
        case ast.Slice(lower, upper, step):
            bounds = {"start": lower, "stop": upper, "step": step}
            return {name: ast.literal_eval(each) for name, each in bounds.items() if each}
        case unknown:
            raise ValueError(f"{ast.unparse(unknown)} is no rule")


def _article(lesson: Lesson, steps: Sequence[str]) -> str:
    """A lesson with the sources that it cites."""
    texts = " ".join(f"{step.text} {step.notice}" for step in lesson.steps)
    sources = " · ".join(sorted(set(re.findall(SOURCE, texts))))
    failed = f"A check failed: {', '.join(lesson.failed)}. Do not trust these numbers."
    return (
        f'<article data-lesson="{escape_html(lesson.name)}"><h1>{escape_html(lesson.name)}</h1>'
        f"<p>{escape_html(lesson.about)}</p><p>{escape_html(lesson.note)}</p>"
        f"{f'<p class=alarm role=alert>{escape_html(failed)}</p>' if lesson.failed else ''}"
        f"{''.join(steps)}<p class=sources>"
        f"{escape_html(f'Sources: {sources}') if sources else ''}</p>"
        "</article>"
    )


def _step(step: Step, own: Sequence[int], tables: Tables, digits: int, full: bool) -> str:
    """A step: its text, formulas, earlier tables that its rules use, and its own tables."""
    used = {number for each in own for number in tables[each][1].values()}
    shown = [(n, "earlier") for n in sorted(used - {*own})]
    shown += [(n, "result" if tables[n][0].rule else "given") for n in own]
    formulas = "".join(f"<div>{each}</div>" for each in mathml_of(step.formula))
    text = re.sub("`([^`]+)`", r"<code>\1</code>", escape_html(step.text))
    figures = "".join(_figure(n, tables[n][0], role, digits, full) for n, role in shown)
    notice = f"<p class=notice>{escape_html(step.notice)}</p>" if step.notice else ""
    return (
        f'<section><h2 tabindex="-1">{escape_html(step.title)}</h2><p>{text}</p>'
        f'<div class="formulas">{formulas}</div><div class="tables">{figures}</div>{notice}'
        f'<div class="checks">{html_of(Checks(step.checks))}</div></section>'
    )


def _figure(number: int, table: Table, role: str, digits: int, full: bool) -> str:
    """A table as HTML; each cell has its index among all numbers of the tensor."""
    order = np.arange(table.values.size).reshape(table.values.shape)
    places = replace(table, values=order, digits=0).blocks(0, full)[1:]
    parts = map(_block, table.blocks(digits, full)[1:], places)
    title = f"{escape_html(table.name)} <small>{table.shape}</small>"
    rule = f"<code>= {escape_html(table.rule)}</code>" if table.rule and role == "result" else ""
    return (
        f'<figure class="{role}" data-table="{number}" aria-label="{escape_html(table.name)}">'
        f'<figcaption>{title}{rule}</figcaption><div class="scroll">{"".join(parts)}</div></figure>'
    )


def _block(grid: Block, places: Block) -> str:
    """A note, or rows of cells; cells of rows that are left out have no place."""
    if not (isinstance(grid, Grid) and isinstance(places, Grid)):
        return html_of(grid)
    heads = "".join(f'<th scope="col"><bdi>{escape_html(c.title)}</bdi></th>' for c in grid.columns)
    rows = ""
    for (name, *cells), (_, *at) in zip(grid.rows, places.rows, strict=True):
        rows += f'<tr><th scope="row"><bdi>{escape_html(name.text)}</bdi></th>'
        for cell, place in zip(cells, at, strict=True):
            rows += f'<td data-at="{place.text}">' if place.text.isdigit() else "<td>"
            rows += f"{escape_html(cell.text)}</td>"
        rows += "</tr>"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
