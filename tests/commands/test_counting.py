"""The commands for a run with counting: three losses, two experts, and what each writes alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pages import payload_of
from program import TINY, Gptx

import gpt
from gpt.counting import mixture as mixtures
from gpt.counting import tables
from gpt.counting.mixture import log_softmax

COUNTED = [*TINY[: TINY.index("--counting")], "--counting", "6"]


@pytest.fixture
def counted(gptx: Gptx, home: Path) -> Gptx:
    if not (home / "checkpoints" / "counted").exists():
        answer = gptx("train", "corpus.txt", "--run", "counted", *COUNTED)
        assert answer.code == 0, answer.err
        assert "helped by counted letter sequences" in answer.err
        assert re.search(r"the GPT alone \d\.\d{3}", answer.err)
    return gptx


def test_eval_says_three_losses(counted: Gptx) -> None:
    told = counted("eval", "--run", "counted").out
    both, gpt = map(float, re.findall(r"(\d\.\d{4}) nats", told)[:2])
    counting = float(re.findall(r"than counting \((\d\.\d{4})\)", told)[0])
    record = json.loads(counted("eval", "--run", "counted", "--json").out)
    shown = (record["nats"], record["gpt_nats"], record["counting"]["nats"])
    assert shown == pytest.approx((both, gpt, counting), abs=5e-5)
    assert record["sum_error"] < 1e-12
    assert "GPT alone" in counted("runs", "counted").out


def test_a_mixture_whose_probabilities_sum_to_another_number_is_found(
    counted: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, text = gpt.load("checkpoints/counted"), "the cat sat on the mat. " * 9
    assert (model.eval(text).score.sum_error or 1) < 1e-12

    def wrong_at_one_position(scores: mixtures.Logits) -> mixtures.Array:
        found = log_softmax(scores)
        found[-1] += np.log(1.25)
        return found

    monkeypatch.setattr(mixtures, "log_softmax", wrong_at_one_position)
    assert model.eval(text).score.sum_error == pytest.approx(0.25)
    monkeypatch.setattr(mixtures, "log_softmax", lambda scores: scores)  # without ln Z
    assert (model.eval(text).score.sum_error or 0) > 0.01


def test_train_says_once_that_it_counts_fewer_orders(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = r"note: counts n-grams up to (\d), not 6: this text has too many different ones"
    assert not re.search(fewer, gptx("train", "corpus.txt", "--run", "all-orders", *COUNTED).err)
    monkeypatch.setattr(tables, "MOST_GRAMS", 200)
    answer = gptx("train", "corpus.txt", "--run", "fewer", *COUNTED)
    assert answer.code == 0, answer.err
    (orders,) = re.findall(fewer, answer.err)
    assert 1 <= int(orders) < 6
    mixture = gpt.load("checkpoints/fewer").mixture
    assert mixture is not None
    assert mixture.expert.trie.orders == int(orders)
    last = gptx("train", "--resume", "--run", "fewer", "--steps", "12").err
    assert len(re.findall(fewer, last)) == 1


def test_next_shows_both_experts_and_their_weights(counted: Gptx) -> None:
    out = counted("next", "the ca", "--run", "counted", "--all").out
    assert re.search(r"expected +after temperature 0.8 +the GPT alone +counting", out)
    assert re.search(r"expected +GPT\^\d?\.\d\d × counting\^\d?\.\d\d, scaled to sum 1", out)
    assert "used the last 5 characters, seen" in out
    for only in ("gpt", "counting"):  # there is no product
        one = counted("next", "the ca", "--run", "counted", "--only", only, "--all")
        assert "GPT" not in one.out
    record = json.loads(counted("next", "the ca", "--run", "counted", "--json").out)
    assert len(record["weights"]) == 2
    for name in ("gpt", "counting", "expected"):
        assert sum(each[name] for each in record["rows"]) == pytest.approx(1, abs=1e-6)


def test_sample_writes_with_either_expert_alone(counted: Gptx) -> None:
    def text(*options: str) -> str:
        return counted("sample", "--run", "counted", "--length", "40", "--seed", "1", *options).out

    gpt, counting = text("--only", "gpt"), text("--only", "counting")
    assert gpt not in (counting, text())
    assert counting.startswith("no cat")  # after a line break, as in the text; 8 steps teach less


def test_a_model_without_counting_refuses_to_count(gptx: Gptx) -> None:
    answer = gptx("sample", "--run", "corpus-1", "--only", "counting")
    assert (answer.code, answer.out) == (2, "")
    assert "--only: this model was trained without counting" in answer.err


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
