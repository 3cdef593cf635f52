"""Measures of heads as tables: all measures of all heads, or one measure as a grid."""

from __future__ import annotations

import base64

import numpy as np

from gpt.errors import ConfigError
from gpt.heads.kinds import kinds, measure_of
from gpt.heads.measures import Measure
from gpt.heads.survey import Development, Survey
from gpt.view.notebook.card import MOST_ROWS, Cell, card, decimal, note, shortened, table
from gpt.view.terminal.heads import CAVEAT, NO_INDUCTION, ranked, shown_measures
from gpt.words import counted, layers_and_heads

#: Measures that are not shares of a row's weights: their cells have no background.
NO_SHARES = ("distance", "distance_later", "ablation")
MOST_STEPS = 8  # columns of values over training
MOST_FIGURE = 250_000  # characters of an image


def survey(found: Survey) -> str:
    """A row for each head, the most remarkable first, and one for a uniform head."""
    shown = [each for one in shown_measures(found) for each in (one, *one.parts)]
    named, order = kinds(found.measures), ranked(found)
    rows: list[list[str | Cell]] = []
    for layer, head in order[:MOST_ROWS]:
        kind = named[layer][head]
        cells = [_cell(each, layer, head) for each in shown]
        rows.append([f"layer {layer} head {head}", Cell(kind or "–", "left"), *cells])
    uniform = (Cell(_uniform(each), "dim") for each in shown)
    rows.append([Cell("uniform", "left dim"), "", *uniform])
    headings = ["head", "kind", *(each.title for each in shown)]
    texts = [f"{each.title}: {each.explained}" for each in shown if each.explained]
    induction = any("induction" in row for row in named)
    remarks = "".join(note(text) for text in ("; ".join(texts), found.rule))
    return card(
        found.title.capitalize(),
        f"{len(order)} heads · {found.measured}",
        table(headings, rows, left=(0, 1)),
        shortened(len(order), "heads"),
        f"<details><summary>What the columns mean</summary>{remarks}</details>",
        note("" if induction or found.kind else NO_INDUCTION),
        note(CAVEAT),
    )


def development(found: Development) -> str:
    """The figure of the measures over the steps, if matplotlib is installed, and a row for each
    head: its kind, since which step, and the measure that names it, at MOST_STEPS steps or fewer.
    """
    shown = np.unique(np.linspace(0, len(found.steps) - 1, MOST_STEPS).round().astype(int))
    since, rows = found.named_since(), list[list[str | Cell]]()
    order = [place for place in ranked(found.surveys[-1]) if found.kinds[-1][place]][:MOST_ROWS]
    for place in order:
        kind = str(found.kinds[-1][place])
        values = found.of(measure_of(kind, found.measures).name)
        cells = [Cell(decimal(each, 2), share=each) for each in values[shown, *place].tolist()]
        named: list[str | Cell] = [Cell(kind, "left"), f"{since[place]:,}"]
        rows.append([f"layer {place[0]} head {place[1]}", *named, *cells])
    headings = ["head", "kind", "since step", *(f"{step:,}" for step in found.steps[shown])]
    steps = f"{len(found.steps)} steps, {found.steps[0]:,} to {found.steps[-1]:,}"
    return card(
        "Heads over training",
        f"{steps} · {found.measured}",
        _figure(found),
        table(headings, rows, left=(0, 1)) if rows else note("no head has a name"),
        note("the measure that gives a head its name, at each step" if rows else ""),
        note(found.surveys[-1].rule),
    )


def _figure(found: Development) -> str:
    """The figure as an image; without matplotlib a line that says what is missing."""
    try:
        from gpt.view.figure.development import to_figure

        drawn = base64.b64encode(to_figure(found, "svg")).decode()
    except (ImportError, ConfigError):
        return note("pip install matplotlib draws the measures over the steps here")
    if len(drawn) > MOST_FIGURE:
        return note(".figure(path) draws the measures over the steps")
    described = 'alt="measures of heads over the steps of the training" style="max-width: 100%"'
    return f'<img {described} src="data:image/svg+xml;base64,{drawn}"/>'


def measure(found: Measure) -> str:
    """A grid: layers are rows, heads are columns."""
    layers, heads = found.values.shape
    rows: list[list[str | Cell]] = [
        [f"layer {layer}", *(_cell(found, layer, head) for head in range(heads))]
        for layer in range(min(layers, MOST_ROWS))
    ]
    headings = ["", *(f"head {head}" for head in range(heads))]
    known = (
        "" if np.isnan(found.uniform).all() else f"a head of uniform attention: {_uniform(found)}"
    )
    facts = f"{layers_and_heads(layers, heads)} · {counted(found.windows, 'text')}"
    return card(found.title, facts, table(headings, rows), note(found.explained), note(known))


def _cell(found: Measure, layer: int, head: int) -> Cell:
    value, error = float(found.values[layer, head]), float(found.errors[layer, head])
    hint = "" if np.isnan(error) else f"standard error {decimal(error, 4)}"
    text = _number(found, value)
    if found.offsets is not None:
        even = _number(found, found.uniform_of(layer, head))
        text = f"{found.offsets[layer, head]}: {text}/{even}"
    if found.name in NO_SHARES or np.isnan(value):
        return Cell(text, hint=hint)
    return Cell(text, share=value, hint=hint)


def _uniform(found: Measure) -> str:
    return "/" if found.offsets is not None else _number(found, found.uniform_of(0, 0))


def _number(found: Measure, value: float) -> str:
    return decimal(value, 4 if found.name == "ablation" else 2)
