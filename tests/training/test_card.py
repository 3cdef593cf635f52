"""The card before a training, the lines during it, and how it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import manifest
from rich.cells import cell_len

from gpt.config import ModelConfig, TrainConfig
from gpt.config.train import MOST_STEPS
from gpt.corpus.corpus import Corpus
from gpt.storage.checkpoint_files import Baseline, Clock, Manifest
from gpt.storage.run import Run
from gpt.training.card import EventLines, end_card, plan_card, whole_card
from gpt.training.plan import Machine, Plan
from gpt.training.progress import Sampled, Speed
from gpt.vocabulary import Vocabulary

CLOCK = Clock(seconds=120)
LETTERS = Vocabulary("\n abcdefghijklmnopqrstuvwxyz")


def machine_of(ranks: int) -> Machine:
    facts = {"device": "H200", "threads": 2, "torch": "2.13.0", "ranks": ranks}
    return Machine("cpu", 1e11, None, facts)


def plan(
    train: TrainConfig | None = None, block: int = 0, val: int = 111_540, **changes: Any
) -> Plan:
    """A plan for the corpus of `manifest`. clock: the run's."""
    begun = manifest(
        step=0,
        train=train or TrainConfig(),
        val_characters=val - 1,
        clock=changes.pop("clock", None),
        baseline=changes.pop("baseline", Baseline((3.3, 2.5, 2.6), 1_003_854, 111_539)),
    )
    start = Plan(
        corpus=Corpus(np.zeros(9, np.uint8), begun.vocabulary, begun.corpus, block=block),
        manifest=begun,
        machine=machine_of(changes.pop("ranks", 1)),
        speed=Speed(0.062),
        steps=begun.train.steps,
        train_characters=1_003_854,
    )
    return replace(start, **changes)


def timed(**changes: Any) -> Plan:
    return plan(TrainConfig(steps=MOST_STEPS), clock=CLOCK, **{"steps": 2000, **changes})


def fact(plan: Plan, name: str) -> str:
    """One fact of the whole card."""
    return str(whole_card(plan)[name])


def test_the_card_says_text_model_time_and_goal() -> None:
    assert plan_card(timed(suggests_longer=True)) == {
        "text": "shakespeare.txt · 1,115,394 characters, 65 different; the last tenth tests the "
        "model",
        "model": "a GPT of 4 layers × 4 heads",
        "time": "2 min 0 s (--minutes 15: better)",
        "goal": "a loss below that of counting alone, 2.500; guessing has 4.174",
        "": "everything else: --all",
    }
    start = plan(TrainConfig(split="every:3"))
    counts = replace(start.manifest, model=ModelConfig(vocab_size=65, counting=8))
    card = plan_card(replace(start, manifest=counts))
    assert card["model"] == "a GPT of 4 layers × 4 heads, helped by counted letter sequences"
    assert str(card["text"]).endswith("; every 3rd text tests the model")
    assert card["time"] == "about 2 min 18 s"


def test_card_says_what_validates_and_how_much_is_read() -> None:
    def split(train: TrainConfig, block: int = 0, **changes: Any) -> str:
        return fact(plan(train, block, train_characters=900, **changes), "split")

    plain = "900 to train on, 111,540 to validate"
    assert split(TrainConfig()) == f"{plain}: the last tenth"
    assert split(TrainConfig(split="every:3")) == f"{plain}: every 3rd text"
    assert split(TrainConfig(split="every:10"), 65536) == f"{plain}: every 10th block"
    read = f"{plain}: b.txt; evaluations read 19,968 of them, evenly distributed; "
    read += "the last one, after the training, reads all"
    part = TrainConfig(split="b.txt", eval_chars=20_000)
    assert split(part) == read
    assert split(part, clock=CLOCK) == f"{read}, or as many as 5% of the time allows"


@settings(deadline=None, max_examples=60)
@given(text=st.text("ab \n\t\r\x1bé東👍\u202e", max_size=40), width=st.integers(20, 60))
def test_sample_in_training_output_is_one_escaped_line(text: str, width: int) -> None:
    trainer: Any = SimpleNamespace(stop_reason=None)
    [line] = EventLines(trainer, width, loss="1.500").after(Sampled(40, text))
    assert cell_len(line) <= width
    assert line.isprintable()
    assert line.startswith("     40   1.500")


def end(now: Manifest, reason: str = "finished", text: str = "to be\n", **place: Any) -> Any:
    run = place.get("run", Run(Path("checkpoints/tale-1")))
    corpus = Corpus(LETTERS.encode(text), LETTERS, now.corpus)
    return end_card(run, now, reason, corpus)


COMPARED = Baseline((3.3, 2.5), 1_003_854, 111_539)


@pytest.mark.parametrize(
    ("nats", "alone", "verdicts"),
    [
        (2.25, 2.4, ["loss 2.250, better than counting (2.500)", "the GPT alone 2.400"]),
        (2.25, 2.55, ["better", "the GPT alone 2.550, not yet better than counting: "]),
        (2.6, None, ["loss 2.600, not better than counting (2.500): train longer"]),
        (None, None, ["not evaluated yet"]),
    ],
)
def test_the_end_compares_the_model_and_the_gpt_alone_with_counting(
    nats: float | None, alone: float | None, verdicts: list[str]
) -> None:
    ended = manifest(best_loss=nats, gpt_loss=alone, elapsed=120.0, baseline=COMPARED)
    lines = end(ended)["done"]
    assert all(verdict in line for verdict, line in zip(verdicts, lines, strict=True))


def test_the_end_says_how_much_was_read_and_calls_nothing_better_by_chance() -> None:
    part = manifest(train=TrainConfig(eval_chars=20_000), baseline=COMPARED, gpt_loss=2.54)
    read = "loss 2.250 on 19,968 of 111,539 validation characters; counting 2.500 on 111,539"
    assert end(part)["done"] == [f"0 s · {read}", "the GPT alone 2.540"]
    assert "not yet better" in end(replace(part, gpt_loss=2.56))["done"][1]


def test_the_end_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPTX_CHECKPOINTS", raising=False)
    resume = "gptx train --resume --run tale-1"
    usual = ["gptx sample --prompt to", "gptx live --open"]
    finished = end(manifest(elapsed=130.0))
    assert finished["saved"] == "checkpoints/tale-1"
    assert finished["next"] == [*usual, f"{resume} --minutes 10"]
    stopped = end(manifest(), "SIGINT")
    assert stopped["stopped"][0].startswith("after step 1,800, 0 s · loss 2.250")
    assert stopped["next"] == [*usual, resume]
    patience = end(manifest(since_best=3), "patience")
    assert patience["done"][0].startswith("0 s, no lower loss in 3 evaluations · ")
    assert patience["next"] == usual
    limit = end(manifest(train=TrainConfig(steps=1800), clock=CLOCK))
    assert "as with more epochs the model would learn the text by heart" in limit["done"][0]
    assert limit["next"] == usual
    elsewhere = end(manifest(), run=Run(Path("my runs/tale-1")))
    assert all("--checkpoints 'my runs'" in command for command in elsewhere["next"])


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("the cat\n  the dog\na rat\nthe end", " --prompt the"),
        ("once\nupon\nonce", " --prompt once"),
        ("\n\n a \n b", ""),
    ],
)
def test_the_suggested_prompt_is_a_frequent_beginning_of_a_line(text: str, prompt: str) -> None:
    assert end(manifest(), text=text)["next"][0] == f"gptx sample{prompt}"
