"""The state of a training: every weight and moment round trips bit for bit."""

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
from gpt.storage.checkpoint_files import pack
from gpt.storage.run import MODEL, STATE, Checkpoint, Run
from gpt.training.step import Learner, Optimizer
from gpt.training.trainer import (
    exact_logits,
    load_gpt,
    make_probe,
    model_bytes,
    restore_state,
)
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
SHAPES: list[dict[str, Any]] = [
    {},
    {"attention": "heads"},
    {"tied": True, "bias": True, "position": "learned"},
    {"tied": True, "attention": "heads", "dropout": 0.2},
]
TRAIN = TrainConfig(batch_size=2, warmup_steps=0)


def trained(steps: int = 3, **shape: Any) -> Learner:
    """A tiny model and its optimizer, some steps on."""
    model = GPT(ModelConfig(vocab_size=len(VOCABULARY), **{**TINY, **shape}))
    initialise(model, seed=1)
    learner = Learner(model, VOCABULARY.encode(TEXT), TRAIN)
    for step in range(steps):
        learner.step(step)
    return learner


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether both hold the same tensors, bit for bit."""
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype
        for name in first
    )


def committed(folder: Path, start: Checkpoint, learner: Learner) -> Checkpoint:
    """A checkpoint of this state in a new run."""
    model, state = learner.model, learner.optimizer.state
    manifest = replace(start.manifest, model=model.config)
    contents = {
        MODEL: model_bytes(model, VOCABULARY, TEXT, manifest.step),
        STATE: pack({name: tensor.numpy() for name, tensor in state.items()}, {}),
    }
    return Run(folder).commit(manifest, contents)


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_and_moments_round_trip_bit_for_bit(
    tmp_path: Path, tiny: Checkpoint, shape: dict[str, Any]
) -> None:
    learner = trained(**shape)
    model = learner.model
    checkpoint = committed(tmp_path, tiny, learner)
    again = load_gpt(checkpoint.model(), "cpu")
    restored = Learner(again, learner.text, TRAIN)
    restore_state(checkpoint, restored.optimizer.state)
    assert same(dict(again.named_parameters()), dict(model.named_parameters()))
    assert same(restored.optimizer.state, learner.optimizer.state)
    assert (again.lm_head.weight is again.token_embedding.weight) == model.config.tied
    learner.step(3)
    restored.step(3)
    assert same(dict(again.named_parameters()), dict(model.named_parameters()))


def test_moments_of_another_model_are_refused(tmp_path: Path, tiny: Checkpoint) -> None:
    checkpoint = committed(tmp_path, tiny, trained())
    for shape in ({"n_layer": 1}, {"n_layer": 3}, {"n_embd": 8}):
        other = GPT(replace(checkpoint.manifest.model, **shape))
        with pytest.raises(CheckpointError, match=r"^damaged: .*state\.safetensors"):
            restore_state(checkpoint, Optimizer(other, TRAIN).state)


def test_the_probe_has_evenly_distributed_characters_of_a_large_vocabulary() -> None:
    model = GPT(ModelConfig(vocab_size=20_000, **TINY))
    probe = make_probe(model, np.arange(9))
    assert probe.ids.shape == (32, 16)
    assert np.diff(probe.ids.reshape(-1)).min() >= 39
    assert (probe.ids[0, 0], probe.ids[-1, -1]) == (0, 19_999)
    assert probe.logits.shape == (512, 32)


def test_probe_uses_no_dropout_and_does_not_change_the_model() -> None:
    model = trained(dropout=0.5).model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ids = np.arange(8)[None]
    logits = [*exact_logits(model, ids)]
    assert logits[0].dtype == np.float64
    assert np.array_equal(logits, [*exact_logits(model, ids)])
    assert model.training
    assert same(model.state_dict(), before)
