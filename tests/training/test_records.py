"""Records of the training between evaluations, and trackers that get them, too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from conftest import TEXT, corpus_of, manifest_of, resume
from program import TINY, Gptx

from gpt.storage.run import Run, new_run
from gpt.training import progress as module
from gpt.training import ranks
from gpt.training import trainer as trainer_module
from gpt.training.progress import Event, Stepped
from gpt.training.trainer import Job, Trainer


def new_trainer(folder: Path, name: str = "a", **train: Any) -> Trainer:
    """A trainer of 30 steps, evaluated each 6, in a new run on TEXT."""
    corpus = corpus_of(TEXT, folder / f"corpus-{ranks.rank()}")
    manifest = manifest_of(corpus, {"steps": 30, **train})
    if ranks.is_first():
        new_run(folder, name, name)
    return Trainer(Run(folder / name), Job(corpus, manifest))


def finish(trainer: Trainer, stop_after: int | None = None) -> list[Event]:
    events = []
    for event in trainer.events():
        events.append(event)
        if isinstance(event, Stepped) and event.step == stop_after:
            trainer.stop("SIGTERM")
    return events


def untimed(run: Run) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in each.items() if name != "characters_per_second"}
        for each in run.records("training")
    ]


def test_records_are_means_over_the_steps_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt.training.progress.RECORDS", 10)
    norms: list[float] = []
    take: Any = trainer_module.train_step

    def watched(*parts: Any, **more: Any) -> Any:
        loss, norm = take(*parts, **more)
        norms.append(norm)
        return loss, norm

    monkeypatch.setattr("gpt.training.trainer.train_step", watched)
    trainer = new_trainer(tmp_path, grad_clip=1e-3)
    losses = [event.loss for event in finish(trainer) if isinstance(event, Stepped)]
    assert recorded(trainer.run, "step") == [*range(3, 31, 3)]
    assert recorded(trainer.run, "train_loss") == pytest.approx(
        [sum(losses[n : n + 3]) / 3 for n in range(0, 30, 3)], rel=1e-5
    )
    assert recorded(trainer.run, "gradient_norm") == pytest.approx(
        [sum(norms[n : n + 3]) / 3 for n in range(0, 30, 3)], rel=1e-5
    )
    assert min(norms) > 1e-3  # the norm before clipping
    assert recorded(trainer.run, "learning_rate")[-1] == 0
    assert min(recorded(trainer.run, "characters_per_second")) > 0


def recorded(run: Run, name: str) -> list[float]:
    return [record[name] for record in run.records("training")]


@pytest.mark.parametrize("stops", [[8, 18], [17, 19]])
def test_a_resumed_run_has_the_records_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: list[int]
) -> None:
    monkeypatch.setattr("gpt.training.progress.RECORDS", 7)
    unbroken = new_trainer(tmp_path, "unbroken")
    finish(unbroken)
    trainer = new_trainer(tmp_path, "stopped")
    for stop in stops:
        finish(trainer, stop)
        trainer = resume(trainer.run, trainer.corpus, trainer.run.last())
    finish(trainer)
    assert untimed(trainer.run) == untimed(unbroken.run)
    kinds = [
        [(each["step"], "val_loss" in each) for each in lines_of(run)]
        for run in (trainer.run, unbroken.run)
    ]
    assert kinds[0] == kinds[1]  # the order of lines, too
    assert len(untimed(trainer.run)) == 7
    assert trainer.run.last().manifest.recording == (0.0, 0.0, 0)


def lines_of(run: Run) -> list[dict[str, Any]]:
    text = (run.path / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for tensorboardX.SummaryWriter."""
    package = MagicMock(__spec__=sys.__spec__)
    monkeypatch.setitem(sys.modules, "tensorboardX", package)
    return package.SummaryWriter


def test_tensorboard_gets_every_record_and_a_resumed_run_purges_repeated_steps(
    gptx: Gptx, home: Path, writer: Any
) -> None:
    options = ("--log", "tensorboard", "--run", "board")
    assert gptx("train", "corpus.txt", *TINY, *options).code == 0
    values = [call.args for call in writer().add_scalar.call_args_list]
    losses = [value for name, value, _ in values if name == "training/train_loss"]
    assert losses == recorded(Run(home / "checkpoints/board"), "train_loss")
    assert {"training/gradient_norm", "evaluation/val_loss"} <= {name for name, _, _ in values}
    writer().close.assert_called()
    assert gptx("train", "--resume", *options, "--steps", "12").code == 0
    assert writer.call_args.kwargs["purge_step"] == 9


def test_a_tracker_that_fails_gives_one_warning_and_training_goes_on(
    gptx: Gptx, home: Path, writer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    writer().add_scalar.side_effect = OSError("the disk\nis full")
    assert gptx("train", "corpus.txt", *TINY, "--run", "failing", "--log", "tensorboard").code == 0
    (told,) = [message for message in caplog.messages if "tensorboard failed" in message]
    assert told.endswith("(OSError: the disk); metrics.jsonl has all records")
    assert len(Run(home / "checkpoints/failing").records("training")) == 8


def test_a_missing_package_is_named_before_the_training(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda package: None)
    answer = gptx("train", "corpus.txt", *TINY, "--log", "tensorboard", "--run", "none")
    assert (answer.code, "--log tensorboard: needs tensorboardX" in answer.err) == (2, True)
    assert not (home / "checkpoints/none").exists()
