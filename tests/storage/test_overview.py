"""Saved runs: the list, one run, losses in words; rows for programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn import shown
from manifests import METRICS, NASTY, in_part, manifest

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of
from gpt.storage.checkpoint_files import Baseline, CorpusId, Manifest
from gpt.storage.overview import (
    Overview,
    Runs,
    compare_with_counting,
    counting_record,
    outcome_record,
)
from gpt.storage.run import Run

Make = Callable[..., Overview]


@pytest.fixture
def one(tmp_path: Path) -> Make:
    """Makes a run of METRICS with these samples."""

    def make(changed: Manifest, *texts: str) -> Overview:
        run = Run(tmp_path / "tale-1")
        run.path.mkdir(exist_ok=True)
        for record in METRICS:
            run.append("metrics", record)
        for step, text in zip((6, 12, 300, 900, 1800), texts, strict=False):
            run.append("samples", {"step": step, "text": text})
        return Overview(run, changed)

    return make


def test_the_list_has_a_line_for_each_run_and_marks_the_newest(one: Make, fresh_run: Run) -> None:
    newest = Overview(fresh_run, manifest(elapsed=121.0))
    runs = Runs((one(manifest()), newest))
    lines = shown(runs, 90)
    assert lines[0] == "2 runs"
    assert lines[2].split() == ["run", "saved", "trained", "loss", "counting", "text"]
    assert lines[3].split() == ["tale-1", "0", "s", "2.2500", "2.5000", "shakespeare.txt"]
    assert lines[4].startswith("tiny (newest)")
    assert "2 min 1 s" in lines[4]
    assert [run.name for run in runs] == ["tale-1", "tiny"]
    assert runs["tiny"] is runs[-1] is newest
    with pytest.raises(KeyError, match="tyni"):
        runs["tyni"]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({}, "2.2500 nats a character at step 12, 0.2500 better than counting (2.5000)"),
        ({"best_loss": 2.6}, "0.1000 worse than counting (2.5000)"),
        ({"best_loss": 2.50004}, "as good as counting (2.5000)"),
        ({"baseline": None}, "2.2500 nats a character at step 12"),
        ({"val_characters": 9_999}, ", counting (2.5000) was measured on other characters"),
        ({"best_loss": None}, "not evaluated yet"),
        ({"imported": "nanoGPT"}, ""),
    ],
)
def test_a_run_says_how_good_it_is(one: Make, changes: dict[str, Any], fact: str) -> None:
    assert one(manifest(**changes)).facts()["loss"].endswith(fact)


def test_a_run_fits_one_screen_with_three_of_its_samples(one: Make) -> None:
    lines = shown(one(manifest(), "one\ntwo", "b", "c", "d", "last " * 99), 80)
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
@pytest.mark.parametrize("width", [20, 80, None])
def test_list_run_and_options_fit_the_page_and_escape_names(
    one: Make, width: int | None, ascii_only: bool
) -> None:
    named = one(manifest(corpus=CorpusId("0" * 64, 9, (NASTY,))), f"\n{NASTY}\n\tnew")
    lines = shown(Runs((named, named)), width, ascii_only)
    assert any("2.2500" in line for line in lines)
    shown(one(manifest(best_loss=None, best_step=None)), width, ascii_only)
    lines = shown(named, width, ascii_only, all=True)
    assert all(
        any(line.startswith(name[:20]) for line in lines)
        for name in (*options_of(ModelConfig), "learning_rate")
    )


def test_a_run_says_on_how_many_characters_a_loss_is(one: Make) -> None:
    assert " (on 19,968 of 111,539)" in one(in_part()).facts()["loss"]
    whole = in_part(final_loss=2.375, final_characters=111_539)
    assert " (on all 111,539 characters; other losses: on 19,968)" in one(whole).facts()["loss"]


def test_outcome_has_numbers_for_programs() -> None:
    record = outcome_record("tale-1", manifest())
    assert (record["step"], record["best_step"], record["val_nats"]) == (1800, 12, 2.25)
    assert record["val_bits"] == pytest.approx(2.25 / math.log(2))
    counting = {"order": 2, "nats": 2.5, "difference": -0.25, "same_characters": True}
    assert record["counting"].items() >= counting.items()
    part = outcome_record("tale-1", in_part())
    assert (part["val_characters"], part["val_split"]) == (19_968, 111_539)
    assert (part["elapsed"], part["minutes"]) == (121.0, 2.0)
    whole = outcome_record("tale-1", in_part(final_loss=2.375, final_characters=111_539))
    assert (whole["val_nats"], whole["val_characters"]) == (2.375, 111_539)
    unevaluated = outcome_record("tale-1", manifest(best_loss=None, best_step=None))
    assert unevaluated["val_nats"] is unevaluated["val_bits"] is None


def test_a_loss_is_compared_with_counting_on_the_same_characters_or_not_at_all() -> None:
    whole = manifest(best_loss=2.0, best_step=1800)
    assert compare_with_counting(whole) == "0.5000 better than counting (2.5000)"
    assert compare_with_counting(whole, (2.6, 111_539, 111_539)).startswith("0.1000 worse")
    assert counting_record(manifest(baseline=None)) is None
    of_part = replace(whole, train=TrainConfig(eval_chars=50_000))
    # evaluations read windows of the whole split, counting its first characters
    like_part = replace(of_part, baseline=Baseline((2.5,), 9, of_part.shown_loss[1]))
    for changed in (of_part, like_part):
        assert compare_with_counting(changed).endswith("was measured on other characters")
        record = counting_record(changed)
        assert record
        assert (record["difference"], record["same_characters"]) == (None, False)
