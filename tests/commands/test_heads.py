"""`gptx heads`: the ranking, with and without the corpus, and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

from program import Gptx

import gpt
from gpt.heads.measures import RULE
from gpt.show.result import to_record


def test_heads_command_measures_the_validation_split_or_a_text(gptx: Gptx, home: Path) -> None:
    answer = gptx("heads")
    assert (answer.code, answer.err) == (0, "")
    assert len(answer.out.splitlines()) <= 20
    assert answer.out.startswith("head ")
    assert re.search(r"\d+ windows of the validation split · loss in nats · see one: ", answer.out)
    rises = [row["ablation"] for row in json.loads(gptx("heads", "--json").out)["rows"]]
    assert rises == sorted(rises, reverse=True)
    assert RULE[:20] in gptx("heads", "--all").out
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


def test_python_and_command_measure_the_same_with_and_without_the_text(
    gptx: Gptx, home: Path
) -> None:
    run = gpt.load("checkpoints/corpus-1")
    record = json.loads(gptx("heads", "--run", "corpus-1", "--json").out)
    assert record["text"] == run.heads().text == "the validation split"
    assert record["rows"] == json.loads(json.dumps(to_record(run.heads())))["rows"]
    (home / "corpus.txt").rename(home / "elsewhere.txt")
    answer = gptx("heads", "--run", "corpus-1", "--data", "nowhere", "--json")
    (home / "elsewhere.txt").rename(home / "corpus.txt")
    assert "measuring on the validation split's first" in answer.err
    start = gpt.load(run.path / f"step-{run.stored.step:08}" / "model.safetensors").heads()
    record = json.loads(answer.out)
    assert record["text"] == start.text == "the validation split's first 306 characters"
    assert record["rows"] == json.loads(json.dumps(to_record(start)))["rows"]
