"""Attention maps for programs: JSON, CSV, NPZ. Numbers keep float32's nine digits."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from string import ascii_lowercase
from typing import Any, Literal, get_args

import numpy as np

from gpt import characters
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.view.records import csv_text, round_floats
from gpt.view.selection import Panel, Selection
from gpt.vocabulary import code_points, join_symbols

SCHEMA = 1

Figure = Literal["svg", "png", "pdf"]
Form = Literal["text", "json", "csv", "npz", "html", Figure]
#: Ending of a file -> format.
FORMS: dict[str, Form] = {"": "text", ".txt": "text"}
FORMS |= {f".{form}": form for form in get_args(Form) if form != "text"}


def selection_record(selection: Selection, origin: Mapping[str, Any]) -> dict[str, Any]:
    """A selection for JSON; `values` is [panel][query][key or dimension], null where masked."""
    attention, panels = selection.attention, selection.panels()
    of_pair: dict[str, Any] = {}
    if attention.source is not None:
        of_pair = {"attention": attention.kind, "columns": attention.columns}
        of_pair |= {"column_ids": attention.column_ids.tolist()}
        if attention.kind == "cross":
            of_pair["alignment"] = attention.alignment and round_floats(attention.alignment.record)
    return {
        "schema": SCHEMA,
        **origin,
        "text": attention.text,
        **of_pair,
        "ids": attention.ids.tolist(),
        "stage": selection.stage,
        "axes": ["panel", "query", "key" if selection.square else "dimension"],
        "panels": [{"layer": panel.layer, "head": panel.head} for panel in panels],
        "queries": list(selection.queries),
        "keys": list(selection.keys) if selection.square else None,
        "values": [round_floats(panel.values) for panel in panels],
        "checks": [round_floats(check.record) for check in attention.checks],
    }


def to_json(records: Sequence[Mapping[str, Any]]) -> str:
    """JSON text: a single record as it is, several under "compared"."""
    document = records[0] if len(records) == 1 else {"schema": SCHEMA, "compared": list(records)}
    return characters.to_json(document) + "\n"


def to_csv(selections: Sequence[Selection]) -> str:
    """A CSV text of `table_of`."""
    names, rows = table_of(selections)
    return csv_text(chain([names], rows))


def table_of(selections: Sequence[Selection]) -> tuple[list[str], Iterator[list[Any]]]:
    """The names of the columns, and a row for each number; with several selections, the
    checkpoint's name comes first.

    Weights above the diagonal, which are all 0, are left out.
    """
    compared = len(selections) > 1
    square, stage = selections[0].square, selections[0].stage
    names = ["q_pos", "q_char", "k_pos", "k_char"] if square else ["pos", "char", "dimension"]
    value_name = "weight" if stage == "weights" else stage
    rows = (
        [*[selection.name] * compared, *row]
        for selection in selections
        for panel in selection.panels()
        for row in _rows(panel)
    )
    return [*["checkpoint"] * compared, "layer", "head", *names, value_name], rows


def to_npz(attentions: Sequence[AttentionMap]) -> bytes:
    """All stages of all layers, as AttentionMap.to_numpy gives them, and the text with its code
    points, codes (T,); for cross-attention also columns and column_codes (S,). A text with symbols
    of several characters is an array of symbols, (T,), and its codes are those of the text with
    spaces between the symbols. Nothing is pickled.

    With several maps, at most 26, the names begin with a_, b_ and so on. Raises ConfigError for
    more maps.
    """
    arrays: dict[str, Any] = {}
    if (count := len(attentions)) > len(ascii_lowercase):
        raise ConfigError("format", f"npz contains at most 26 checkpoints, not {count}")
    prefixes = [""] if count == 1 else [f"{letter}_" for letter in ascii_lowercase]
    for prefix, attention in zip(prefixes, attentions, strict=False):
        # Programs need the code points, as numpy cuts characters with code 0 from the end of a
        # text.
        texts = {"text": attention.text}
        if attention.kind == "cross":
            texts["columns"] = attention.columns
        for name, text in texts.items():
            arrays[prefix + name] = np.array(text)
            codes = f"{prefix}{'codes' if name == 'text' else 'column_codes'}"
            arrays[codes] = code_points(join_symbols(text))
        arrays |= {prefix + name: each for name, each in attention.to_numpy().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _rows(panel: Panel) -> Iterator[list[Any]]:
    selection, hidden = panel.selection, panel.hidden.tolist()
    for query, values, masked in zip(selection.queries, panel.values.tolist(), hidden, strict=True):
        for column, value, left_out in zip(panel.columns, values, masked, strict=True):
            if not left_out:
                name = [selection.columns[column]] if selection.square else []
                where = [panel.layer, panel.head, query, selection.rows[query], column, *name]
                yield [*where, float(f"{value:.9g}")]
