"""`gptx neurons`: all units, one unit, over training, and the same from Python."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from program import Gptx

import gpt
from gpt.heads.features import FEATURES
from gpt.view.records import to_record


def test_the_command_shows_some_units_and_python_measures_the_same(gptx: Gptx) -> None:
    answer = gptx("neurons", "--run", "corpus-1", "--ablate", "mean", "--top", "5")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert re.fullmatch(r"neurons · \d+ windows of 16 characters of the validation split", lines[0])
    assert len({line.split()[0] for line in lines if re.match(r"L\dN\d+ ", line)}) == 5
    assert "random" in {line[:6] for line in lines}
    assert "shown: 5 of 128, --top N shows others · Δloss of these alone" in answer.out
    record = json.loads(gptx("neurons", "--run", "corpus-1", "--json").out)
    run = gpt.load("checkpoints/corpus-1")
    found = run.neurons()
    expected = json.loads(json.dumps(to_record(found.records(), {})))
    assert all(record[key] == expected[key] for key in ("measures", "rows", "windows", "text"))
    assert len(record["rows"]) == 128
    assert {*FEATURES, "character", "character_of", "kind"} <= record["rows"][0].keys()
    assert repr(found).startswith("<Neurons: 128 units on ")
    sorted_by = run.neurons(sort="word").records().columns["word"]
    sizes = np.nan_to_num(np.abs(sorted_by))
    assert (np.diff(sizes) <= 0).all()


def test_one_unit_has_passages_logits_and_a_text_of_ones_own(gptx: Gptx, home: Path) -> None:
    answer = gptx("neurons", "--unit", "L1N3", "--on", "the cat", "--run", "corpus-1")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("neuron L1N3 · ")
    assert re.search(r"\nraises +lowers", answer.out)
    assert "\nthe cat\n" in answer.out
    assert gptx("neurons", "--unit", "L1N3", "-o", "unit.json", "--run", "corpus-1").code == 0
    record = json.loads((home / "unit.json").read_text(encoding="utf-8"))
    acts = gpt.load("checkpoints/corpus-1").activations("the cat", "ffn_hidden", 1)
    unit = gpt.load("checkpoints/corpus-1").neurons(unit="L1N3", on="the cat")
    assert unit.text is not None
    np.testing.assert_allclose(unit.text.values, acts["ffn_hidden", 1][0, :, 3], rtol=1e-5)
    assert record["unit"] == "L1N3"
    assert unit.to_pandas().shape[0] == len(record["rows"]) == len(unit.passages)
    assert "L1N3" in repr(unit)
    assert "L1N3" in (unit._repr_html_() or "")


def test_names_over_training_and_their_rows(gptx: Gptx, home: Path, kept: str) -> None:
    answer = gptx("neurons", "--run", kept, "--step", "all", "--top", "3", "--sort", "word")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("units over training · 3 steps, 0 to 8 · ")
    assert "· random" in answer.out
    found = gpt.load(f"checkpoints/{kept}").neurons(steps="all")
    assert found.kinds.shape == (3, 2, 64)
    assert repr(found).startswith("<Development of 2 layers × 64 units at 3 steps")
    assert found.main_measures() == found.shown()[:4]
    with pytest.raises(gpt.GptxError, match="figures show heads"):
        found.save("units.svg")
    assert gptx("neurons", "--run", kept, "--step", "0:8", "-o", "units.csv").code == 0
    rows = list(csv.DictReader(io.StringIO((home / "units.csv").read_text(encoding="utf-8"))))
    assert [row["step"] for row in rows] == ["0"] * 128 + ["8"] * 128


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--unit L7N0", "--unit: 'L7N0' is not one of L0N0 … L1N63"),
        ("--on the", "--on: give the unit that colours it: --unit"),
        ("--unit L0N0 --step 0:8", "--unit: measures one step, not several"),
        ("--ablate mean --step 0:8", "--ablate: measures one step, not several"),
        ("--sort foo", "--sort: 'foo' is not one of quotes, brackets"),
        ("--sort ablation", "--sort: ablation is measured only with --ablate mean"),
        ("--top 0", "--top: 0 is less than 1"),
        ("-o a.html", "--output: .html is not one of .txt, .json, .csv"),
        (
            "--unit L0N0 --on the-cat-sat-on-the-mat-again",
            "characters; the model reads 1 to 16 at once",
        ),
        ("--unit L0N0 --on", "--on has 0 characters; the model reads 1 to 16 at once"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    gptx: Gptx, kept: str, words: str, problem: str
) -> None:
    options = [*words.split(), ""] if words.endswith("--on") else words.split()
    answer = gptx("neurons", "--run", kept, "--unknown", "skip", *options)
    assert (answer.code in (2, 3), answer.out) == (True, "")
    assert problem in answer.err.splitlines()[-1]


def test_short_and_odd_texts_have_units_without_names_or_one_clear_line(gptx: Gptx) -> None:
    one = gptx("neurons", "-", "--run", "corpus-1", stdin=b"the cat sat")
    assert "one window: little evidence" in one.out
    assert "no unit gets a name" in one.out
    empty = gptx("neurons", "-", "--run", "corpus-1", stdin=b"")
    assert (empty.code, empty.err.count("\n")) == (3, 1)
    alike = gptx("neurons", "-", "--run", "corpus-1", stdin=b"t" * 60)
    assert alike.code == 0  # only the place in the word differs there
    assert re.search(r"no unit gets a name|^named: [0-9]+ place in word\b[^·]*$", alike.out, re.M)
