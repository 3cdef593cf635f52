"""Records of the training between evaluations, and trackers that get them, too."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import TEXT, corpus_of, manifest_of, resume
from program import TINY, Gptx

import gpt
from gpt.errors import ConfigError
from gpt.storage.run import Run
from gpt.storage.runs import new_run
from gpt.training import events as module
from gpt.training import ranks
from gpt.training import trainer as trainer_module
from gpt.training.events import Event, Stepped
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
    monkeypatch.setattr("gpt.training.events.RECORDS", 10)
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
    monkeypatch.setattr("gpt.training.events.RECORDS", 7)
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


class FakeWriter:
    """Stands in for tensorboardX.SummaryWriter; raises at the step `fails`."""

    made: list[FakeWriter]
    fails: int | None = None

    def __init__(self, logdir: str, **options: Any) -> None:
        self.logdir, self.options = logdir, options
        self.values: list[tuple[str, float, int]] = []
        self.closed = False
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if self.fails is not None and step >= self.fails:
            raise OSError("the disk\nis full")
        self.values.append((name, value, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeWriter]]:
    fake: Any = ModuleType("tensorboardX")
    fake.__spec__ = sys.__spec__
    fake.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    monkeypatch.setattr(FakeWriter, "made", [], raising=False)
    yield FakeWriter.made
    FakeWriter.fails = None


def test_tensorboard_gets_every_record_and_a_resumed_run_purges_repeated_steps(
    gptx: Gptx, home: Path, writers: list[FakeWriter]
) -> None:
    options = ("--log", "tensorboard", "--run", "board")
    assert gptx("train", "corpus.txt", *TINY, *options).code == 0
    run = Run(home / "checkpoints/board")
    (writer,) = writers
    assert (Path(writer.logdir), writer.options) == (
        run.path.relative_to(home) / "tensorboard",
        {"purge_step": None},
    )
    assert writer.closed
    losses = [value for name, value, _ in writer.values if name == "training/train_loss"]
    assert losses == [each["train_loss"] for each in run.records("training")]
    named = {name for name, _, _ in writer.values}
    assert {"training/gradient_norm", "evaluation/val_loss", "evaluation/learning_rate"} <= named
    assert not named & {"training/step", "evaluation/since", "evaluation/best_step"}
    resumed = ("--resume", "--run", "board", "--steps", "12", "--log", "tensorboard")
    assert gptx("train", *resumed).code == 0
    assert writers[1].options == {"purge_step": 9}
    assert min(step for _, _, step in writers[1].values) == 9


def test_a_missing_package_is_named_before_the_training(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda package: None)
    answer = gptx("train", "corpus.txt", *TINY, "--log", "tensorboard", "--run", "none")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "gptx: error: --log tensorboard: needs tensorboardX, which is not installed: in the folder "
        "of gptx, pip install -e '.[tensorboard]'; elsewhere, pip install tensorboardX\n"
    )
    assert not (home / "checkpoints/none").exists()
    with pytest.raises(ConfigError, match=r"^log tensorboard: needs tensorboardX"):
        gpt.train("corpus.txt", log="tensorboard")
