"""Attention maps for programs: JSON, CSV, NPZ. Numbers keep float32's nine digits."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from gpt import characters
from gpt.devices import require_memory
from gpt.heads.attention_map import AttentionMap
from gpt.view.records import csv_text, round_floats
from gpt.view.selection import Panel, Selection
from gpt.vocabulary import code_points

SCHEMA = 1

Figure = Literal["svg", "png", "pdf"]
FileForm = Literal["json", "csv", "npz", "html", Figure]
Form = Literal["text", FileForm]
#: Ending of a file -> format.
FORMS: dict[str, Form] = {"": "text", ".txt": "text"}
FORMS |= {f".{form}": form for form in get_args(Form) if form != "text"}

#: Bytes of memory for each number of a matrix that an output shows; for npz: for each number of all
#: matrices (benchmarks/LOG.md).
BYTES_PER_NUMBER = {"text": 80, "json": 70, "csv": 90, "npz": 37}
BYTES_PER_NUMBER |= dict.fromkeys(get_args(Figure), 130)


def require_memory_for(selection: Selection, form: Form) -> None:
    """Raises OutOfMemory if an output of this selection does not fit in memory; a page contains the
    model and no matrix.
    """
    if form == "html":
        return
    layers = selection.attention.layers
    every = sum(layer.weights.size for layer in layers)
    panels = len(selection.layers) * len(selection.heads)
    shown = panels * len(selection.queries) * len(selection.keys)
    numbers = every if form == "npz" else shown
    need, longest = numbers * BYTES_PER_NUMBER[form], len(selection.text)
    require_memory("writing", longest, lambda length: need * (length / longest) ** 2)


def selection_record(selection: Selection, origin: Mapping[str, Any]) -> dict[str, Any]:
    """A selection for JSON; `values` is [panel][query][key or dimension], null where masked."""
    attention, panels = selection.attention, selection.panels()
    return {
        "schema": SCHEMA,
        **origin,
        "text": attention.text,
        "ids": attention.ids.tolist(),
        "stage": selection.stage,
        "axes": ["panel", "query", "key" if selection.square else "dimension"],
        "panels": [{"layer": panel.layer, "head": panel.head} for panel in panels],
        "queries": list(selection.queries),
        "keys": list(selection.keys) if selection.square else None,
        "values": [round_floats(panel.values) for panel in panels],
        "checks": [round_floats(check.record) for check in attention.checks_of(selection.stage)],
    }


def to_json(record: Mapping[str, Any]) -> str:
    """A record as JSON text."""
    return characters.to_json(record) + "\n"


def to_csv(selection: Selection) -> str:
    """A CSV text of `table_of`."""
    names, rows = table_of(selection)
    return csv_text(chain([names], rows))


def table_of(selection: Selection) -> tuple[list[str], Iterator[list[Any]]]:
    """The names of the columns, and a row for each number.

    Weights above the diagonal, which are all 0, are left out.
    """
    places = ["pos", "char", "dimension"]
    if selection.square:
        places = ["q_pos", "q_char", "k_pos", "k_char"]
    value_name = "weight" if selection.stage == "weights" else selection.stage
    rows = (row for panel in selection.panels() for row in _rows(panel))
    return ["layer", "head", *places, value_name], rows


def to_npz(attention: AttentionMap) -> bytes:
    """All stages of all layers, as AttentionMap.to_numpy gives them, and the text with its code
    points, codes (T,). Nothing is pickled.
    """
    arrays: dict[str, Any] = {
        "text": np.array(attention.text),
        # numpy cuts characters with code 0 from the end of a text; code points stay.
        "codes": code_points(attention.text),
        **attention.to_numpy(),
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _rows(panel: Panel) -> Iterator[list[Any]]:
    selection, hidden = panel.selection, panel.hidden.tolist()
    for query, values, masked in zip(selection.queries, panel.values.tolist(), hidden, strict=True):
        for column, value, left_out in zip(panel.columns, values, masked, strict=True):
            if not left_out:
                name = [selection.text[column]] if selection.square else []
                where = [panel.layer, panel.head, query, selection.text[query], column, *name]
                yield [*where, float(f"{value:.9g}")]
