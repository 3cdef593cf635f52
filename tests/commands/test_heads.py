"""`gptx heads`: the ranking, with and without the corpus, and the page."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

from program import Gptx

import gpt
from gpt.heads.measures import RULE
from gpt.heads.survey import Survey
from gpt.view.records import to_record


def test_heads_command_measures_the_validation_split_or_a_text(gptx: Gptx, home: Path) -> None:
    answer = gptx("heads", "--ablate", "mean")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert re.fullmatch(r"heads · \d+ windows of 16 characters of the validation split", lines[0])
    heads = [line for line in lines if re.match(r"L\dH\d ", line)]
    assert len(heads) == 4
    assert next(line for line in lines if line.startswith("uniform"))
    rises = [
        row["ablation"]
        for row in json.loads(gptx("heads", "--ablate", "mean", "--json").out)["rows"]
    ]
    assert rises == sorted(rises, reverse=True)
    piped = gptx("heads", "-", "--json", stdin=b"the cat sat on the mat")
    record = json.loads(piped.out)
    assert (record["text"], record["windows"], record["characters"]) == ("standard input", 1, 16)


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


def test_heads_command_writes_a_table_or_a_page(gptx: Gptx, home: Path) -> None:
    assert gptx("heads", "-o", "heads.html").code == 0
    page = (home / "heads.html").read_text(encoding="utf-8")
    assert "induction, synthetic" in page
    assert RULE in page
    assert gptx("heads", "-o", "heads.csv").code == 0
    rows = list(csv.DictReader(io.StringIO((home / "heads.csv").read_text(encoding="utf-8"))))
    record = json.loads(gptx("heads", "--json").out)
    assert [row["layer"] for row in rows] == [str(row["layer"]) for row in record["rows"]]
    assert gptx("heads", "-o", "heads.npz").code == 2
