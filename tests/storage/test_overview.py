"""One run and the list of runs: facts, tables that fit any width, escaped names, rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import shown
from manifests import METRICS, NASTY, in_part, manifest

from gpt.config import ModelConfig
from gpt.config.fields import options_of
from gpt.storage.curves import Curve
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.overview import (
    Overview,
    RunTable,
    corpus_facts,
    model_facts,
    outcome_record,
    outlook_of,
    quote_some,
)
from gpt.storage.run import Run
from gpt.storage.runs import read_manifests

RUN = Run(Path("runs/tale-1"))


def table(*found: Manifest, run: Run = RUN) -> RunTable:
    return RunTable(tuple((run, each) for each in found))


def overview(found: Manifest, *texts: str) -> Overview:
    steps, train, val = (
        np.array([each[name] for each in METRICS]) for name in ("step", "train_loss", "val_loss")
    )
    curve = Curve("tale-1", steps.astype(int), train, val, np.full(3, 9), 9)
    samples = zip((6, 12, 300, 900, 1800), texts, strict=False)
    return Overview("tale-1", found, curve, tuple({"step": n, "text": text} for n, text in samples))


def test_the_list_has_a_line_for_each_run_and_marks_the_newest(fresh_run: Run) -> None:
    lines = shown(RunTable(((RUN, manifest()), (fresh_run, manifest(elapsed=121.0)))), 90)
    assert lines[0] == "2 runs"
    assert lines[2].split() == ["run", "saved", "trained", "loss", "counting", "text"]
    assert lines[3].split() == ["tale-1", "0", "s", "2.2500", "2.5000", "shakespeare.txt"]
    assert lines[4].startswith("tiny (newest)")
    assert "2 min 1 s" in lines[4]
    assert shown(RunTable(()))[-1] == "train one: gptx train"
    assert [run.name for run in table(manifest())] == ["tale-1"]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({}, "2.2500 nats a character at step 12, 0.2500 better than counting (2.5000)"),
        ({"best_loss": 2.6}, "0.1000 worse than counting (2.5000)"),
        ({"best_loss": 2.5}, "as good as counting (2.5000)"),
        ({"baseline": None}, "2.2500 nats a character at step 12"),
        ({"best_loss": None}, "not evaluated yet"),
        ({"imported": "nanoGPT"}, ""),
    ],
)
def test_a_run_says_how_good_it_is(changes: dict[str, Any], fact: str) -> None:
    assert overview(manifest(**changes)).facts()["loss"].endswith(fact)


def test_a_run_fits_one_screen_with_three_of_its_samples() -> None:
    lines = shown(overview(manifest(), "one\ntwo", "b", "c", "d", "last " * 99), 80)
    assert len(lines) <= 24
    assert lines[0] == "tale-1 · step 1,800 of 2,000 · 0 s"
    assert sum("│" in line for line in lines) == 10
    rows = [
        line.split(maxsplit=2) for line in lines[lines.index("") :] if line[:1] in " 0123456789"
    ]
    assert ["6", "2.7500", "one two"] in rows
    assert [row[0] for row in rows[-3:]] == ["6", "300", "1,800"]
    assert rows[-1][2].endswith("…")


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [20, 40, 80, None])
def test_list_run_and_options_fit_the_page_and_escape_names(
    width: int | None, ascii_only: bool
) -> None:
    named = manifest(corpus=CorpusId("0" * 64, 9, (NASTY,)))
    lines = shown(table(named, manifest(best_loss=None)), width, ascii_only)
    assert any("2.2500" in line for line in lines)
    shown(overview(manifest(best_loss=None, best_step=None)), width, ascii_only)
    shown(overview(named, f"\n{NASTY}\n\tnew"), width, ascii_only)
    lines = shown(overview(named), width, ascii_only, all=True)
    assert all(
        any(line.startswith(name[:20]) for line in lines)
        for name in (*options_of(ModelConfig), "learning_rate")
    )


def test_damaged_run_is_listed_beside_readable_ones(fresh_run: Run, tmp_path: Path) -> None:
    torn = Run(tmp_path / "checkpoints" / "torn")
    (torn.path / "step-00000001").mkdir(parents=True)
    (torn.path / "step-00000001" / "manifest.json").write_text("{")
    rows, problems = read_manifests([fresh_run, torn])
    assert [(run.name, found.step) for run, found in rows] == [("tiny", 12)]
    assert len(problems) == 1
    assert "torn" in problems[0]


def test_options_of_an_imported_run_are_those_of_the_model() -> None:
    facts = overview(manifest(imported="nanoGPT")).facts(all=True)
    assert facts["n_layer"] == "4 · Transformer blocks."
    assert "learning_rate" not in facts


def test_a_model_and_a_text_in_words() -> None:
    small = ModelConfig(vocab_size=65)
    assert model_facts(small) == "0.80 M parameters: 4 layers × 4 heads × 32, context 64"
    counting = model_facts(ModelConfig(vocab_size=65, counting=8))
    assert counting.endswith("context 64, counting of up to 8 characters")
    text = CorpusId("0" * 64, 1_115_394, tuple("abcde"))
    assert corpus_facts(text, small) == "a, b, c and 2 more: 1,115,394 characters, 65 different"
    assert quote_some("\n\x1b") == "'⏎' '␛'"
    assert quote_some("x" * 15).endswith(" and 3 more")


def test_a_run_that_stopped_improving_says_so() -> None:
    assert outlook_of(manifest()) == ""
    said = "no better since step 12: more text helps more than more time"
    assert outlook_of(manifest(since_best=2)) == said


def test_outcome_has_numbers_for_programs() -> None:
    assert outcome_record("tale-1", manifest()) == {
        "run": "tale-1",
        "step": 1800,
        "best_step": 12,
        "val_nats": 2.25,
        "val_bits": pytest.approx(2.25 / math.log(2)),
        "val_characters": 111_539,
        "val_split": 111_539,
        "gpt_nats": None,
        "parent": None,
        "seconds": 130.0,
        "elapsed": 0.0,
        "minutes": None,
        "counting": {
            "order": 2,
            "nats": 2.5,
            "losses": (3.3, 2.5, 2.6),
            "counted": 1_003_854,
            "scored": 111_539,
            "difference": -0.25,
            "same_characters": True,
        },
    }
    part = outcome_record("tale-1", in_part())
    assert (part["val_nats"], part["val_characters"], part["val_split"]) == (2.25, 19_968, 111_539)
    assert (part["elapsed"], part["minutes"]) == (121.0, 2.0)
    whole = outcome_record("tale-1", in_part(final_loss=2.375, final_characters=111_539))
    assert (whole["val_nats"], whole["val_characters"]) == (2.375, 111_539)
    unevaluated = outcome_record("tale-1", manifest(best_loss=None, best_step=None))
    assert unevaluated["val_nats"] is unevaluated["val_bits"] is None
    assert outcome_record("tale-1", manifest(baseline=None))["counting"] is None


def test_rows_of_the_list_are_outcomes_and_those_of_a_run_its_evaluations() -> None:
    rows = table(manifest(val_characters=0), in_part()).rows
    assert [row["val_characters"] for row in rows] == [None, 19_968]
    found = overview(manifest())
    assert [row["step"] for row in found.rows] == [6, 12, 1800]
    assert found.record()["options"]["steps"] == manifest().train.steps
    assert found.record()["corpus"]["sources"] == ["shakespeare.txt"]
