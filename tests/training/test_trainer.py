"""Training: stopping and resuming changes no bit, and a failure leaves the saved files intact."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT, corpus_of, manifest_of, resume

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.errors import GptxError, NumericsError, StorageError
from gpt.interface.trained import TrainedGPT
from gpt.show.result import Check
from gpt.storage import files
from gpt.storage.run import MODEL, STATE, Run, new_run
from gpt.training import trainer as module
from gpt.training.progress import (
    Evaluated,
    Event,
    Saved,
    Stepped,
    Stopped,
)
from gpt.training.step import Losses, evaluate
from gpt.training.trainer import Job, Trainer

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout in heads": {"dropout": 0.2, "attention_dropout": 0.1, "attention": "heads"},
    "dropped weights alone, bfloat16": {"attention_dropout": 0.3, "precision": "bfloat16"},
    "averaged, by epochs": {"average": 0.9, "window_order": "epochs", "batch_size": 7},
    "classic": {"schedule": "cosine", "position": "learned", "dropout": 0.1, "eval_chars": 50},
    "counting": {"counting": 5},
    "Muon": {"matrix_lr": 1e-2, "weight_decay": 0.5},
    "Muon of heads, in bfloat16": {
        "matrix_lr": 1e-2,
        "precision": "bfloat16",
        "attention": "heads",
    },
    "two learning rates": {"embedding_lr": 1e-2},
    "averaged, tied heads": {"average": 0.9, "tied": True, "attention": "heads"},
}


def new_trainer(folder: Path, **options: Any) -> Trainer:
    """A trainer of 30 steps, evaluated each 6, in a new run on TEXT."""
    corpus = corpus_of(TEXT, folder)
    train = {"steps": 30, **only_fields(TrainConfig, options)}
    manifest = manifest_of(corpus, train, **only_fields(ModelConfig, options))
    return Trainer(new_run(folder / "checkpoints", "tiny"), Job(corpus, manifest))


def finish(trainer: Trainer, stop_after: int | None = None) -> list[Event]:
    """Trains to the end, or asks for it once so many steps are done."""
    events: list[Event] = []
    if stop_after == trainer.manifest.step:
        trainer.stop("SIGTERM")
    for event in trainer.events():
        events.append(event)
        if isinstance(event, Stepped) and event.step == stop_after:
            trainer.stop("SIGTERM")
    return events


def resumed(trainer: Trainer, **changed: Any) -> Trainer:
    """Another trainer, which goes on from what this one saved last, with changed options."""
    return resume(trainer.run, trainer.corpus, trainer.run.last(), **changed)


def outcome(run: Run) -> tuple[Any, ...]:
    """Everything that a run saves, except times."""
    last = run.last()
    untimed = {"seconds": 0, "elapsed": 0, "evaluation_seconds": 0}
    metrics = [{**record, **untimed} for record in run.records("metrics")]
    weights = (last.path / MODEL).read_bytes(), (last.path / STATE).read_bytes()
    manifest = replace(last.manifest, seconds=0, elapsed=0)
    return *weights, manifest, metrics, run.at().manifest.step


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Variant -> the outcome of an unbroken run."""

    @cache
    def left_by(variant: str) -> tuple[Any, ...]:
        trainer = new_trainer(tmp_path_factory.mktemp("unbroken"), **VARIANTS[variant])
        finish(trainer)
        return outcome(trainer.run)

    return left_by


@pytest.mark.parametrize(
    ("variant", "stops"),
    [
        *[("plain", stops) for stops in ([17], [0, 1], [6, 30])],
        *[(variant, [8, 18]) for variant in VARIANTS if variant != "plain"],
    ],
)
def test_stopping_and_resuming_changes_no_bit(
    tmp_path: Path, unbroken: Any, variant: str, stops: Sequence[int]
) -> None:
    trainer = new_trainer(tmp_path, **VARIANTS[variant])
    for stop in stops:
        assert finish(trainer, stop)[-1] == Stopped(stop, "SIGTERM")
        trainer = resumed(trainer)
        assert trainer.manifest.step == stop
    assert finish(trainer)[-1] == Stopped(30, "finished")
    model, state, manifest, metrics, best = outcome(trainer.run)
    assert metrics == unbroken(variant)[3]
    assert [each["step"] for each in metrics if "val_loss" in each] == [6, 12, 18, 24, 30]
    assert (model, state, manifest, best) == unbroken(variant)[:3] + unbroken(variant)[4:]


def test_steps_after_the_last_save_are_repeated(tmp_path: Path, unbroken: Any) -> None:
    trainer = new_trainer(tmp_path)
    events = trainer.events()
    while not (isinstance(next(events), Evaluated) and trainer.manifest.step == 18):
        pass  # killed between step 18's evaluation and its save
    assert trainer.run.last().manifest.step == 12
    finish(again := resumed(trainer))
    assert outcome(again.run) == unbroken("plain")


def test_evaluation_interval_does_not_change_weights(tmp_path: Path, unbroken: Any) -> None:
    trainer = new_trainer(tmp_path, eval_interval=4)
    finish(trainer)
    assert outcome(trainer.run)[:2] == unbroken("plain")[:2]


def test_events_come_in_order_and_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events = finish(trainer := new_trainer(tmp_path, steps=4, eval_interval=2))
    steps = [Stepped, Stepped, Evaluated, Saved]
    assert [type(event) for event in events] == [Saved, *steps, *steps, Stopped]
    saved = [event.checkpoint.manifest.step for event in events if isinstance(event, Saved)]
    assert saved == [0, 2, 4]
    first, second = (event for event in events[1:3] if isinstance(event, Stepped))
    record, _ = trainer.run.records("metrics")
    assert record["train_loss"] == pytest.approx((first.loss + second.loss) / 2)
    assert capfd.readouterr() == ("", "")


def evaluations(monkeypatch: pytest.MonkeyPatch, *losses: float) -> None:
    """Lets the first evaluations find these losses, one after the other."""
    left = list(losses)
    monkeypatch.setattr(
        module, "evaluate", lambda *call: Losses(left.pop(0)) if left else evaluate(*call)
    )


def test_best_checkpoint_is_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluations(monkeypatch, 3.0, 2.0, 2.5, 2.0, 2.1)
    trainer = new_trainer(tmp_path)
    saved = [event.checkpoint.manifest for event in finish(trainer) if isinstance(event, Saved)]
    best = [(manifest.best_step, manifest.since_best) for manifest in saved]
    assert best == [(None, 0), (6, 0), (12, 0), (12, 1), (12, 2), (12, 3)]
    assert [path.name[-2:] for path in trainer.run.step_paths()] == ["12", "24", "30"]
    assert (trainer.run.at().manifest.step, trainer.run.last().manifest.step) == (12, 30)


def test_patience_ends_a_run_without_improvement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluations(monkeypatch, 3.0, 2.0, 2.5, 2.4)
    trainer = new_trainer(tmp_path, patience=2)
    assert finish(trainer)[-1] == Stopped(24, "patience")
    assert trainer.run.at().manifest.step == 12
    assert finish(resumed(trainer)) == [Stopped(24, "patience")]


def held(run: Run) -> dict[str, bytes]:
    """Every byte of a run's checkpoints."""
    return {str(file): file.read_bytes() for path in run.step_paths() for file in path.iterdir()}


def fails_after(trainer: Trainer, step: int, error: type[GptxError]) -> tuple[GptxError, bool]:
    """The error of a run after its last save, at `step`; whether its checkpoints are unchanged."""
    saves: dict[int, dict[str, bytes]] = {}

    def train() -> None:
        for event in trainer.events():
            if isinstance(event, Saved):
                saves[event.checkpoint.manifest.step] = held(trainer.run)

    with pytest.raises(error) as caught:
        train()
    return caught.value, max(saves) == step and held(trainer.run) == saves[step]


def test_non_finite_loss_ends_the_run_without_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = new_trainer(tmp_path)
    take = trainer.learner.step

    def poisoned(step: int, clock: Any) -> Any:
        if step == 14:
            trainer.model.blocks[1].feed_forward.up.weight.data[3, 3] = math.nan
        return take(step, clock)

    monkeypatch.setattr(trainer.learner, "step", poisoned)
    error, untouched = fails_after(trainer, 12, NumericsError)
    assert "the loss or its gradient is not a finite number at step 15" in str(error)
    assert "last good: step 12" in str(error)
    assert (error.exit_code, untouched) == (7, True)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_validation_loss_is_never_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    evaluations(monkeypatch, 3.0, 2.0, number)
    trainer = new_trainer(tmp_path)
    error, untouched = fails_after(trainer, 12, NumericsError)
    assert "the validation loss is not a finite number at step 18; last good: step 12" in str(error)
    assert untouched
    assert trainer.run.at().manifest.step == 12
    assert [record["step"] for record in trainer.run.records("metrics")] == [6, 12]


def test_full_disk_ends_the_run_and_names_the_last_good_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, write = new_trainer(tmp_path), files.write

    def full(path: Path, data: bytes) -> None:
        if "step-00000018" in str(path) and path.name == STATE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(files, "write", full)
    error, untouched = fails_after(trainer, 12, StorageError)
    assert "(last good: step 12): No space left on device" in str(error)
    assert (error.exit_code, untouched) == (6, True)


def test_evaluations_read_a_part_and_the_last_reads_all(tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path, eval_chars=64)
    *_, end, _ = finish(trainer)
    manifest, of = trainer.run.last().manifest, len(trainer.val) - 1
    loss = evaluate(trainer.saved_model, trainer.val, "cpu").nats
    assert end == Evaluated(30, loss)
    assert (manifest.final_loss, manifest.shown_loss) == (loss, (loss, of, of))
    assert manifest.best_loss == evaluate(trainer.saved_model, trainer.val, "cpu", most=64).nats
    assert manifest.evaluated_characters == (64, of)
    records = trainer.run.records("metrics")
    assert [each.get("val_characters") for each in records] == [*[64] * 5, of]
    assert records[-1]["final_loss"] == loss
    assert finish(resumed(trainer)) == [Stopped(30, "finished")]


@pytest.mark.parametrize("counting", [0, 5])
def test_evaluations_beside_counting_record_the_loss_of_the_gpt_alone(
    tmp_path: Path, counting: int
) -> None:
    trainer = new_trainer(tmp_path, counting=counting)
    finish(trainer)
    *_, record = trainer.run.records("metrics")
    alone = evaluate(trainer.saved_model, trainer.val, "cpu").nats
    assert record.get("gpt_loss") == (alone if counting else None)
    assert ("gpt_loss" in record) == bool(counting)


def test_last_evaluation_uses_the_weights_of_the_best_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluations(monkeypatch, 3.0, 2.0, 2.5, 2.4)
    trainer = new_trainer(tmp_path, eval_chars=64, patience=2)
    *_, end, stopped = finish(trainer)
    assert (end.step, stopped) == (12, Stopped(24, "patience"))
    best = trainer.run.at()
    assert best.manifest.step == 12
    model = module.load_gpt(best.model(), "cpu")
    assert end.val_loss == evaluate(model, trainer.val, "cpu").nats
    assert trainer.run.last().manifest.step == 24
    assert trainer.run.last().manifest.shown_loss[0] == end.val_loss


def test_a_step_that_numpy_does_not_reproduce_is_not_saved_and_earlier_saves_open(
    tmp_path: Path,
) -> None:
    trainer = new_trainer(tmp_path)
    trainer.prove = lambda *_: Check("", float(trainer.manifest.step >= 12), 0.5)
    with pytest.raises(NumericsError, match=r"numpy computes other logits than torch at step 12 "):
        finish(trainer)
    assert [path.name for path in trainer.run.step_paths()] == ["step-00000000", "step-00000006"]
    assert TrainedGPT(trainer.run.last().model()).stored.step == 6
