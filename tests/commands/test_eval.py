"""`gptx eval`: the loss of training, every character's surprisal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from program import TINY, Gptx

import gpt
from gpt.show.result import to_record


def test_python_evaluates_as_the_command_does(gptx: Gptx) -> None:
    run = gpt.load("checkpoints")
    for text, file in ((None, []), (Path("corpus.txt").read_text(), ["corpus.txt"])):
        record = json.loads(gptx("eval", *file, "--json").out)
        mine = to_record(run.eval(text), run.stored.origin) | {"device": "cpu"}
        assert mine | {"scored": record["scored"]} == record


def test_eval_says_the_loss_in_six_lines(gptx: Gptx) -> None:
    lines = gptx("eval").out.splitlines()
    record = json.loads(gptx("eval", "--json").out)
    told = json.loads(gptx("runs", "--json").out.splitlines()[-1])["counting"]
    worse = f"{record['nats'] - told['nats']:.4f}"
    assert lines[0] == f"validation split of corpus-1 · {record['characters']:,} characters"
    assert lines[1].endswith(f"{record['nats']:.4f} nats a character ({record['bits']:.3f} bits)")
    assert lines[2].endswith(
        f"as uncertain as among {record['perplexity']:.1f} equally likely characters"
    )
    assert len(lines) == 4
    assert worse in lines[3]  # after eight steps the model is worse than counting
    (Path.cwd() / "new.txt").write_text("no mat, no cat")
    assert "compared" not in gptx("eval", "new.txt").out


def test_eval_colours_every_character(gptx: Gptx) -> None:
    text = Path("corpus.txt").read_text(encoding="utf-8")
    answer = gptx("eval", "corpus.txt", "--chars")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert f"\n{text.splitlines()[0]}" in answer.out
    assert "\x1b[" in gptx("eval", "corpus.txt", "--chars", "--color", "always").out
    record = json.loads(gptx("eval", "corpus.txt", "--chars", "--json").out)
    bits = [row["bits"] for row in record["rows"]]
    assert len(bits) == len(text) - 1
    assert np.mean(bits) == pytest.approx(record["in_context"]["bits"], rel=1e-6)
    whole = json.loads(gptx("eval", "corpus.txt", "--json").out)
    assert [record[name] for name in whole] == list(whole.values())
    assert record["bits"] != record["in_context"]["bits"]
    assert f"\nin context  {record['in_context']['nats']:.4f} nats" in answer.out


def test_eval_without_its_corpus_says_what_to_do(gptx: Gptx, home: Path) -> None:
    corpus = home / "corpus.txt"
    whole = corpus.read_bytes()
    try:
        corpus.write_bytes(whole[:-9])
        changed = gptx("eval", "--data", "nowhere")
        assert gptx("eval", "corpus.txt", "--data", "nowhere").code == 0
        corpus.rename("gone.txt")
        gone = gptx("eval", "--data", "nowhere")
    finally:
        corpus.write_bytes(whole)
    for answer, problem in (
        (changed, "corpus changed: corpus.txt is not the text that run "),
        (gone, "cannot read corpus 'corpus.txt': no such file or folder"),
    ):
        assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
        assert problem in answer.err
        assert "--changed-corpus" not in answer.err
        assert answer.err.endswith("; or give a text\n")
        assert re.search(r"run \S+ was trained on .*\(\d[\d,]* characters\)", answer.err)
        assert "the validation split needs the corpus: " in answer.err


def test_an_excerpt_of_the_training_text_is_named_and_measured(gptx: Gptx, home: Path) -> None:
    draws = np.random.default_rng(3).integers(0, 26, (3, 9000)) + ord("a")
    text, new, first = (bytes(each.tolist()).decode() for each in draws)
    (home / "letters.txt").write_text(text)
    (home / "first.txt").write_text(first)
    assert gptx("train", "first.txt", *TINY, "--run", "first").code == 0
    child = gptx("train", "letters.txt", "--init-from", "first", "--steps", "2", "--run", "let")
    assert child.code == 0
    assert gptx("train", "letters.txt", *TINY, "--run", "alone").code == 0
    is_in = "is in the text that this run was trained on, so the loss says nothing about new texts"
    for start, run in ((0, "alone"), (777, "alone"), (8000, "let"), (4001, "let")):
        answer = gptx("eval", "-", "--run", run, "--json", stdin=text[start : start + 100].encode())
        assert f"warning: standard input {is_in}" in answer.err
        assert json.loads(answer.out)["learned"] == 1.0
    of_parent = gptx("eval", "-", "--run", "let", stdin=first[500:700].encode())
    assert f"warning: standard input {is_in}" in of_parent.err
    for unseen in (new[:500], text[8200:], text[:99], text[:99] + new[:400]):
        answer = gptx("eval", "-", "--run", "alone", "--json", stdin=unseen.encode())
        assert "warning" not in answer.err
        assert json.loads(answer.out)["learned"] == 0.0
    mixed = (new[:600] + text[300:700]).encode()
    part = gptx("eval", "-", "--run", "alone", "--json", stdin=mixed)
    assert f"warning: 40% of standard input {is_in}" in part.err
    record = json.loads(part.out)
    assert (record["learned"], record["trained_on"]) == (pytest.approx(0.4, abs=0.002), False)
