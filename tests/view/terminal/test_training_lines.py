"""Lines of a training: evaluations, samples, the end; and JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import in_part, manifest
from rich.cells import cell_len

from gpt.config import TrainConfig
from gpt.reading.score import Score
from gpt.storage.run import Run
from gpt.view.terminal.scores import score_line, score_record
from gpt.view.terminal.training import (
    chosen_line,
    evaluation_line,
    farewell,
    result,
    sample_line,
    whole_line,
)


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
    score = Score(math.log(4), 1000)
    record = {"nats": math.log(4), "bits": 2.0, "perplexity": 4.0, "characters": 1000}
    assert score_record(score) == pytest.approx(record)
    assert score_line(score) == (
        "1.3863 nats, 2.000 bits a character · perplexity 4.000 · 1,000 characters predicted"
    )
