"""Attention maps for programs: JSON, CSV, NPZ. Numbers keep float32's nine digits."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, get_args

import numpy as np

from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Stages
from gpt.view.records import check_record, rounded
from gpt.view.selection import Look, Selection

SCHEMA = 1

Figure = Literal["svg", "png", "pdf"]
Form = Literal["text", "json", "csv", "npz", "html", Figure]
#: Ending of a file -> what is written into it.
FORMS: dict[str, Form] = {"": "text", ".txt": "text"}
FORMS |= {f".{form}": form for form in get_args(Form) if form != "text"}


def record(
    attention: AttentionMap, selection: Selection, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """For JSON; `values` is [panel][query][key or dimension], null where masked."""
    panels = selection.panels(attention)
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
        "values": [rounded(panel.values.tolist()) for panel in panels],
        "checks": [check_record(check) for check in attention.checks],
    }


def to_json(records: Sequence[Mapping[str, Any]]) -> str:
    """One record as it is; several under "compared"."""
    document = records[0] if len(records) == 1 else {"schema": SCHEMA, "compared": list(records)}
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(looks: Sequence[Look]) -> str:
    """A line a number; of several looks, the checkpoint first.

    Weights above the diagonal, which are all 0, are left out.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    compared = len(looks) > 1
    writer.writerow([*["checkpoint"] * compared, *_header(looks[0].selection)])
    for look in looks:
        for row in _rows(look.attention, look.selection):
            writer.writerow([*[look.name] * compared, *row])
    return buffer.getvalue()


def to_npz(attentions: Sequence[AttentionMap]) -> bytes:
    """All stages of all layers: q, k, v, context (L, H, T, D); scores … weights (L, H, T, T);
    stream, concat, proj, residual, output (L, T, C); ids and code points (T,). Nothing pickled.

    Of two maps the names begin with a_ and b_.
    """
    prefixes = ("",) if len(attentions) == 1 else ("a_", "b_")
    arrays = {
        f"{prefix}{name}": array
        for prefix, attention in zip(prefixes, attentions, strict=True)
        for name, array in _arrays(attention).items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _header(selection: Selection) -> list[str]:
    value_name = "weight" if selection.stage == "weights" else selection.stage
    if selection.square:
        return ["layer", "head", "q_pos", "q_char", "k_pos", "k_char", value_name]
    return ["layer", "head", "pos", "char", "dimension", value_name]


def _rows(attention: AttentionMap, selection: Selection) -> Iterator[list[Any]]:
    for panel in selection.panels(attention):
        for query, values in zip(selection.queries, panel.values.tolist(), strict=True):
            where = [panel.layer, panel.head, query, attention.text[query]]
            for column, value in enumerate(values):
                key = selection.keys[column] if selection.square else column
                if selection.square and selection.stage == "weights" and key > query:
                    continue
                name = [attention.text[key]] if selection.square else []
                yield [*where, key, *name, float(f"{value:.9g}")]


def _arrays(attention: AttentionMap) -> dict[str, Any]:
    arrays = {
        field.name: np.stack([getattr(layer, field.name) for layer in attention.layers])
        for field in fields(Stages)
    }
    points = np.array([ord(character) for character in attention.text], np.uint32)
    # The text itself is for people: numpy cuts characters of code 0 from its end.
    text = np.array(attention.text)
    return {"text": text, "codes": points, "ids": attention.ids, **arrays}
