"""Attention maps for programs: JSON, CSV, NPZ. Numbers keep float32's nine digits."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gpt.errors import ConfigError
from gpt.reading.inspector import AttentionMap
from gpt.reading.reader import Stages
from gpt.view.selection import Selection

SCHEMA = 1


#: Ending of a file -> what is written into it.
FORMS: dict[str, Literal["text", "json", "csv", "npz"]] = {
    "": "text",
    ".txt": "text",
    ".json": "json",
    ".csv": "csv",
    ".npz": "npz",
}


def form_of(output: Path | None) -> Literal["text", "json", "csv", "npz"]:
    """What to write into a file of this name. Raises ConfigError for an ending it does not know."""
    ending = output.suffix.lower() if output else ""
    if ending not in FORMS:
        known = ", ".join(filter(None, FORMS))
        raise ConfigError(
            f"--output: {ending} is not one of {known}; choose one, or name the --format"
        )
    return FORMS[ending]


def to_json(attention: AttentionMap, selection: Selection, origin: Mapping[str, Any]) -> str:
    """One object; `values` is [panel][query][key or dimension], null where masked."""
    panels = selection.panels(attention)
    document = {
        "schema": SCHEMA,
        **origin,
        "text": attention.text,
        "ids": attention.ids.tolist(),
        "stage": selection.stage,
        "axes": ["panel", "query", "key" if selection.square else "dimension"],
        "panels": [{"layer": panel.layer, "head": panel.head} for panel in panels],
        "queries": list(selection.queries),
        "keys": list(selection.keys) if selection.square else None,
        "values": [[[_plain(v) for v in row] for row in p.values.tolist()] for p in panels],
        "checks": [
            {"name": c.name, "error": c.error, "bound": c.bound, "passed": c.passed}
            for c in attention.checks
        ],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def to_csv(attention: AttentionMap, selection: Selection) -> str:
    """A line a number. Weights above the diagonal, which are all 0, are left out."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    value_name = "weight" if selection.stage == "weights" else selection.stage
    if selection.square:
        writer.writerow(["layer", "head", "q_pos", "q_char", "k_pos", "k_char", value_name])
    else:
        writer.writerow(["layer", "head", "pos", "char", "dimension", value_name])
    for panel in selection.panels(attention):
        for query, values in zip(selection.queries, panel.values.tolist(), strict=True):
            where = [panel.layer, panel.head, query, attention.text[query]]
            for column, value in enumerate(values):
                key = selection.keys[column] if selection.square else column
                if selection.square and selection.stage == "weights" and key > query:
                    continue
                name = [attention.text[key]] if selection.square else []
                writer.writerow([*where, key, *name, float(f"{value:.9g}")])
    return buffer.getvalue()


def to_npz(attention: AttentionMap) -> bytes:
    """All stages of all layers: q, k, v, context (L, H, T, D); scores … weights (L, H, T, T);
    stream, concat, proj, residual, output (L, T, C); ids and code points (T,). Nothing pickled."""
    arrays: dict[str, Any] = {
        field.name: np.stack([getattr(layer, field.name) for layer in attention.layers])
        for field in fields(Stages)
    }
    points = np.array([ord(character) for character in attention.text], np.uint32)
    buffer = io.BytesIO()
    # The text itself is for people: numpy cuts characters of code 0 from its end.
    text = np.array(attention.text)
    np.savez_compressed(buffer, text=text, codes=points, ids=attention.ids, **arrays)
    return buffer.getvalue()


def _plain(value: float) -> float | None:
    return None if math.isinf(value) else float(f"{value:.9g}")
