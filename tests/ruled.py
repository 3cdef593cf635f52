"""Evaluates rules of lessons with Python's own parser and numpy."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gpt.lessons.lesson import Lesson, Table


def softmax(x: Any) -> Any:
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def before(p: Any, amounts: Any) -> Any:
    """For each number, the amounts of those that are larger, or equal and earlier."""
    order = np.argsort(-p, kind="stable")
    sums = np.empty_like(p)
    sums[order] = np.cumsum(amounts[order]) - amounts[order]
    return sums


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "log", "log2", "sqrt", "abs", "sin", "cos")},
    "softmax": softmax,
    "sum": lambda x: x.sum(axis=-1),
    "max": lambda x: x.max(axis=-1),
    "cumsum": lambda x: x.cumsum(axis=-1),
    "where": np.where,
    "range": lambda n: np.arange(float(n)),
    "causal": lambda x: np.where(np.tri(*x.shape[-2:]) > 0, x, -np.inf),
    "concat": lambda *xs: np.concatenate(xs, axis=-1),
    "above": lambda *xs: np.concatenate(xs, axis=-2),
    "stack": lambda *xs: np.stack(xs),
    "columns": lambda *xs: np.stack(xs, axis=-1),
    "interleave": lambda x, y: np.stack((x, y), axis=-1).reshape(*x.shape[:-1], -1),
    "before": before,
}
OPERATORS: dict[type, Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.Div: operator.truediv, ast.MatMult: operator.matmul, ast.USub: operator.neg},
    **{ast.Lt: operator.lt, ast.GtE: operator.ge, ast.Eq: operator.eq},
}


def evaluate(rule: str, tables: Mapping[str, Any]) -> Any:
    """A rule's numbers. tables: key -> numbers."""

    def value(node: Any) -> Any:
        match node:
            case ast.Constant(each):
                return each
            case ast.Name("inf"):
                return np.inf
            case ast.Name(name):
                return tables[name]
            case ast.BinOp(left, operation, right):
                return OPERATORS[type(operation)](value(left), value(right))
            case ast.UnaryOp(operation, operand):
                return OPERATORS[type(operation)](value(operand))
            case ast.Compare(left, [operation], [right]):
                return OPERATORS[type(operation)](value(left), value(right))
            case ast.Call(ast.Name(name), arguments):
                return FUNCTIONS[name](*map(value, arguments))
            case ast.Attribute(of, "T"):
                return np.swapaxes(value(of), -1, -2)
            case ast.Subscript(of, index):
                return value(of)[value(index)]
            case ast.Tuple(parts):
                return tuple(map(value, parts))
            case ast.Slice(low, high, step):
                return slice(*(None if each is None else value(each) for each in (low, high, step)))
            case None:
                return None
        raise AssertionError(ast.dump(node))

    with np.errstate(all="ignore"):
        return value(ast.parse(rule, mode="eval").body)


def ruled(lesson: Lesson) -> Iterator[tuple[Table, Mapping[str, Any]]]:
    """Each table with a rule, and the tables before it by their keys, of equal ones the last."""
    before: dict[str, Any] = {}
    for table in (table for step in lesson.steps for table in step.tables):
        if table.rule:
            yield table, dict(before)
        before[table.key] = table.values
