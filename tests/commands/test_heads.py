"""`gptx heads`: the ranking, with and without the corpus, and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from program import Gptx

import gpt
from gpt.heads.kinds import RULE
from gpt.heads.survey import Survey
from gpt.view.terminal.heads import heads_record


def test_heads_command_measures_the_validation_split_or_a_text(gptx: Gptx, home: Path) -> None:
    answer = gptx("heads", "--ablate", "mean")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert re.fullmatch(r"heads · \d+ windows of 16 characters of the validation split", lines[0])
    heads = [line for line in lines if line.startswith("layer ")]
    assert len(heads) == 4
    assert next(line for line in lines if line.startswith("uniform"))
    piped = gptx("heads", "-", "--sort", "sink", "--json", stdin=b"the cat sat on the mat")
    record = json.loads(piped.out)
    assert (record["text"], record["windows"], record["characters"]) == ("standard input", 1, 16)
    sink = next(each["values"] for each in record["measures"] if each["name"] == "sink")
    ranking = [sink[layer][head] for layer, head in record["ranking"]]
    assert ranking == sorted(ranking, reverse=True)


def test_heads_can_be_resampled_from_other_windows(gptx: Gptx) -> None:
    answer = gptx("heads", "--ablate", "resample", "--json")
    assert (answer.code, answer.err) == (0, "")
    ablation = json.loads(answer.out)["measures"][-1]
    assert ablation["name"] == "ablation"
    assert "that of another window, drawn at random" in ablation["explained"]
    one = gptx("heads", "-", "--ablate", "resample", stdin=b"the cat sat")
    assert one.code == 3
    assert "resample needs two windows or more; give a longer text" in one.err


def test_heads_without_corpus_uses_the_text_in_the_model_file(gptx: Gptx) -> None:
    (Path("corpus.txt")).rename("elsewhere.txt")
    try:
        answer = gptx("heads", "--data", "nowhere")
    finally:
        Path("elsewhere.txt").rename("corpus.txt")
    assert answer.code == 0
    assert "measuring on the start of the validation split, stored in the model file" in answer.err
    assert re.match(
        r"heads · \d+ windows? of 16 characters of the validation split's first ", answer.out
    )


def test_python_and_command_measure_the_same_for_the_same_text(gptx: Gptx, home: Path) -> None:
    run = gpt.load("checkpoints/corpus-1")

    def same(record: dict[str, Any], survey: Survey) -> bool:
        expected = json.loads(json.dumps(heads_record(survey, {})))
        return all(record[key] == expected[key] for key in ("measures", "kinds", "windows"))

    text = (home / "corpus.txt").read_text(encoding="utf-8")
    on_split = json.loads(gptx("heads", "--run", "corpus-1", "--json").out)
    assert on_split["text"] == "the validation split"
    assert same(on_split, run.heads(text[int(0.9 * len(text)) :]))
    (home / "corpus.txt").rename(home / "elsewhere.txt")
    try:
        answer = gptx("heads", "--run", "corpus-1", "--data", "nowhere", "--json")
    finally:
        (home / "elsewhere.txt").rename(home / "corpus.txt")
    on_start, in_python = json.loads(answer.out), run.heads()
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
    assert RULE in page
    assert gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.html").code == 0
    assert "step 4" in (home / "two.html").read_text(encoding="utf-8")
    answer = gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.svg")
    assert answer.code == 2
    assert "shows one checkpoint" in answer.err
    assert gptx("heads", "-o", "heads.csv").code == 2
