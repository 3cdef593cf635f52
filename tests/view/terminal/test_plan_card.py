"""The card before a training, at any width."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from manifests import manifest, shown

from gpt.config import ModelConfig, TrainConfig
from gpt.config.schedule import Budget
from gpt.storage.manifest import Baseline, CorpusId
from gpt.storage.run import Run
from gpt.view.terminal.lines import card
from gpt.view.terminal.runs import story
from gpt.view.terminal.scores import few_facts
from gpt.view.terminal.training import (
    baseline_facts,
    character_facts,
    corpus_facts,
    device_facts,
    folded_facts,
    model_facts,
    result,
    split_facts,
    time_facts,
    training_facts,
)
from gpt.words import ordinal


def test_card_shows_the_facts_of_a_plan() -> None:
    config = ModelConfig(vocab_size=65, bias=True, qkv_bias=True, dropout=0.2)
    assert model_facts(config) == (
        "0.81 M parameters: 4 layers × 4 heads × 32, context 64; rotary positions, rms norm, "
        "relu2, biases, biases of q, k, v, dropout 0.2, fused attention"
    )
    assert training_facts(TrainConfig(), 2048, 1_003_854) == (
        "2,000 steps × 2,048 characters = 4.1 epochs, learning rate 0.002 → 0 (linear)"
    )
    about = "about 2,000 steps × 2,048 characters = 4.1 epochs"
    budget = Budget(seconds=120, per_step=0.06, evaluating=0, saving=0)
    assert training_facts(TrainConfig(), 2048, 1_003_854, budget).startswith(about)
    one, capped = TrainConfig(steps=1), replace(budget, most_steps=1)
    assert training_facts(one, 2048, 9, capped).startswith("at most 1 step ×")
    speed = "(estimated: 62 ms/step, 33,000 characters/s"
    total = f"about 2 min 10 s with evaluations and saves {speed})"
    assert time_facts(0.062, 2048, 130) == total
    assert time_facts(0.062, 2048, 120, 0.0, timed=True) == (
        f"2 min 0 s with evaluations and saves {speed}; the number of steps adapts to the measured "
        "speed)"
    )
    assert time_facts(0.062, 2048, 60, limit=120) == (
        f"about 1 min 0 s with evaluations and saves {speed}); if the machine is slower, fewer "
        "steps in 2 min 0 s"
    )
    assert time_facts(0.062, 2048, 130, 300.0) == (
        f"{total}; then about 5 min 0 s to evaluate the whole split (--eval-chars N: less)"
    )
    assert baseline_facts(math.log(65), Baseline((3.3, 2.5, 2.6), 900, 100)) == (
        "2.5000 nats/char by counting 2-grams · orders 1 to 3: 3.300 2.500 2.600 · uniform 4.174"
    )
    assert device_facts("cpu", {"threads": 2, "torch": "2.13.0"}) == (
        "cpu (2 threads, torch 2.13.0)"
    )
    assert device_facts("cpu", {"threads": 1, "torch": "2.13.0", "ranks": 3}) == (
        "cpu (3 ranks of 1 thread, torch 2.13.0)"
    )
    assert device_facts("cuda", {"device": "H200", "torch": "2.13.0", "ranks": 1}) == (
        "cuda (H200, torch 2.13.0)"
    )


def test_card_counts_the_heads_that_start_on_the_last_characters() -> None:
    def facts(heads: int) -> str:
        return model_facts(ModelConfig(vocab_size=65, n_head=4, previous_heads=heads))

    assert "rotary positions, 1 head starts on the last character, rms norm" in facts(1)
    assert "rotary positions, 3 heads start on the last characters, rms norm" in facts(3)
    assert "rotary positions, 4 heads start on the last characters, rms norm" in facts(9)
    assert "rotary positions, rms norm" in facts(0)


def test_card_names_three_sources_and_warns_about_a_large_vocabulary() -> None:
    small = ModelConfig(vocab_size=65)
    assert corpus_facts(["a", "b", "c"], 1_115_394, small) == (
        "a, b, c: 1,115,394 characters, 65 distinct"
    )
    assert corpus_facts([*"abcde"], 9, small).startswith("a, b, c and 2 more: 9 characters")
    large = ModelConfig(vocab_size=20_000)
    assert corpus_facts(["a"], 9, large).endswith("(they take 87% of the parameters)")


def test_card_shows_characters_visibly_and_at_most_some() -> None:
    assert character_facts("", "") == ""
    assert character_facts("\n\x1b", "é") == "rare: '⏎' '␛' · only in validation: 'é'"
    assert character_facts("abcde", "", most=3) == "rare: 'a' 'b' 'c' and 2 more"


def test_replaced_characters_are_listed_with_counts() -> None:
    corpus = CorpusId("0" * 64, 1_000_000, ("a",), folded="\x1béñ", folded_count=14)
    assert folded_facts(corpus, most=2) == (
        "'␛' 'é' and 1 more became '\ufffd': 3 rare characters, 14 of 1,000,000 in the text "
        "(0.0014%)"
    )
    assert folded_facts(replace(corpus, folded="", folded_count=0)) == ""
    record = result("tale-1", manifest(corpus=corpus), "finished")
    assert record["folded"] == {
        "characters": "\x1béñ",
        "kinds": 3,
        "count": 14,
        "share": 1.4e-05,
    }
    assert "1 more" not in shown(story(Run(Path("x")), manifest(corpus=corpus), [], []))
    assert "became" in shown(story(Run(Path("x")), manifest(corpus=corpus), [], []))


def test_card_says_what_validates_and_how_much_is_read() -> None:
    def facts(split: str, block: int = 0, read: int = 99, last: int = 99) -> str:
        found = split_facts(900, 100, TrainConfig(split=split), block, read, last)
        few = f"; {last} characters are too few to judge a model by"
        assert found.endswith(few)
        return found.removesuffix(few)

    plain = "900 to train on, 100 to validate"
    assert facts("last") == plain
    assert facts("every:3") == f"{plain}: every 3rd text"
    assert facts("every:10", 65536) == f"{plain}: every 10th block of 65,536 characters"
    read = f"{plain}: b.txt; evaluations read 50 of them, evenly distributed"
    assert facts("b.txt", 0, 50, 50) == f"{read} (--eval-chars)"
    assert facts("b.txt", 0, 50) == f"{read}; the last one reads all"
    assert facts("b.txt", 0, 50, 80) == f"{read}; the last one reads 80"
    assert few_facts(0) == few_facts(1000) == ""
    pairs = split_facts(764, 61, TrainConfig(), 0, 60, 60, (46, 4))
    assert pairs.endswith("; 60 characters are too few to judge a model by")
    assert baseline_facts(1.0, Baseline((0.5,), 400, 10), counts_all=False).endswith(
        "uniform 1.000 (counted in the last 400 characters of the training split, "
        "scored on the first 10 of the validation split)"
    )
    numbers = (2, 11, 12, 13, 21, 22, 103, 111, 1001)
    names = "2nd 11th 12th 13th 21st 22nd 103rd 111th 1,001st"
    assert " ".join(map(ordinal, numbers)) == names


@pytest.mark.parametrize("width", [40, 80])
def test_baseline_fits_a_narrow_card_without_broken_numbers(width: int) -> None:
    baseline = Baseline((3.238, 2.317, 1.694, 1.344, 1.205, 1.159, 1.14, 1.1213), 9, 9)
    facts = baseline_facts(4.635, baseline)
    lines = shown(card({"to beat": facts}), width).splitlines()
    assert len(lines) <= {40: 5, 80: 2}[width]
    words = " ".join(" ".join(lines).split())
    assert words == f"to beat {facts}"  # no number is broken
