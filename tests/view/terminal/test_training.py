"""The card before a training, the lines during it, and how it ended."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import in_part, manifest, shown
from rich.cells import cell_len

from gpt.config import ModelConfig, TrainConfig
from gpt.config.schedule import Budget
from gpt.storage.losses import few_facts
from gpt.storage.manifest import Baseline, CorpusId
from gpt.storage.run import Run
from gpt.view.terminal.lines import card
from gpt.view.terminal.runs import story
from gpt.view.terminal.training import (
    baseline_facts,
    character_facts,
    chosen_line,
    corpus_facts,
    device_facts,
    evaluation_line,
    farewell,
    folded_facts,
    model_facts,
    result,
    sample_line,
    split_facts,
    time_facts,
    training_facts,
    whole_line,
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


@pytest.mark.parametrize(
    ("best_step", "since_best", "verdict"),
    [
        (400, 0, "best so far"),
        (200, 1, "best was step 200"),
        (1000, 3, "no better since step 1,000"),
    ],
)
def test_evaluation_is_one_line_with_its_result(
    best_step: int, since_best: int, verdict: str
) -> None:
    line = evaluation_line(4000, 1.95, 2.0, best_step, since_best, 100, 100)
    assert line == f"step 4,000 · train 1.9500 · val 2.0000 nats, 2.885 bits/char · {verdict}"
    line = evaluation_line(4000, 1.95, 2.0, best_step, since_best, 20_000, 111_539)
    unsure = re.sub("no better since|best was", "not clearly better since", verdict)
    assert line.endswith(f" nats, 2.885 bits/char (on 20,000 of 111,539) · {unsure}")


def test_the_choice_of_the_best_step_by_a_part_shows_its_error() -> None:
    numbers = "0.0004 ± 0.0056 nats lower than step 400 (paired standard error, on 1,792 of 111,539"
    start = f"step 200 · {numbers} validation characters) · "
    for error, sure, verdict in (
        (0.0056, False, "too little to tell, so the best step is 400"),
        (0.0001, True, "the best step"),
    ):
        line = chosen_line(400, 200, 0.0004, error, sure, 1792, 111_539)
        assert line == start.replace("0.0056", f"{error:.4f}") + verdict


def test_last_evaluation_shows_how_much_it_read() -> None:
    assert whole_line(400, 2.0, 111_539, 111_539, 3.4) == (
        "step 400 · val 2.0000 nats, 2.885 bits/char on all 111,539 validation characters, in 3 s"
    )
    assert "on 20,000 of 111,539 validation" in whole_line(400, 2.0, 20_000, 111_539, 1.0)


@settings(deadline=None, max_examples=60)
@given(text=st.text("ab \n\t\r\x1bé東👍\u202e", max_size=40), width=st.integers(8, 60))
def test_sample_in_training_output_is_one_escaped_line(text: str, width: int) -> None:
    line = sample_line(text, width)
    assert cell_len(line) <= width
    assert line.isprintable()
    assert line.startswith("  │ ")


@pytest.mark.parametrize("reason", ["finished", "patience", "interrupted"])
def test_last_lines_say_how_the_run_ended_and_how_to_continue(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPTX_CHECKPOINTS", raising=False)
    facts = farewell(Run(Path("checkpoints/tale-1")), manifest(elapsed=130.0), reason)
    assert facts["best"] == "2.2500 nats (3.246 bits/char) at step 12"
    assert facts["to beat"] == "counting 2-grams: 2.5000 nats; this model is 0.2500 better"
    assert facts["ended"].endswith("2 min 10 s, with evaluations and saves")
    assert "estimated" not in facts["ended"]
    assert "gptx runs tale-1" in facts["next"]
    assert "--checkpoints" not in facts["next"]
    goes_on = "gptx train --resume --run tale-1" if reason == "interrupted" else ""
    assert facts["go on"] == goes_on
    shared = replace(manifest(), environment={"ranks": 2})
    for shard, option in ((False, ""), (True, " --shard")):
        facts = farewell(Run(Path("checkpoints/tale-1")), shared, reason, shard)
        expected = goes_on.replace("gptx", "torchrun … -m -- gpt")
        assert facts["go on"] == expected + option * bool(expected)
    elsewhere = farewell(Run(Path("my runs/tale-1")), manifest(), reason)
    assert elsewhere["next"].count("--checkpoints 'my runs'") == 3


def test_last_lines_say_if_a_time_budget_has_changed_the_steps_much() -> None:
    ended = []
    for plan, steps in (("0:131 9:41", 41), ("0:980 90:978", 978), ("0:1", 1)):
        now = manifest(train=TrainConfig(steps=steps, step_plan=plan))
        ended.append(farewell(Run(Path("checkpoints/tale-1")), now, "finished")["ended"])
    ends = [each.split(",")[0] for each in ended]
    assert ends == ["all 41 steps (the card estimated 131)", "all 978 steps", "all 1 step"]


def test_train_and_eval_json_contain_numbers() -> None:
    found = json.loads(json.dumps(result("tale-1", manifest(), "finished")))
    assert found == {
        "run": "tale-1",
        "step": 1800,
        "reason": "finished",
        "best_step": 12,
        "val_nats": 2.25,
        "val_bits": pytest.approx(2.25 / math.log(2)),
        "val_characters": None,
        "val_split": None,
        "gpt_nats": None,
        "parent": None,
        "seconds": 130.0,
        "elapsed": 0.0,
        "minutes": None,
        "counting": {
            "order": 2,
            "nats": 2.5,
            "losses": [3.3, 2.5, 2.6],
            "counted": 1_003_854,
            "scored": 111_539,
            "difference": -0.25,
            "same_characters": True,
        },
    }
    part = result("tale-1", in_part(), "stopped")
    assert (part["val_nats"], part["val_characters"], part["val_split"]) == (2.25, 19_968, 111_539)
    assert (part["elapsed"], part["minutes"]) == (121.0, 2.0)
    whole = result("tale-1", in_part(whole_loss=2.375), "finished")
    assert (whole["val_nats"], whole["val_characters"]) == (2.375, 111_539)
    unevaluated = result("tale-1", manifest(best_loss=None, best_step=None), "stopped")
    assert unevaluated["val_nats"] is unevaluated["val_bits"] is None
    assert result("tale-1", manifest(baseline=None), "stopped")["counting"] is None
