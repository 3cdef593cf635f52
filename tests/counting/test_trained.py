"""A run with counting: what is held out, what is stored, and that all its losses agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, corpus_of, manifest_of

import gpt
from gpt.counting.baseline import HeldOut, Predict
from gpt.counting.mixture import Array, Expert
from gpt.counting.tables import count
from gpt.storage.run import Run, new_run
from gpt.training.step import IGNORED, _mean_loss, predict_span
from gpt.training.trainer import Job, Trainer
from gpt.vocabulary import Ids

LONG = TEXT + "a rat on a mat, a cat on a hat.\nthe hat sat.\n" * 60


def trained(folder: Path, **options: Any) -> tuple[Run, Trainer]:
    corpus = corpus_of(LONG, folder)
    run = new_run(folder / "checkpoints", "counting")
    manifest = manifest_of(corpus, options.pop("train", None), counting=5, **options)
    trainer = Trainer(run, Job(corpus, manifest))
    list(trainer.events())
    return run, trainer


def predict_by(trainer: Trainer) -> Predict:
    """The logits of the trained model."""

    def predict(starts: Any, length: int) -> Any:
        return predict_span(trainer.kept, trainer.train, (starts, length), "cpu")[0].numpy()

    return predict


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trainer]:
    return trained(tmp_path_factory.mktemp("counting"))


def test_the_loss_of_both_is_below_that_of_the_gpt(
    made: tuple[Run, Trainer],
) -> None:
    run, trainer = made
    records = run.records("metrics")
    assert all(record["val_loss"] < record["gpt_loss"] - 0.1 for record in records)
    assert trainer.manifest.gpt_loss == records[-1]["gpt_loss"]


def test_a_file_scores_as_training_did(made: tuple[Run, Trainer]) -> None:
    run, trainer = made
    model = gpt.load(run.path)
    found = model.eval(model.vocabulary.decode(trainer.val))
    assert found.nats == pytest.approx(trainer.manifest.val_loss, abs=1e-5)
    assert found.gpt == pytest.approx(trainer.manifest.gpt_loss, abs=1e-5)
    assert found.counting is not None
    assert found.nats < found.counting + 0.02


def test_the_gate_is_fitted_with_counts_of_text_apart_from_the_held_out_pieces(
    made: tuple[Run, Trainer],
) -> None:
    run, trainer = made
    counting, size = trainer.counting, trainer.counting.config.vocab_size
    held, stored = counting.held, gpt.load(run.path).stored.counting
    assert held is not None
    assert stored is not None

    def fitted(text: Ids) -> Array:
        expert = Expert(count(text, size, 5), size)
        histories = expert.trie.histories_at(counting.ids, held.starts, held.length)
        logs = np.log(expert.predict(histories))
        return counting._fitted(held, logs, predict_by(trainer))

    assert stored["gate"] == pytest.approx(fitted(held.apart(counting.ids)), rel=1e-5)
    assert stored["gate"] != pytest.approx(fitted(counting.ids), rel=1e-3)


def test_the_gpt_predicts_the_held_out_text_and_no_other(
    made: tuple[Run, Trainer],
) -> None:
    _, trainer = made
    counting, held = trainer.counting, trainer.counting.held
    assert held is not None
    places = []

    def predict(starts: Any, length: int) -> Any:
        places.append((starts[:, None] + 1 + np.arange(length)).ravel())
        return predict_by(trainer)(starts, length)

    assert counting.experts is not None
    counting._fitted(held, counting.experts.held, predict)
    predicted = np.concatenate(places)
    assert held.contains(predicted).all()
    assert {*held.starts.tolist()} <= {*predicted.tolist()}


def test_the_loss_of_a_step_is_the_sum_over_the_expected_number_of_targets() -> None:
    logits = torch.randn(2, 16, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(32).reshape(2, 16) % 7
    targets[0, :8] = IGNORED
    held = HeldOut(start=0, period=100, length=5, end=800)  # a twentieth
    chosen = logits.log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    expected = -float(chosen[targets != IGNORED].sum()) / (32 * 0.95)
    assert float(_mean_loss(logits, targets, held)) == pytest.approx(expected, rel=1e-6)


def test_a_text_too_short_to_hold_anything_out_still_trains(tmp_path: Path) -> None:
    corpus = corpus_of("the cat sat on the mat. " * 5, tmp_path)
    run = new_run(tmp_path / "checkpoints", "short")
    options = manifest_of(corpus, counting=8, block_size=8)
    trainer = Trainer(run, Job(corpus, options))
    list(trainer.events())
    assert trainer.counting.note == ""
    found = gpt.load(run.path).eval("the mat sat on the cat. ")
    assert found.gpt is not None
    assert found.nats < found.gpt
