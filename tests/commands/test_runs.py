"""`gptx runs`: the table, the details of one run, comparisons."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from program import TINY, Gptx, answer_of, at_home

import gpt
from gpt.show.result import to_record


def test_runs_lists_runs_and_shows_one(gptx: Gptx) -> None:
    title, _, header, row, *_ = gptx("runs").out.splitlines()
    assert title == "1 run"
    assert header.split() == ["run", "saved", "trained", "loss", "counting", "text"]
    assert row.startswith("corpus-1 ")
    story = gptx("runs", "corpus-1").out
    assert len(story.splitlines()) <= 24
    assert story.startswith("corpus-1 · step 8 of 8 · ")
    assert "n_layer" not in story
    every = gptx("runs", "corpus-1", "--options").out
    assert every.splitlines()[0] == story.splitlines()[0]
    for word in ("n_layer", "Transformer blocks."):
        assert word in every


def test_runs_shows_the_whole_lines_of_a_damaged_log(gptx: Gptx, home: Path) -> None:
    logs = [home / "checkpoints/corpus-1" / name for name in ("metrics.jsonl", "samples.jsonl")]
    whole = [path.read_bytes() for path in logs]
    try:
        for path, data in zip(logs, whole, strict=True):
            path.write_bytes(b"[" * 100_000 + b"\nnull\n" + data)
        answer = gptx("runs", "corpus-1")
        assert answer.code == 0
        assert "validation · training" in answer.out
    finally:
        for path, data in zip(logs, whole, strict=True):
            path.write_bytes(data)


@pytest.fixture(scope="module")
def sweep(home: Path) -> Path:
    """Two recipes of two seeds each, one of them on a text with a Japanese name, and another."""
    (home / "日本語.txt").write_bytes((home / "corpus.txt").read_bytes()[:-9])
    with pytest.MonkeyPatch.context() as patch:
        at_home(home, patch)
        for rate in ("1e-3", "1e-2"):
            for seed in ("1", "2"):
                options = ("--learning-rate", rate, "--seed", seed, "--run", f"lr-{rate}-{seed}")
                answer = answer_of(patch, ("train", "corpus.txt", *TINY, *options, *SWEEP))
                assert answer.code == 0, answer.err
        other = ("train", "日本語.txt", *TINY, "--run", "other", *SWEEP)
        assert answer_of(patch, other).code == 0
    return home / "sweep"


SWEEP = ("--checkpoints", "sweep")


def test_runs_are_compared_by_loss_and_options(gptx: Gptx, sweep: Path) -> None:
    answer = gptx("runs", "lr-*", *SWEEP)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "4 runs, the lowest loss first"
    rows = json.loads(gptx("runs", "lr-*", "--json", *SWEEP).out)["rows"]
    assert [row["val_nats"] for row in rows] == sorted(row["val_nats"] for row in rows)
    for letter, row, line in zip("abcd", rows, lines[-4:], strict=True):
        options = f"learning_rate {row['learning_rate']} · seed {row['seed']}"
        assert line.split(maxsplit=3) == [letter, row["run"], f"{row['val_nats']:.4f}", options]
    assert gptx("runs", "lr-1e-2-1", "lr-*", "lr-1e-2-1", *SWEEP).out == answer.out


def test_losses_on_other_texts_are_said_not_to_compare(gptx: Gptx, sweep: Path) -> None:
    *_, said = gptx("runs", "*", *SWEEP).out.splitlines()
    assert said.startswith("not all losses are of the same text")


def test_comparison_is_written_as_a_table(gptx: Gptx, sweep: Path) -> None:
    shown = json.loads(gptx("runs", "lr-*", "--json", *SWEEP).out)
    assert gptx("runs", "lr-*", "-o", "table.json", *SWEEP).out == ""
    assert json.loads(Path("table.json").read_text("utf-8")) == shown
    assert shown["differs"] == ["learning_rate", "seed"]
    gptx("runs", "lr-*", "-o", "table.csv", *SWEEP)
    with open("table.csv", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    for row, recipe in zip(rows, shown["rows"], strict=True):
        assert row["run"] == recipe["run"]
        assert float(row["val_nats"]) == recipe["val_nats"]
        assert row["gpt_nats"] == ""
    gptx("runs", "lr-*", "-o", "table.txt", *SWEEP)
    assert "a lr-1e-" in Path("table.txt").read_text("utf-8")
    assert gptx("runs", "other", "-o", "one.txt", *SWEEP).code == 0


def test_json_of_runs_has_options_and_curves(gptx: Gptx, sweep: Path) -> None:
    records = [json.loads(line) for line in gptx("runs", "--json", *SWEEP).out.splitlines()]
    assert len(records) == 5
    for record in records:
        assert record["options"]["steps"] == 8
        assert [row["step"] for row in record["rows"]] == [4, 8]
        assert min(row["val"] for row in record["rows"]) == pytest.approx(record["val_nats"])
    one = json.loads(gptx("runs", "other", "--json", *SWEEP).out)
    assert one["corpus"]["sources"] == ["日本語.txt"]
    assert [each["step"] for each in one["metrics"]] == [4, 8]
    assert [each["step"] for each in one["training"]] == [*range(1, 9)]
    assert {"step", "text"} <= one["samples"][0].keys()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["lr-*", "nobody"], 4, "no run 'nobody' in sweep; there are: "),
        (["x-*"], 4, "no run matches 'x-*' in sweep; there are: "),
        (["a/*"], 4, "no run matches 'a/*'"),
        (["-o", "t.csv"], 2, "-o needs names of runs; '*' is all"),
        (["lr-*", "-o", "t.svg"], 2, "--output: .svg is not one of .txt, .json, .csv"),
    ],
)
def test_bad_comparisons_print_one_line(
    gptx: Gptx, sweep: Path, arguments: list[str], code: int, says: str
) -> None:
    answer = gptx("runs", *arguments, *SWEEP)
    assert (answer.code, answer.out) == (code, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("t.csv").exists()


def test_damaged_run_is_left_out_of_a_comparison_with_a_warning(gptx: Gptx, sweep: Path) -> None:
    where = ("--checkpoints", "some-damaged")
    shutil.copytree(sweep, "some-damaged")
    Path("some-damaged/lr-1e-3-1/step-00000008/manifest.json").write_text("{")
    answer = gptx("runs", "lr-1e-3-*", *where)
    assert answer.code == 0
    assert answer.err.startswith("warning: damaged, or not a gptx checkpoint: some-damaged/lr-1e-3")
    assert answer.out.startswith("1 run, ")
    nothing = gptx("runs", "lr-1e-3-1", "lr-1e-3-1", *where)
    assert (nothing.code, nothing.out) == (4, "")
    assert nothing.err.splitlines()[-1].endswith("no undamaged run is left to compare")


def test_python_compares_the_same(gptx: Gptx, sweep: Path) -> None:
    comparison = gpt.runs(sweep, ["lr-*"]).compare()
    shown = json.loads(gptx("runs", "lr-*", "--json", *SWEEP).out)
    assert to_record(comparison) == shown
    assert len(gpt.runs(sweep).compare().runs) == 5


def test_a_pinned_run_comes_before_the_newest(gptx: Gptx, home: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(home / "checkpoints/corpus-1", home / "pinned" / name)
    here = ("--checkpoints", "pinned")
    newest = "a" if gptx("next", "the", *here).err.startswith("run: a,") else "b"
    other = "ab".replace(newest, "")
    assert gptx("runs", "--use", other, *here).code == 0
    assert gptx("next", "the", *here).err.startswith(f"run: {other}, pinned")
    assert gpt.load("pinned").name == other
    assert f"{other} (pinned)" in gptx("runs", *here).out
    assert gptx("runs", "--use", "nobody", *here).code == 4
    gptx("runs", "--use", "newest", *here)
    assert gpt.load("pinned").name == newest
    gptx("runs", "--use", other, *here)
    shutil.rmtree(home / "pinned" / other)
    assert gpt.load("pinned").name == newest
