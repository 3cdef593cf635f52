"""The card before a training, the lines during it, and how it ended."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import shown
from gpt.config.schedule import Budget
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import manifest
from rich.cells import cell_len

from gpt.commands.progress import sample_line
from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus
from gpt.storage.manifest import Baseline
from gpt.storage.run import Run
from gpt.training.card import end_card, plan_card
from gpt.training.events import Chosen, Evaluated, EvaluatedWhole
from gpt.training.fit import Speed
from gpt.training.plan import Plan
from gpt.view.terminal.lines import Page

BUDGET = Budget(seconds=120, per_step=0.06, evaluating=0, saving=0)


def plan(
    train: TrainConfig | None = None, block: int = 0, val: int = 111_540, **changes: Any
) -> Plan:
    """A plan for the corpus of `manifest`. budget: the run's."""
    found = manifest(
        step=0,
        train=train or TrainConfig(),
        val_characters=val - 1,
        budget=changes.pop("budget", None),
    )
    vocabulary = found.vocabulary
    start = Plan(
        corpus=Corpus(np.zeros(9, np.uint8), vocabulary, found.corpus, block=block),
        manifest=found,
        device="cpu",
        environment={"threads": 2, "torch": "2.13.0"},
        speed=Speed(0.062, 0.0),
        baseline=Baseline((3.3, 2.5, 2.6), 1_003_854, 111_539),
        train_characters=1_003_854,
        val_characters=val,
        rare="",
        only_in_val="",
    )
    return replace(start, **changes)


def facts(plan: Plan, name: str, **recipe: Any) -> str:
    """One fact of the card."""
    (block,) = plan_card(plan, recipe)
    return str(block.values[name])  # type: ignore[union-attr]


def test_card_shows_the_facts_of_a_plan() -> None:
    whole = plan()
    steps = "2,000 steps × 2,048 characters = 4.1 epochs"
    assert facts(whole, "training") == f"{steps}, learning rate 0.002 → 0 (linear)"
    muon = facts(plan(TrainConfig(steps=9, matrix_lr=0.01)), "training")
    assert muon.endswith("learning rate 0.002 → 0 (linear; matrices by Muon, 5 times that)")
    assert facts(plan(budget=BUDGET), "training").startswith(f"about {steps}")
    capped = plan(TrainConfig(steps=1), budget=replace(BUDGET, most_steps=1))
    assert facts(capped, "training").startswith("at most 1 step ×")
    assert facts(whole, "to beat") == (
        "2.5000 nats/char by counting 2-grams · orders 1 to 3: 3.300 2.500 2.600 · uniform 4.174"
    )
    part = plan(baseline=Baseline((0.5,), 400, 10))
    assert facts(part, "to beat") == (
        "0.5000 nats/char by counting 1-grams · orders 1 to 1: 0.500 · uniform 4.174 (counted in "
        "the last 400 characters of the training split, scored on the first 10 of the validation "
        "split)"
    )
    assert facts(whole, "recipe") == ""
    assert facts(whole, "recipe", n_layer=2, bias=True, compile=False).endswith(
        ": --n-layer 2 --bias --no-compile"
    )
    rare = plan(rare="\n\x1b", only_in_val="é")
    assert facts(rare, "characters") == "rare: '⏎' '␛' · only in validation: 'é'"
    assert facts(whole, "characters") == ""


def test_card_names_the_device() -> None:
    for device, environment, words in (
        ("cpu", {"threads": 2}, "cpu (2 threads, torch 2.13.0)"),
        ("cpu", {"threads": 1, "ranks": 3}, "cpu (3 ranks of 1 thread, torch 2.13.0)"),
        ("cuda", {"threads": 2, "device": "H200"}, "cuda (H200, torch 2.13.0)"),
    ):
        found = plan(device=device, environment={"torch": "2.13.0", **environment})
        assert facts(found, "device") == words


def test_card_says_how_long_it_takes_and_what_ends_it_earlier() -> None:
    speed = "with evaluations and saves (estimated: 62 ms/step, 33,000 characters/s"
    assert facts(plan(), "time") == f"about 2 min 4 s {speed})"
    assert facts(plan(longer="; to train longer: …"), "time").endswith("/s); to train longer: …")
    assert facts(plan(budget=BUDGET), "time") == (
        f"2 min 0 s {speed}; the number of steps adapts to the measured speed)"
    )
    limited = plan(budget=replace(BUDGET, most_steps=2000))
    assert facts(limited, "time").endswith("; if the machine is slower, fewer steps in 2 min 0 s")
    long = plan(TrainConfig(eval_part=1000), speed=Speed(0.062, 300 / 111_539))
    assert facts(long, "time").endswith(
        "; then about 5 min 0 s to evaluate the whole split (--eval-chars N: less)"
    )


def test_card_says_what_validates_and_how_much_is_read() -> None:
    def split(train: TrainConfig, block: int = 0, **changes: Any) -> str:
        return facts(plan(train, block, train_characters=900, **changes), "split")

    plain = "900 to train on, 111,540 to validate"
    assert split(TrainConfig()) == plain
    assert split(TrainConfig(split="every:3")) == f"{plain}: every 3rd text"
    blocks = split(TrainConfig(split="every:10"), 65536)
    assert blocks == f"{plain}: every 10th block of 65,536 characters"
    read = f"{plain}: b.txt; evaluations read 19,968 of them, evenly distributed"
    part = {"split": "b.txt", "eval_part": 20_000}
    assert split(TrainConfig(**part)) == f"{read}; the last one reads all"
    assert split(TrainConfig(**part, eval_chars=64_000)) == f"{read}; the last one reads 64,000"
    same = split(TrainConfig(split="b.txt", eval_chars=20_000))
    assert same == f"{read} (--eval-chars)"
    few = "; 60 characters are too few to judge a model by"
    assert split(TrainConfig(), val=61) == f"900 to train on, 61 to validate{few}"


@pytest.mark.parametrize("width", [40, 80])
def test_card_fits_a_narrow_page_without_broken_numbers(width: int) -> None:
    lines = shown(plan_card(plan(), {}), Page(width))
    begin = next(n for n, line in enumerate(lines) if line.startswith("to beat"))
    end = next(n for n, line in enumerate(lines) if line.startswith("nats/char"))
    words = " ".join(" ".join(lines[begin:end]).split())
    assert words == f"to beat {facts(plan(), 'to beat')}"  # no number is broken
    assert not any(line.startswith("from") for line in lines)  # empty facts are left out


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
    line = str(Evaluated(4000, 1.95, 2.0, best_step, since_best, 100, 100))
    assert line == f"step 4,000 · train 1.9500 · val 2.0000 nats, 2.885 bits/char · {verdict}"
    line = str(Evaluated(4000, 1.95, 2.0, best_step, since_best, 20_000, 111_539))
    unsure = re.sub("no better since|best was", "not clearly better since", verdict)
    assert line.endswith(f" nats, 2.885 bits/char (on 20,000 of 111,539) · {unsure}")


def test_the_choice_of_the_best_step_by_a_part_shows_its_error() -> None:
    numbers = "0.0004 ± 0.0056 nats lower than step 400 (paired standard error, on 1,792 of 111,539"
    start = f"step 200 · {numbers} validation characters) · "
    for error, sure, verdict in (
        (0.0056, False, "too little to tell, so the best step is 400"),
        (0.0001, True, "the best step"),
    ):
        line = str(Chosen(400, 200, 0.0004, error, sure, 1792, 111_539))
        assert line == start.replace("0.0056", f"{error:.4f}") + verdict


def test_last_evaluation_shows_how_much_it_read() -> None:
    assert str(EvaluatedWhole(400, 2.0, 111_539, 111_539, 3.4)) == (
        "step 400 · val 2.0000 nats, 2.885 bits/char on all 111,539 validation characters, in 3 s"
    )
    part = EvaluatedWhole(400, 2.0, 20_000, 111_539, 1.0, 2.5)
    assert ", the GPT alone 2.5000 on 20,000 of 111,539 validation" in str(part)


@settings(deadline=None, max_examples=60)
@given(text=st.text("ab \n\t\r\x1bé東👍\u202e", max_size=40), width=st.integers(8, 60))
def test_sample_in_training_output_is_one_escaped_line(text: str, width: int) -> None:
    line = sample_line(text, width)
    assert cell_len(line) <= width
    assert line.isprintable()
    assert line.startswith("  │ ")


def last_facts(run: Run, *ended: Any) -> dict[str, Any]:
    (block,) = end_card(run, *ended)
    return dict(block.values)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sample", "prompt"),
    [
        ("", ""),
        (" - 7 it's late", " --prompt it"),
        ("árvíztűrő", " --prompt 'árvíztűrő'"),
        ("- – —", ""),
        ("a\x1bb\tc", ""),
    ],
)
def test_last_lines_name_a_prompt_that_the_model_knows(
    tmp_path: Path, sample: str, prompt: str
) -> None:
    run = Run(tmp_path)
    if sample:
        run.append("samples", {"step": 0, "text": sample})
    assert last_facts(run, manifest(), "finished")["next"][0].startswith(f"gptx sample{prompt} --")


def test_ctrl_c_is_called_stopped_and_a_signal_by_its_name() -> None:
    for reason, begin in (("SIGINT", "stopped after step 1,800 of"), ("SIGTERM", "SIGTERM after")):
        assert last_facts(Run(Path("tale-1")), manifest(), reason)["ended"].startswith(begin)


@pytest.mark.parametrize("reason", ["finished", "patience", "interrupted"])
def test_last_lines_say_how_the_run_ended_and_how_to_continue(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPTX_CHECKPOINTS", raising=False)
    run = Run(Path("checkpoints/tale-1"))
    facts = last_facts(run, manifest(elapsed=130.0), reason)
    assert facts["best"] == "2.2500 nats (3.246 bits/char) at step 12"
    assert facts["to beat"] == "counting 2-grams: 2.5000 nats; this model is 0.2500 better"
    assert facts["ended"].endswith("2 min 10 s, with evaluations and saves")
    assert "estimated" not in facts["ended"]
    assert facts["next"][-1] == "gptx runs tale-1"
    goes_on = "gptx train --resume --run tale-1" if reason == "interrupted" else ""
    assert facts["go on"] == goes_on
    lines = shown(end_card(run, manifest(), reason), Page(60))
    assert lines[-2:] == ["         gptx attn", "         gptx runs tale-1"]
    shared = replace(manifest(), environment={"ranks": 2})
    expected = goes_on.replace("gptx", "torchrun … -m -- gpt")
    assert last_facts(run, shared, reason)["go on"] == expected
    elsewhere = last_facts(Run(Path("my runs/tale-1")), manifest(), reason)
    assert all(each.endswith("--checkpoints 'my runs'") for each in elsewhere["next"])


def test_last_lines_say_what_more_time_would_gain_and_how_to_take_it(tmp_path: Path) -> None:
    run, train = Run(tmp_path / "tale-1"), TrainConfig(steps=1000)
    run.path.mkdir()
    for step in range(100, 1001, 100):
        losses = {"train_loss": 2.0, "val_loss": 3 - step / 1000}
        run.append("metrics", {"step": step, **losses, "learning_rate": 0.1, "seconds": 1.0})
    ended = manifest(step=1000, train=train, best_step=10000, since_best=0, elapsed=180.0)
    facts = last_facts(run, ended, "finished")
    assert facts["more time"] == (
        "twice the time would lower the loss by about 0.2 nats; the text is not the limit"
    )
    assert facts["go on"].startswith("gptx train --resume --run tale-1 --checkpoints ")
    assert facts["go on"].endswith(" --minutes 3")
    short = replace(ended, train=TrainConfig(steps=90), step=90, best_step=60, since_best=3)
    assert last_facts(run, short, "finished")["more time"] == ""  # 90 steps do not tell
    again = TrainConfig(steps=1000, step_plan="0:800 800+:1000")
    cycle = replace(ended, train=again, best_step=700, since_best=2)
    assert "the text is the limit: no better" not in str(last_facts(run, cycle, "finished"))
    worse = last_facts(run, replace(ended, best_step=700, since_best=3), "finished")
    assert worse["more time"] == (
        "the text is the limit: no better since step 700; more text helps more than more time"
    )
    assert worse["go on"] == ""
    budget = Budget(seconds=60.0, per_step=0.1, evaluating=0.1, saving=0.1, most_steps=1000)
    used = last_facts(run, replace(ended, budget=budget), "finished")
    assert re.match(r"the text is the limit: it has been read \d+ times; more", used["more time"])
    soon = last_facts(run, replace(ended, budget=replace(budget, most_steps=1500)), "finished")
    assert soon["more time"].endswith(" nats; then the text is the limit")
    few = replace(ended, step=200, train=TrainConfig(steps=200), best_step=200)
    for unknown in (few, replace(ended, step=500), replace(ended, train=TrainConfig(steps=2000))):
        assert last_facts(run, unknown, "SIGINT")["more time"] == ""


def test_last_lines_say_if_a_time_budget_has_changed_the_steps_much() -> None:
    ended = []
    for planned, steps in (("0:131 9:41", 41), ("0:980 90:978", 978), ("0:1", 1)):
        now = manifest(train=TrainConfig(steps=steps, step_plan=planned))
        ended.append(last_facts(Run(Path("checkpoints/tale-1")), now, "finished")["ended"])
    ends = [each.split(",")[0] for each in ended]
    assert ends == ["all 41 steps (the card estimated 131)", "all 978 steps", "all 1 step"]
