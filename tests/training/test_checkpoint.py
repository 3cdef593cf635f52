"""A training's state as bytes: every weight and moment comes back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, TINY
from torch import Tensor

from gpt.config import ModelConfig, TrainConfig
from gpt.errors import CheckpointError
from gpt.model import GPT, initialise
from gpt.run import MODEL, Checkpoint, Run
from gpt.stored import read_model
from gpt.training import checkpoint as module
from gpt.training.checkpoint import load_gpt, model_bytes, probe_logits, restore_state, state_bytes
from gpt.training.optim import Optimizer
from gpt.training.step import train_step
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
SHAPES: list[dict[str, Any]] = [
    {},
    {"attention": "heads"},
    {"tied": True, "bias": True, "norm": "layer", "position": "learned"},
    {"tied": True, "attention": "heads", "dropout": 0.2},
    {"ngram": 3, "ngram_rows": 100},
]
TRAIN = TrainConfig(batch_size=2, warmup_steps=0)


def trained(steps: int = 3, **shape: Any) -> tuple[GPT, Optimizer]:
    """A tiny model and its optimizer, some steps on."""
    model = GPT(ModelConfig(vocab_size=len(VOCABULARY), **{**TINY, **shape}))
    initialise(model, seed=1)
    optimizer = Optimizer(model, TRAIN)
    for step in range(steps):
        train_step(model, optimizer, VOCABULARY.encode(TEXT), TRAIN, step)
    return model, optimizer


def moments(model: GPT, optimizer: Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers, by parameter and name."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state(parameter).items()
    }


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether both hold the same tensors, bit for bit."""
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype
        for name in first
    )


def committed(folder: Path, start: Checkpoint, model: GPT, optimizer: Optimizer) -> Checkpoint:
    """A checkpoint of this state in a new run."""
    manifest = replace(start.manifest, model=model.config)
    contents = {
        MODEL: model_bytes(model, VOCABULARY, TEXT, manifest.step),
        "state.safetensors": state_bytes(model, optimizer),
    }
    return Run(folder).commit(manifest, contents)


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_and_moments_come_back_bit_for_bit(
    tmp_path: Path, tiny: Checkpoint, shape: dict[str, Any]
) -> None:
    model, optimizer = trained(**shape)
    checkpoint = committed(tmp_path, tiny, model, optimizer)
    again = load_gpt(checkpoint.model(), "cpu")
    restored = Optimizer(again, TRAIN)
    restore_state(checkpoint, again, restored)
    assert same(dict(again.named_parameters()), dict(model.named_parameters()))
    assert same(moments(again, restored), moments(model, optimizer))
    assert (again.lm_head.weight is again.token_embedding.weight) == model.config.tied
    for one, its_optimizer in ((model, optimizer), (again, restored)):
        train_step(one, its_optimizer, VOCABULARY.encode(TEXT), TRAIN, 3)
    assert same(dict(again.named_parameters()), dict(model.named_parameters()))


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_models_have_equal_bytes(shape: dict[str, Any]) -> None:
    files = {model_bytes(trained(2, **shape)[0], VOCABULARY, TEXT, 2) for _ in range(5)}
    assert len(files) == 1


def test_before_the_first_step_the_moments_are_zero(tmp_path: Path, tiny: Checkpoint) -> None:
    model, optimizer = trained(0)
    restored = Optimizer(model, TRAIN)
    restore_state(committed(tmp_path, tiny, model, optimizer), model, restored)
    assert not any(value.any() for value in moments(model, restored).values())


@pytest.mark.parametrize("shape", [{"n_layer": 1}, {"n_layer": 3}, {"n_embd": 8}])
def test_moments_of_another_model_are_refused(
    tmp_path: Path, tiny: Checkpoint, shape: dict[str, Any]
) -> None:
    checkpoint = committed(tmp_path, tiny, *trained())
    other = GPT(replace(checkpoint.manifest.model, **shape))
    with pytest.raises(CheckpointError, match=r"^damaged: .*state\.safetensors"):
        restore_state(checkpoint, other, Optimizer(other, TRAIN))


@pytest.mark.parametrize(
    ("block_size", "numbers", "length"),
    [(16, 2**20, 16), (100, 2**20, 64), (100, 30, 2), (9, 1, 1)],
)
def test_the_probe_is_as_long_as_context_and_vocabulary_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_size: int, numbers: int, length: int
) -> None:
    monkeypatch.setattr(module, "PROBE_NUMBERS", numbers)
    model, _ = trained(0, block_size=block_size)
    (tmp_path / "m").write_bytes(model_bytes(model, VOCABULARY, TEXT, 7))
    stored = read_model(tmp_path / "m")
    assert (VOCABULARY.decode(stored.probe_ids), stored.step) == (TEXT[:length], 7)
    assert stored.probe_logits.tobytes() == probe_logits(model, stored.probe_ids).tobytes()


@pytest.mark.parametrize("training", [True, False])
def test_the_probe_is_without_dropout_and_leaves_the_model_as_it_was(training: bool) -> None:
    model, _ = trained(dropout=0.5)
    model.train(training)
    ids = np.arange(8)
    assert np.array_equal(probe_logits(model, ids), probe_logits(model, ids))
    assert model.training == training
