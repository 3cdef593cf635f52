"""One run and the list of runs: facts, tables that fit any width, escaped names, rows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import shown
from manifests import METRICS, NASTY, in_part, manifest

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of
from gpt.storage.curves import Curve
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.overview import (
    Overview,
    RunTable,
    corpus_facts,
    model_facts,
    outcome_record,
    quote_some,
)
from gpt.storage.run import Run
from gpt.storage.runs import read_manifests
from gpt.view.terminal.lines import Page

RUN = Run(Path("runs/tale-1"))


def table(*found: Manifest, run: Run = RUN) -> RunTable:
    return RunTable(tuple((run, each) for each in found))


def overview(found: Manifest, text: str = "") -> Overview:
    steps, train, val = (
        np.array([each[name] for each in METRICS]) for name in ("step", "train_loss", "val_loss")
    )
    samples = ({"step": 12, "text": text},) if text else ()
    return Overview("tale-1", found, Curve(steps, train, val, name="tale-1"), samples)


def test_list_of_runs_prints_the_newest_names() -> None:
    rows = tuple((Run(Path(f"runs/tale-{number}")), manifest()) for number in range(1, 8))
    assert repr(RunTable(rows)) == "<7 runs: … tale-3, tale-4, tale-5, tale-6, tale-7>"
    assert repr(RunTable(rows[:1])) == "<1 run: tale-1>"
    assert repr(RunTable(())) == "<no runs>"
    assert [run.name for run in RunTable(rows[:2])] == ["tale-1", "tale-2"]
    assert shown(RunTable(()).blocks(), Page())[-1] == "train one: gptx train"


@pytest.mark.parametrize(
    ("changes", "cell", "fact"),
    [
        ({}, "0.2500 better", "counting 2-grams: 2.5000 nats; this model is 0.2500 better"),
        (
            {"best_loss": 2.6, "since_best": 2},
            "0.1000 worse",
            "0.1000 worse: train on more text; no better since step 12",
        ),
        ({"baseline": None}, "–", "–"),
        ({"best_loss": None}, "–", "counting 2-grams: 2.5000 nats"),
    ],
)
def test_list_and_run_compare_with_counting_if_it_is_known(
    changes: dict[str, Any], cell: str, fact: str
) -> None:
    _, _, header, row, *_ = shown(table(manifest(**changes)).blocks(), Page(80))
    assert "than counting" in header
    assert cell in row
    assert "shakespeare.txt" in row  # no name is broken in 80 columns
    output = " ".join(" ".join(shown(overview(manifest(**changes)).blocks(), Page(100))).split())
    assert f"{fact} options" in output[output.index(" to beat ") :]


def test_losses_on_a_part_of_the_split_are_marked() -> None:
    for found, cell in (
        (in_part(), "2.2500 (18%)"),
        (in_part(whole_loss=2.375), "2.3750  "),
        (manifest(), "2.2500  "),
    ):
        _, _, _, row, _, note, *_ = shown(table(found).blocks(), Page(100))
        assert f" {cell}" in row
        assert note.startswith("(%): on this share") == ("%" in cell)


@pytest.mark.parametrize(
    ("width", "columns"),
    [(40, "run best nats than counting"), (60, "run step of best nats than counting")],
)
def test_narrow_list_has_fewer_columns_without_broken_numbers(width: int, columns: str) -> None:
    run = Run(Path("runs/a-rather-long-name-of-a-run-1"))
    _, _, header, row, *rest = shown(table(in_part(), run=run).blocks(), Page(width))
    assert header.split() == columns.split()
    assert "2.2500 (18%)              –" in row  # counting has another part
    names = [line.split(" ")[0] for line in (row, *rest[: rest.index("")])]
    assert "".join(names) == run.name


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [40, 80, None])
def test_list_and_run_fit_the_page_and_escape_names(width: int | None, ascii_only: bool) -> None:
    page = Page(width, ascii_only)
    named = manifest(corpus=CorpusId("0" * 64, 9, (NASTY,)))
    shown(table(named, manifest(best_loss=None)).blocks(), page)
    shown(overview(manifest(best_loss=None, best_step=None)).blocks(), page)
    output = "\n".join(shown(overview(named, f"\n{NASTY}\n\tnew").blocks(), page))
    assert all(name in output for name in (*options_of(ModelConfig), *options_of(TrainConfig)))
    if width is None and not ascii_only:
        assert "corpus   \\x1b[31m[red]\\u202eáru[/].txt" in output
        assert "\n␛[31m[red]U+202Eáru[/].txt\n⇥new\n" in output


def test_damaged_run_is_listed_beside_readable_ones(fresh_run: Run, tmp_path: Path) -> None:
    torn = Run(tmp_path / "checkpoints" / "torn")
    (torn.path / "step-00000001").mkdir(parents=True)
    (torn.path / "step-00000001" / "manifest.json").write_text("{")
    rows, problems = read_manifests([fresh_run, torn])
    assert [(run.name, found.step) for run, found in rows] == [("tiny", 12)]
    assert len(problems) == 1
    assert "torn" in problems[0]


def test_imported_run_has_neither_losses_nor_options_of_a_training() -> None:
    found = replace(overview(manifest(imported="nanoGPT")), curve=Curve(*[np.zeros(0)] * 3))
    text = " ".join(shown(found.blocks(), Page()))
    assert "imported  nanoGPT" in text
    assert not {"best ", "learning_rate", "loss of"} & {word for word in text.split("  ")}


def test_a_model_in_words() -> None:
    config = ModelConfig(vocab_size=65, bias=True, qkv_bias=True, dropout=0.2)
    assert model_facts(config) == (
        "0.81 M parameters: 4 layers × 4 heads × 32, context 64; rotary positions, relu2, "
        "biases, biases of q, k, v, dropout 0.2, fused attention"
    )
    bare = model_facts(ModelConfig(vocab_size=65, position="none", feed_forward=False))
    assert "; no positions, no feed-forward, dropout" in bare
    for heads, words in (
        (1, "1 head starts on the last character, "),
        (3, "3 heads start on the last characters, "),
        (9, "4 heads start on the last characters, "),
        (0, ""),
    ):
        facts = model_facts(ModelConfig(vocab_size=65, n_head=4, previous_heads=heads))
        assert f"rotary positions, {words}relu2" in facts


def test_a_text_in_words_names_three_sources_and_warns_about_a_large_vocabulary() -> None:
    small = ModelConfig(vocab_size=65)
    text = CorpusId("0" * 64, 1_115_394, ("a", "b", "c"))
    assert corpus_facts(text, small) == "a, b, c: 1,115,394 characters, 65 distinct"
    many = replace(text, sources=tuple("abcde"))
    assert corpus_facts(many, small).startswith("a, b, c and 2 more: 1,115,394 characters")
    large = ModelConfig(vocab_size=20_000)
    assert corpus_facts(text, large).endswith("(they take 87% of the parameters)")
    assert quote_some("\n\x1b") == "'⏎' '␛'"
    assert quote_some("abcde", most=3) == "'a' 'b' 'c' and 2 more"


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
    whole = outcome_record("tale-1", in_part(whole_loss=2.375))
    assert (whole["val_nats"], whole["val_characters"]) == (2.375, 111_539)
    unevaluated = outcome_record("tale-1", manifest(best_loss=None, best_step=None))
    assert unevaluated["val_nats"] is unevaluated["val_bits"] is None
    assert outcome_record("tale-1", manifest(baseline=None))["counting"] is None


def test_rows_of_the_list_are_outcomes_and_those_of_a_run_its_evaluations() -> None:
    columns = table(manifest(val_characters=0), in_part()).records().columns
    assert [*columns["val_characters"]] == [None, 19_968]
    assert {len(each) for each in columns.values()} == {2}
    found = overview(manifest()).records()
    assert [*found.columns["step"]] == [6, 12, 1800]
    assert found.facts["options"]["steps"] == manifest().train.steps
    assert found.facts["corpus"]["sources"] == ["shakespeare.txt"]
