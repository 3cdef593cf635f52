"""The weights before the first step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpt.config import ModelConfig
from gpt.model import GPT, initialise
from gpt.reading.gpt import Reader

SHAPE: dict[str, Any] = {"vocab_size": 40, "block_size": 64, "n_layer": 2, "n_embd": 64}


def initial_attention(**options: Any) -> np.ndarray:
    """(H, T, T) attention weights of the first layer, of a random text."""
    config = ModelConfig(**{**SHAPE, "n_head": 4, **options})
    model = GPT(config)
    initialise(model, 3)
    tensors = {name: tensor.numpy() for name, tensor in model.stored_parameters().items()}
    ids = np.random.default_rng(1).integers(config.vocab_size, size=64)
    return Reader(config, tensors).stages(ids)[0].weights


@pytest.mark.parametrize("n_head", [1, 2, 4])
def test_heads_start_on_the_previous_characters(n_head: int) -> None:
    weights = initial_attention(n_head=n_head, previous_heads=3)
    rows = np.arange(32, 64)
    for head, of_head in enumerate(weights):
        profile = np.array([of_head[rows, rows - distance].mean() for distance in range(32)])
        starts = head < 3
        assert (profile.argmax() == head + 1) == starts
        assert (profile[head + 1] > 0.2) == starts


def test_other_initial_weights_stay_the_same() -> None:
    plain, started = (GPT(ModelConfig(**SHAPE, previous_heads=count)) for count in (0, 3))
    for model in (plain, started):
        initialise(model, 3)
    qkv = "blocks.0.attention.qkv.weight"
    for name, tensor in plain.stored_parameters().items():
        other = started.stored_parameters()[name]
        assert torch.equal(other, tensor) == (name not in (qkv, "token_embedding.weight")), name
    moved = started.token_embedding.weight - plain.token_embedding.weight
    assert moved.std(dim=0).max() < 1e-6  # all embeddings get the same vector
    rows = (started.stored_parameters()[qkv] != plain.stored_parameters()[qkv]).any(dim=1)
    assert not rows[2 * 64 :].any()  # no values
