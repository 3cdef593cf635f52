"""`gptx heads`: the ranking, with and without the corpus, and the page."""

from __future__ import annotations

import csv
import io
import json
import operator
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import Gptx

import gpt
from gpt.heads.measures import RULE
from gpt.heads.survey import DEFAULT_MEASURES, Survey
from gpt.view.records import to_record


def test_heads_command_measures_the_validation_split_or_a_text(gptx: Gptx, home: Path) -> None:
    answer = gptx("heads", "--ablate", "mean")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert re.fullmatch(r"heads · \d+ windows of 16 characters of the validation split", lines[0])
    heads = [line for line in lines if re.match(r"L\dH\d ", line)]
    assert len(heads) == 4
    assert next(line for line in lines if line.startswith("uniform"))
    piped = gptx("heads", "-", "--sort", "sink", "--json", stdin=b"the cat sat on the mat")
    record = json.loads(piped.out)
    assert (record["text"], record["windows"], record["characters"]) == ("standard input", 1, 16)
    ranking = [row["sink"] for row in record["rows"]]
    assert ranking == sorted(ranking, reverse=True)


def test_heads_can_be_resampled_from_other_windows(gptx: Gptx) -> None:
    answer = gptx("heads", "--ablate", "resample", "--json")
    assert (answer.code, answer.err) == (0, "")
    record = json.loads(answer.out)
    assert "that of another window, drawn at random" in record["measures"]["ablation"]["explained"]
    assert all(row["ablation"] is not None for row in record["rows"])
    one = gptx("heads", "-", "--ablate", "resample", stdin=b"the cat sat")
    assert one.code == 3
    assert "resample needs two windows; give a longer text or more --windows" in one.err


def test_python_and_command_measure_the_same_for_the_same_text(gptx: Gptx, home: Path) -> None:
    run = gpt.load("checkpoints/corpus-1")

    def same(record: dict[str, Any], survey: Survey) -> bool:
        expected = json.loads(json.dumps(to_record(survey.records(), {})))
        return all(record[key] == expected[key] for key in ("measures", "rows", "windows"))

    text = (home / "corpus.txt").read_text(encoding="utf-8")
    on_split = json.loads(gptx("heads", "--run", "corpus-1", "--json").out)
    assert on_split["text"] == "the validation split"
    assert same(on_split, run.heads(text[int(0.9 * len(text)) :]))
    assert same(on_split, run.heads())
    assert (run.heads().text, run.heads().windows) == (on_split["text"], on_split["windows"])
    (home / "corpus.txt").rename(home / "elsewhere.txt")
    try:
        answer = gptx("heads", "--run", "corpus-1", "--data", "nowhere", "--json")
    finally:
        (home / "elsewhere.txt").rename(home / "corpus.txt")
    step = run.path / f"step-{run.stored.step:08}"
    assert "measuring on the start of the validation split, stored in the model file" in answer.err
    on_start, in_python = json.loads(answer.out), gpt.load(step / "model.safetensors").heads()
    assert same(on_start, in_python)
    assert on_start["text"] == in_python.text == "the validation split's first 306 characters"
    assert in_python.text in repr(in_python)
    on_text = json.loads(gptx("heads", "-", "--json", stdin=b"the cat sat on the mat").out)
    in_python = run.heads("the cat sat on the mat")
    assert same(on_text, in_python)
    assert in_python.text == "a text of 22 characters"


def test_heads_command_writes_a_page_also_for_two_steps(gptx: Gptx, home: Path) -> None:
    assert gptx("heads", "-o", "heads.html").code == 0
    page = (home / "heads.html").read_text(encoding="utf-8")
    assert "induction, synthetic" in page
    assert '"title":"P=' in page
    assert RULE in page
    assert gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.html").code == 0
    assert "step 4" in (home / "two.html").read_text(encoding="utf-8")
    assert gptx("heads", "-o", "heads.npz").code == 2


def test_heads_over_training_agree_in_every_format(gptx: Gptx, home: Path, kept: str) -> None:
    of_run = ("heads", "--run", kept, "--step")
    answer = gptx(*of_run, "all", "--ablate", "zero")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("heads over training · 3 steps, 0 to 8 · ")
    assert "Δloss · uniform" in answer.out
    record = json.loads(gptx(*of_run, "8:0", "--json").out)
    assert record["run"] == kept
    assert {row["step"] for row in record["rows"]} == {0, 8}
    in_python = gpt.load(f"checkpoints/{kept}").heads(steps=[0, 8])
    assert (record["text"], record["windows"]) == (in_python.surveys[0].text, 19)
    assert in_python.measured == "19 windows of 16 characters of the validation split"
    places = operator.itemgetter("layer", "head")
    for step in (0, 8):
        alone = json.loads(gptx(*of_run, str(step), "--json").out)["rows"]
        rows = [row for row in record["rows"] if row["step"] == step]
        assert rows == [{"step": step} | row for row in sorted(alone, key=places)]
    assert gptx(*of_run, "0:8", "-o", "heads.csv").code == 0
    rows = list(csv.DictReader(io.StringIO((home / "heads.csv").read_text(encoding="utf-8"))))
    assert gptx(*of_run, "8", "-o", "heads.csv").code == 0
    last = list(csv.DictReader(io.StringIO((home / "heads.csv").read_text(encoding="utf-8"))))
    of_last = [row for row in rows if row.pop("step") == "8"]
    assert of_last == sorted(last, key=places)
    short = gptx(*of_run, "0:", "--top", "1", "--sort", "sink").out  # nothing after : is best
    assert len(re.findall(r"^L\dH\d ", short, re.M)) == len(DEFAULT_MEASURES) - 2


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ("--step 0:8 -o x.html", 2, "--output: a page shows one step, not several"),
        ("--step 8 -o x.svg", 2, "give several steps, as in --step all"),
        ("--step all --measure sink", 2, "--measure: chooses what a figure draws; give -o"),
        ("--step all --measure x -o x.svg", 2, "--measure: 'x' is not one of back, previous"),
        ("--step 8:8", 2, "--step: all of these are step 8; kept keeps 0, 4, 8"),
        ("--step best:last", 2, "--step: all of these are step 8; kept keeps 0, 4, 8"),
        ("--step 0:5", 4, "kept has no step 5; it keeps 0, 4, 8"),
        ("--step 0:x", 2, "--step: 'x' is neither best, last nor a step's number"),
        ("--step 0,8", 2, "a step's number; separate steps by a colon: 0:8"),
        ("--step 0:8 --sort size", 2, "--sort: 'size' is not one of back"),
    ],
)
def test_steps_that_cannot_be_shown_are_refused(
    gptx: Gptx, home: Path, kept: str, arguments: str, code: int, problem: str
) -> None:
    answer = gptx("heads", "--run", kept, *arguments.split())
    assert (answer.code, answer.out) == (code, "")
    assert problem in answer.err
    assert not list(home.glob("x.*"))


def test_a_figure_of_measures_says_what_it_draws_and_how_to_draw_others(
    gptx: Gptx, home: Path, kept: str
) -> None:
    pytest.importorskip("matplotlib")
    of_run = ("heads", "--run", kept, "--step", "0:8", "-o", "x.svg")
    answer = gptx(*of_run)
    note = r"note: draws (\w+, ){0,3}\w+; --measure NAME draws another, --all all\n"
    assert (answer.code, answer.out) == (0, "")
    assert re.fullmatch(note, answer.err)
    drawn = (home / "x.svg").read_bytes()
    names = answer.err.removeprefix("note: draws ").partition(";")[0].split(", ")
    chosen = gptx(*of_run, *(f"--measure={name}" for name in names))
    assert (chosen.code, chosen.err) == (0, "")
    assert (home / "x.svg").read_bytes() == drawn
    assert gptx(*of_run, "--measure", "sink").code == 0
    assert (home / "x.svg").read_bytes() != drawn


def test_one_head_at_several_steps_is_a_strip(gptx: Gptx, home: Path, kept: str) -> None:
    of_run = ("attn", "the cat", "--run", kept, "--layer", "1", "--head", "1", "--step")
    answer = gptx(*of_run, "0:4:8")
    assert (answer.code, answer.err) == (0, "")
    assert [f"step {n}" in answer.out for n in (0, 4, 8)] == [True] * 3
    assert gptx(*of_run, "all").out == answer.out
    assert len(json.loads(gptx(*of_run, "0:4:8", "--json").out)["compared"]) == 3
    rows = csv.DictReader(io.StringIO(gptx(*of_run, "0:4:8", "--format", "csv").out))
    assert {row["checkpoint"] for row in rows} == {"step 0", "step 4", "step 8"}
    assert gptx(*of_run, "0:4:8", "-o", "three.npz").code == 0
    with np.load(home / "three.npz") as arrays:
        assert {"a_weights", "b_weights", "c_weights"} < set(arrays)
    if find_spec("matplotlib"):
        assert gptx(*of_run, "0:4:8", "-o", "strip.svg").code == 0
        assert "layer 1 · head 1 · weights" in (home / "strip.svg").read_text(encoding="utf-8")
    answer = gptx(*of_run, "0:4:8", "-o", "three.html")
    assert (answer.code, (home / "three.html").exists()) == (2, False)
    assert "--format: html compares two checkpoints, not 3" in answer.err
    answer = gptx(*of_run, "0:4:8", "--diff", "corpus-1")
    assert "--diff: compares two checkpoints; give one step, or two as A:B" in answer.err
