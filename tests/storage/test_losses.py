"""A run's loss in words: compared with counting, and advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from manifests import manifest

from gpt.config import TrainConfig
from gpt.storage.losses import (
    best_facts,
    compared_with_counting,
    counting_facts,
    counting_record,
    loss_advice,
)
from gpt.storage.manifest import Baseline, Clock, Manifest


def evaluated(nats: float | None, **changes: Any) -> Manifest:
    """A run whose last step has this loss on 46,504 characters, and counting 1.121 nats."""
    baseline = Baseline((2.0, 1.4, 1.121), 418_543, 46_504)
    start = manifest(best_loss=nats, best_step=1800, val_characters=46_504, baseline=baseline)
    return replace(start, **changes)


def test_comparison_with_counting_has_the_same_words_everywhere() -> None:
    counted = "counting 3-grams: 1.1210 nats"
    advice = ": train longer, or on more text"
    for nats, words in (
        (1.1247, f"; this model is 0.0037 worse{advice}"),
        (1.071, "; this model is 0.0500 better"),
        (1.12096, "; this model is as good"),
        (1.12094, "; this model is 0.0001 better"),
        (None, ""),
    ):
        assert counting_facts(evaluated(nats)) == counted + words
    others = "on 46,504 characters, not those of the model (9,999)"
    assert counting_facts(evaluated(1.2, val_characters=9_999)) == f"{counted} {others}"
    assert counting_facts(evaluated(1.2, baseline=None)) == "–"
    assert counting_record(evaluated(1.2, baseline=None)) is None
    assert counting_record(evaluated(1.0)) == {
        "order": 3,
        "nats": 1.121,
        "losses": (2.0, 1.4, 1.121),
        "counted": 418_543,
        "scored": 46_504,
        "difference": pytest.approx(-0.121),
        "same_characters": True,
    }
    few = counting_facts(evaluated(9.0, val_characters=99, baseline=Baseline((2.0,), 9, 99)))
    assert few.endswith("; 99 characters are too few to compare the model")


def test_a_run_is_compared_with_counting_on_the_same_characters_or_not_at_all() -> None:
    whole = manifest(best_loss=2.0, best_step=1800)
    of_all = replace(whole, baseline=Baseline((2.5,), 9, 111_539))
    assert compared_with_counting(of_all) == "0.5000 better"
    of_part = replace(of_all, train=TrainConfig(eval_chars=50_000))
    # evaluations read windows of the whole split, counting its first characters
    like_part = replace(of_part, baseline=Baseline((2.5,), 9, of_part.shown_loss[1]))
    for each in (of_part, like_part):
        assert compared_with_counting(each) == "–"
        assert "better" not in counting_facts(each)
        record = counting_record(each)
        assert record
        assert (record["difference"], record["same_characters"]) == (None, False)


def test_advice_for_a_loss_above_the_baseline_fits_the_run() -> None:
    longer = "train longer, or on more text"
    assert loss_advice(2.0, manifest(best_step=1800)) == longer
    for most, advice in (
        (1801, longer),
        (
            1800,
            "train on more text; in more epochs the model would learn this one by heart",
        ),
    ):
        train = TrainConfig(steps=most)
        timed = manifest(best_step=1800, train=train, clock=Clock(seconds=60))
        assert loss_advice(2.0, timed) == advice
    assert loss_advice(9.0, manifest()) == f"even uniform guessing reaches 4.1744; {longer}"
    assert best_facts(manifest(best_loss=None, best_step=None)) == "not evaluated yet"
    few = "at step 12; 60 characters are too few to judge a model by"
    assert best_facts(manifest(val_characters=60)).endswith(few)


def test_a_run_that_gets_no_better_needs_more_text() -> None:
    for since_best, advice in (
        (1, "train longer, or on more text"),
        (2, "train on more text; no better since step 12"),
    ):
        assert loss_advice(2.6, manifest(since_best=since_best)) == advice
