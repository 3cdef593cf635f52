"""`gptx heads`: the ranking, with the corpus and without it, its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

from program import Gptx


def test_heads_are_ranked_on_the_validation_split_or_a_text(gptx: Gptx, home: Path) -> None:
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


def test_heads_without_the_corpus_use_what_the_model_carries(gptx: Gptx) -> None:
    (Path("corpus.txt")).rename("elsewhere.txt")
    try:
        answer = gptx("heads", "--data", "nowhere")
    finally:
        Path("elsewhere.txt").rename("corpus.txt")
    assert answer.code == 0
    assert "measuring on what of it the model carries" in answer.err
    assert "of the validation split's start" in answer.out


def test_a_page_of_heads_and_of_two_steps(gptx: Gptx, home: Path) -> None:
    assert gptx("heads", "-o", "heads.html").code == 0
    assert "induction" in (home / "heads.html").read_text(encoding="utf-8")
    assert gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.html").code == 0
    assert "step 4" in (home / "two.html").read_text(encoding="utf-8")
    answer = gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.svg")
    assert answer.code == 2
    assert "shows one checkpoint" in answer.err
    assert gptx("heads", "-o", "heads.csv").code == 2
