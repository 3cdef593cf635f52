"""The table of runs and the details of one fit any width and escape names."""

from __future__ import annotations

from pathlib import Path

import pytest
from manifests import METRICS, NASTY, in_part, manifest, shown
from rich.cells import cell_len

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import field_help
from gpt.storage.manifest import CorpusId
from gpt.storage.run import Run
from gpt.storage.runs import readable
from gpt.view.terminal.lines import card
from gpt.view.terminal.runs import loss_curve, runs_table, story
from gpt.view.terminal.training import farewell


def test_runs_table_and_details_compare_with_the_baseline_if_there_is_one() -> None:
    run = Run(Path("runs/tale-1"))
    for changes, cell, fact in (
        ({}, "0.2500 better", "counting 2-grams: 2.5000 nats; this model is 0.2500 better"),
        (
            {"best_loss": 2.6, "best_step": 1800},
            "0.1000 worse",
            "0.1000 worse: train longer, or on more text",
        ),
        (
            {"best_loss": 2.6},
            "0.1000 worse",
            "0.1000 worse: train longer, or on more text",
        ),
        (
            {"best_loss": 2.6, "since_best": 2},
            "0.1000 worse",
            "0.1000 worse: train on more text; no better since step 12",
        ),
        ({"baseline": None}, "–", "–"),
        ({"best_loss": None}, "–", "counting 2-grams: 2.5000 nats"),
    ):
        table = shown(runs_table([(run, manifest(**changes))]), 80)
        header, row = table.splitlines()[:2]
        assert "than counting" in header
        assert cell in row
        assert "shakespeare.txt" in row  # no name is broken in 80 columns
        output = " ".join(shown(story(run, manifest(**changes), [], [])).split())
        assert f"{fact} options" in output[output.index(" to beat ") :]


def test_losses_on_a_part_of_the_split_are_marked() -> None:
    run = Run(Path("checkpoints/tale-1"))
    facts = farewell(run, in_part(), "SIGINT")
    assert facts["ended"] == (
        "SIGINT after step 1,800 of 1,800, 2 min 1 s of the 2 min 0 s asked for, with evaluations "
        "and saves"
    )
    assert facts["best"].endswith(" at step 12 (on 19,968 of 111,539)")
    facts = farewell(run, in_part(whole_loss=2.375), "finished")
    assert facts["best"] == (
        "2.3750 nats (3.426 bits/char) at step 12, chosen by losses on 19,968 characters"
    )
    for found, cell in (
        (in_part(), "2.2500 (18%)"),
        (in_part(whole_loss=2.375), "2.3750  "),
        (manifest(), "2.2500  "),
    ):
        _, row, *caption = shown(runs_table([(run, found)])).splitlines()
        assert f" {cell}" in row
        assert " ".join(caption).startswith("(%): on this share") == ("%" in cell)
    records = [*METRICS, {"step": 1800, "best_step": 12, "whole_loss": 2.375}]
    output = shown(story(run, in_part(), records, []))
    assert "loss (on 19,968 of 111,539)" in output
    assert "at step 12 (on 19,968 of 111,539)" in output
    assert "loss (on" not in shown(story(run, manifest(), METRICS, []))


@pytest.mark.parametrize("width", [40, 80])
def test_loss_curve_labels_both_ends_of_its_axis(width: int) -> None:
    heading, table = loss_curve(METRICS)
    assert heading.plain == (
        "loss, nats per character; ● is the validation loss, from 2.2500 to 2.7500"
    )
    ends, *lines = shown(table, width).splitlines()
    assert ends.split() == ["step", "train", "val", "2.25", "2.75"]
    assert [line.split() for line in lines] == [
        ["6", "2.5000", "2.7500", "●"],
        ["12", "2.0000", "2.2500", "●"],
        ["1,800", "1.5000", "2.5000", "●"],
    ]
    high, low, middle = (line.index("●") for line in lines)
    assert (low, high) == (ends.index("2.25"), ends.index("2.75") + 3)
    assert abs(middle - (low + high) / 2) <= 0.5


def test_loss_curve_of_one_evaluation_has_no_axis() -> None:
    heading, table = loss_curve(METRICS[:1])
    assert heading.plain.endswith("validation loss, at 2.7500")
    ends, line = shown(table).splitlines()
    assert ends.index("2.75") == line.index("●")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_runs_table_fits_the_page_and_escapes_names(width: int) -> None:
    run, named = Run(Path("runs/tale-1")), manifest(corpus=CorpusId("0" * 64, 9, (NASTY,)))
    samples = [{"step": 12, "text": f"\n{NASTY}\n"}]
    for renderable in (
        card({"corpus": NASTY, "empty": ""}),
        runs_table([(run, named), (run, manifest(best_loss=None))]),
        story(run, named, METRICS, samples),
        story(run, manifest(best_loss=None, best_step=None), [], []),
    ):
        text = shown(renderable, width)
        assert all(cell_len(line) <= width for line in text.splitlines())
        assert not set(text) & set("\x1b\u202e")
        assert "empty" not in text
    output = shown(story(run, named, METRICS, samples), 200)
    assert output.count("\\x1b[31m[red]\\u202eáru[/].txt") == 2
    assert all(name in output for name in (*field_help(ModelConfig), *field_help(TrainConfig)))


def test_damaged_run_is_listed_beside_readable_ones(fresh_run: Run, tmp_path: Path) -> None:
    torn = Run(tmp_path / "checkpoints" / "torn")
    (torn.path / "step-00000001").mkdir(parents=True)
    (torn.path / "step-00000001" / "manifest.json").write_text("{")
    rows, problems = readable([fresh_run, torn])
    assert [(run.name, found.step) for run, found in rows] == [("tiny", 12)]
    assert len(problems) == 1
    assert "torn" in problems[0]


@pytest.mark.parametrize(
    ("width", "columns"),
    [(40, "run best nats than counting"), (60, "run step of best nats than counting corpus")],
)
def test_narrow_runs_table_has_fewer_columns_without_broken_numbers(
    width: int, columns: str
) -> None:
    run = Run(Path("runs/a-rather-long-name-of-a-run-1"))
    table = shown(runs_table([(run, in_part())], width), width).splitlines()
    assert max(map(len, table)) <= width
    assert table[0].split() == columns.split()
    assert "2.2500 (18%)              –" in table[1]  # counting has another part
