"""Measures of heads as tables: all measures of all heads, or one measure as a grid."""

from __future__ import annotations

import numpy as np

from gpt.heads.measures import RULE, Measure, kinds
from gpt.heads.survey import Survey
from gpt.view.notebook.card import MOST_ROWS, Cell, card, decimal, note, shortened, table
from gpt.view.terminal.heads import CAVEAT, FIRST, NO_INDUCTION, ranked
from gpt.view.words import counted

#: Measures that are not shares of a row's weights: their cells have no background.
NO_SHARES = ("distance", "distance_later", "ablation")


def survey(found: Survey) -> str:
    """A row for each head, the most remarkable first, and one for a uniform head."""
    shown = [each for each in found.measures if each.name in FIRST]
    named, order = kinds(found.measures), ranked(found)
    rows: list[list[str | Cell]] = []
    for layer, head in order[:MOST_ROWS]:
        kind = named[layer][head]
        cells = [_cell(each, layer, head) for each in shown]
        rows.append([f"layer {layer} head {head}", Cell(kind or "–", "left"), *cells])
    uniform = (Cell(_number(each, each.uniform), "dim") for each in shown)
    rows.append([Cell("uniform", "left dim"), "", *uniform])
    headings = ["head", "kind", *(each.title for each in shown)]
    texts = [f"{each.title}: {each.explained}" for each in shown if each.explained]
    induction = any("induction" in row for row in named)
    remarks = "".join(note(text) for text in ("; ".join(texts), RULE))
    return card(
        "Heads",
        f"{len(order)} heads · {found.measured}",
        table(headings, rows, left=(0, 1)),
        shortened(len(order), "heads"),
        f"<details><summary>What the columns mean</summary>{remarks}</details>",
        note("" if induction else NO_INDUCTION),
        note(CAVEAT),
    )


def measure(found: Measure) -> str:
    """A grid: layers are rows, heads are columns."""
    layers, heads = found.values.shape
    rows: list[list[str | Cell]] = [
        [f"layer {layer}", *(_cell(found, layer, head) for head in range(heads))]
        for layer in range(min(layers, MOST_ROWS))
    ]
    headings = ["", *(f"head {head}" for head in range(heads))]
    uniform = f"a head of uniform attention has {_number(found, found.uniform)}"
    known = uniform if found.uniform == found.uniform else ""
    facts = f"{layers} layers × {heads} heads · {counted(found.windows, 'text')}"
    return card(found.title, facts, table(headings, rows), note(found.explained), note(known))


def _cell(found: Measure, layer: int, head: int) -> Cell:
    value, error = float(found.values[layer, head]), float(found.errors[layer, head])
    hint = "" if np.isnan(error) else f"standard error {decimal(error, 4)}"
    text = _number(found, value)
    if found.name in NO_SHARES or np.isnan(value):
        return Cell(text, hint=hint)
    return Cell(text, share=value, hint=hint)


def _number(found: Measure, value: float) -> str:
    return decimal(value, 4 if found.name == "ablation" else 2)
