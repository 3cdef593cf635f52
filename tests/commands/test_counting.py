"""The commands for a run with counting: three losses, two experts, and what each writes alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import payload_of
from program import TINY, Gptx

import gpt

COUNTED = [*TINY[: TINY.index("--counting")], "--counting", "6"]


@pytest.fixture
def counted(gptx: Gptx, home: Path) -> Gptx:
    if not (home / "checkpoints" / "counted").exists():
        answer = gptx("train", "corpus.txt", "--run", "counted", *COUNTED)
        assert answer.code == 0, answer.err
        assert "helped by counted letter sequences" in answer.err
        assert re.search(r"loss \d\.\d{3}, .*counting.*\n +the GPT alone \d\.\d{3}", answer.err)
    return gptx


def test_eval_says_the_losses_of_both_and_of_each(counted: Gptx) -> None:
    record = json.loads(counted("eval", "--run", "counted", "--json").out)
    told = counted("eval", "--run", "counted").out
    for name in ("nats", "gpt_nats"):
        assert f"{record[name]:.4f} nats" in told
    assert record["nats"] < record["gpt_nats"]
    assert record["sum_error"] < 1e-12


def test_what_shows_heads_is_about_the_gpt_alone_and_says_so_once(
    counted: Gptx, home: Path
) -> None:
    said = "note: this is the GPT alone; sample, next and eval also use counting\n"
    for line in (["attn", "the c"], ["heads", "--windows", "2"], ["why", "the c"]):
        assert counted(*line, "--run", "counted").err == said
        assert counted(*line, "--run", "counted", "--json").err == ""
        assert counted(*line, "--run", "corpus-1").err == ""
    for command in (("attn", "the cat"), ("live",)):
        for run, counts in (("counted", True), ("corpus-1", False)):
            assert counted(*command, "--run", run, "-o", "page.html").code == 0
            assert payload_of((home / "page.html").read_text("utf-8"))["counts"] == counts
    record = json.loads(counted("why", "the c", "--run", "counted", "--char", "a", "--json").out)
    assert sum(row["adds"] for row in record["rows"]) == pytest.approx(record["logit"], abs=1e-6)
    model = gpt.load("checkpoints/counted")
    alone = model.next("the c", temperature=1.0, only="gpt").expected
    (probability,) = record["probabilities"]
    assert alone[model.vocabulary.id_of("a")] == pytest.approx(probability, rel=1e-4)
