"""Several ranks train the same weights as one, stop together, and end if one fails."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, corpus_of, manifest_of, resume
from hypothesis import given
from hypothesis import strategies as st
from ranked import on_ranks

import gpt
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.errors import ConfigError, NumericsError, RankError
from gpt.model import GPT
from gpt.storage.run import MODEL, STATE, Run, new_run
from gpt.training import ranks
from gpt.training.progress import Evaluated, Event, Saved, Stepped, Stopped
from gpt.training.step import Learner
from gpt.training.trainer import Job, Trainer

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "micro-batches": {"batch_size": 13, "micro_batch_size": 2},
    "heads, tied, averaged": {"attention": "heads", "tied": True, "average": 0.5, "bias": True},
    "Muon": {"matrix_lr": 1e-2},
    "one row at a time, averaged": {
        "batch_size": 7,  # some of a rank's three pieces have no row
        "micro_batch_size": 1,
        "average": 0.5,
        "tied": True,
    },
}


def trainer_of(folder: Path, name: str, options: dict[str, Any]) -> Trainer:
    """A trainer of 8 steps on TEXT, evaluated every 4, in a run that all ranks know."""
    corpus = corpus_of(TEXT, folder / f"corpus-{ranks.rank()}")
    train = {"steps": 8, "eval_interval": 4, **only_fields(TrainConfig, options)}
    manifest = manifest_of(corpus, train, **only_fields(ModelConfig, options))
    if ranks.is_first():
        new_run(folder, name, name)
    return Trainer(Run(folder / name), Job(corpus, manifest))


def told(events: Sequence[Event]) -> dict[str, Any]:
    """The events of a rank."""
    return {
        "losses": [event.loss for event in events if isinstance(event, Stepped)],
        "val": [event.val_loss for event in events if isinstance(event, Evaluated)],
        "saved": sum(isinstance(event, Saved) for event in events),
        "end": [(event.step, event.reason) for event in events if isinstance(event, Stopped)],
    }


def learn(folder: Path, name: str, options: dict[str, Any]) -> Any:
    seen = told(list(trainer_of(folder, name, options).events()))
    return {**seen, "seed": torch.initial_seed()}


def tensors(folder: Path, name: str, step: int = 8) -> dict[str, Any]:
    """All that a checkpoint holds."""
    from safetensors.numpy import load_file

    path = folder / name / f"step-{step:08d}"
    return {**load_file(path / MODEL), **load_file(path / STATE)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_several_ranks_learn_the_same_as_one_process(tmp_path: Path, variant: str) -> None:
    options = VARIANTS[variant]
    alone = told(list(trainer_of(tmp_path, "1", options).events()))
    expected = tensors(tmp_path, "1")
    for size in (2, 4) if variant == "plain" else (3,):
        every = on_ranks(size, learn, tmp_path, str(size), options)
        for number, one in enumerate(every):
            assert one["losses"] == pytest.approx(alone["losses"], abs=2e-6), (size, number)
            assert one["val"] == pytest.approx(alone["val"], abs=2e-6)
            assert one["end"] == alone["end"]
            assert one["saved"] == (alone["saved"] if number == 0 else 0)
            assert one["losses"] == every[0]["losses"]  # equal to the last bit
        found = tensors(tmp_path, str(size))
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, atol=2e-4, err_msg=f"{size} {key}")


def learn_in_two_parts(folder: Path, options: dict[str, Any]) -> Any:
    """Stops after step 3, then goes on from what the first rank has saved."""
    trainer = trainer_of(folder, "parts", options)
    events = []
    for event in trainer.events():
        events.append(event)
        if (
            isinstance(event, Stepped)
            and event.step == 3
            and ranks.rank() == ranks.world_size() - 1
        ):
            trainer.stop("SIGTERM")
    ranks.reduce(0.0, "SUM")  # waits until the first rank has saved
    found = trainer.run.last_undamaged()[0]
    again = resume(trainer.run, trainer.corpus, found)
    return told([*events, *again.events()])


def test_three_ranks_stop_together_and_resume_bit_for_bit(tmp_path: Path) -> None:
    options = {"average": 0.9, "dropout": 0.1, "batch_size": 8}
    straight = on_ranks(3, learn, tmp_path, "straight", options)
    assert len({one["seed"] for one in straight}) == 3  # each rank drops what it drops
    parts = on_ranks(3, learn_in_two_parts, tmp_path, options)
    for number in range(3):
        assert parts[number]["end"] == [(3, "SIGTERM"), (8, "finished")]
        assert parts[number]["losses"] == straight[number]["losses"]
        assert parts[number]["val"] == straight[number]["val"]
    for step in (4, 8):
        found, expected = tensors(tmp_path, "parts", step), tensors(tmp_path, "straight", step)
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=f"{step} {key}")


def learn_until(folder: Path, trouble: str) -> Any:
    """Rank 1 fails after the third step."""
    trainer = trainer_of(folder, "troubled", {"eval_interval": 2})
    events = []
    for event in trainer.events():
        events.append(event)
        if ranks.rank() == 1 and isinstance(event, Stepped) and event.step == 3:
            if trouble == "fails":
                raise ZeroDivisionError
            trainer.model.blocks[0].feed_forward.up.weight.data[0, 0] = math.nan
    return told(events)


def test_failing_rank_ends_all_ranks_and_keeps_checkpoints(tmp_path: Path) -> None:
    first, second, third = on_ranks(3, learn_until, tmp_path, "fails")
    assert isinstance(second, ZeroDivisionError)
    for other in (first, third):
        assert isinstance(other, RankError)
        assert "another rank has failed or was ended" in str(other)
    assert Run(tmp_path / "troubled").last_undamaged()[0].manifest.step == 2


def test_nan_on_one_rank_stops_all_ranks_before_the_update(tmp_path: Path) -> None:
    for error in on_ranks(3, learn_until, tmp_path, "nan"):
        assert isinstance(error, NumericsError)
        assert "not a finite number at step 4; last good: step 2" in str(error)
    assert Run(tmp_path / "troubled").last_undamaged()[0].manifest.step == 2


@given(rows=st.integers(1, 200), size=st.integers(1, 9), most=st.integers(0, 50))
def test_pieces_cover_all_rows_once_in_order(rows: int, size: int, most: int) -> None:
    every = [ranks.rank_pieces(rows, most, rank, size) for rank in range(size)]
    assert [row for each in every for piece in each for row in range(rows)[piece]] == [*range(rows)]
    assert len({len(each) for each in every}) == 1
    assert max(piece.stop - piece.start for each in every for piece in each) <= (most or rows)


def test_impossible_options_of_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "world_size", lambda: 3)
    with pytest.raises(ConfigError, match=r"^batch_size: 2 sequences are too few for 3 ranks"):
        Learner(GPT(ModelConfig(vocab_size=2)), np.zeros(9), TrainConfig(batch_size=2))


GIVEN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without torchrun, which the test may change."""
    found: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", found)
    return found


def test_a_process_reads_its_rank_from_the_environment(environment: dict[str, str]) -> None:
    for variables, expected in (
        ({}, (0, 1, True)),
        ({"RANK": "1"}, (0, 1, True)),  # half of it is no launch
        ({"WORLD_SIZE": "4"}, (0, 1, True)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, True)),
        ({"RANK": "0", "WORLD_SIZE": "4"}, (0, 4, True)),
        (GIVEN, (3, 4, False)),
    ):
        environment.clear()
        environment |= variables
        assert (ranks.rank(), ranks.world_size(), ranks.is_first()) == expected, variables


def test_python_functions_train_in_one_process(environment: dict[str, str]) -> None:
    environment |= GIVEN
    with pytest.raises(ConfigError, match=r"^Python trains in one process; use torchrun"):
        gpt.train()
