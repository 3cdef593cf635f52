"""A run with counting: what is held out, what is stored, and that all its losses agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT, corpus_of, manifest_of

import gpt
from gpt.storage.run import Run, new_run
from gpt.training.trainer import Job, Trainer

LONG = TEXT + "a rat on a mat, a cat on a hat.\nthe hat sat.\n" * 60


def trained(folder: Path, **options: Any) -> tuple[Run, Trainer]:
    corpus = corpus_of(LONG, folder)
    run = new_run(folder / "checkpoints", "counting")
    manifest = manifest_of(corpus, options.pop("train", None), counting=5, **options)
    trainer = Trainer(run, Job(corpus, manifest))
    list(trainer.events())
    return run, trainer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trainer]:
    return trained(tmp_path_factory.mktemp("counting"))


def test_a_file_scores_as_training_did(made: tuple[Run, Trainer]) -> None:
    run, trainer = made
    model = gpt.load(run.path)
    found = model.eval(model.vocabulary.decode(trainer.val))
    assert found.nats == pytest.approx(trainer.manifest.val_loss, abs=1e-5)
    assert found.gpt == pytest.approx(trainer.manifest.gpt_loss, abs=1e-5)
    assert found.counting is not None
    assert found.nats < found.counting + 0.02


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
