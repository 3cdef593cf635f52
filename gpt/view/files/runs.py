"""Runs for programs: JSON of each run with its options and losses; comparisons as JSON and CSV."""

from __future__ import annotations

from itertools import chain
from typing import Any

from gpt.storage.comparison import Comparison, Curve
from gpt.storage.manifest import Manifest
from gpt.view.records import csv_text, rounded
from gpt.view.terminal.training import result

SCHEMA = 1


def run_record(name: str, manifest: Manifest, curve: Curve) -> dict[str, Any]:
    """How a run ended, its options, its corpus, and its losses at each evaluation."""
    corpus = manifest.corpus
    losses = {"steps": curve.steps, "train": curve.train, "val": curve.val}
    losses |= {} if curve.gpt is None else {"gpt": curve.gpt}
    losses |= {} if curve.characters is None else {"val_characters": curve.characters}
    return {
        **result(name, manifest, ""),
        "options": {**vars(manifest.model), **vars(manifest.train)},
        "parameters": manifest.model.parameters(),
        "corpus": {
            "sources": list(corpus.sources),
            "characters": corpus.characters,
            "digest": corpus.digest,
        },
        "curve": {name: rounded(values) for name, values in losses.items()},
    }


def comparison_record(found: Comparison) -> dict[str, Any]:
    """recipes: see Comparison.records; differs: the options that differ between them; runs: every
    run alone.
    """
    entries = [entry for group in found.groups for entry in group.entries]
    return {
        "schema": SCHEMA,
        "differs": list(found.columns),
        "recipes": found.records(),
        "runs": [run_record(entry.name, entry.manifest, entry.curve) for entry in entries],
    }


def comparison_csv(found: Comparison) -> str:
    """A line for each group; its runs are separated by spaces, and unknown numbers are empty."""
    records = found.records()
    rows = ([*{**record, "runs": " ".join(record["runs"])}.values()] for record in records)
    return csv_text(chain([[*records[0]]], rows))
