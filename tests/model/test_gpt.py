"""The model: parameters, initialisation, options. tests/test_parity.py compares its forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.config import ModelConfig
from gpt.config.fields import only_fields
from gpt.config.train import PRESETS, preset_values
from gpt.model import GPT, initialise
from gpt.model.attention import ATTENTION
from gpt.model.gpt import Block

SHAPE: dict[str, Any] = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}


def test_a_block_has_as_many_parameters_as_the_papers() -> None:
    shape = ModelConfig(vocab_size=2, n_embd=512, n_head=8, bias=True, activation="relu")
    assert sum(each.numel() for each in Block(shape).parameters()) == 3_150_848


@pytest.mark.parametrize(("device", "count"), [("cpu", 795_904), ("cuda", 10_646_784)])
def test_nanogpt_presets_have_nanogpts_parameter_counts(device: str, count: int) -> None:
    recipe = only_fields(ModelConfig, preset_values("classic", device))
    config = ModelConfig(vocab_size=65, **recipe)
    assert config.parameters() - config.block_size * config.n_embd == count  # without positions


@pytest.mark.parametrize("name", PRESETS)
def test_a_new_model_predicts_the_uniform_distribution(name: str) -> None:
    config = ModelConfig(vocab_size=65, **only_fields(ModelConfig, preset_values(name, "cpu")))
    model = GPT(config)
    initialise(model, 1337)
    random = torch.Generator().manual_seed(8)
    ids = torch.randint(65, (4, config.block_size), generator=random)
    with torch.no_grad():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - math.log(65)) < 0.1


def test_both_attentions_have_the_same_initial_weights() -> None:
    options = {**SHAPE, "bias": True, "qkv_bias": True}
    models = {kind: GPT(ModelConfig(**options, attention=kind)) for kind in ATTENTION}

    def start(kind: str, seed: int) -> dict[str, Tensor]:
        initialise(models[kind], seed)
        return {name: tensor.clone() for name, tensor in models[kind].stored_parameters().items()}

    heads, fused, other = start("heads", 5), start("fused", 5), start("fused", 6)
    assert all(torch.equal(heads[name], fused[name]) for name in heads)
    assert not torch.equal(fused["lm_head.weight"], other["lm_head.weight"])


@pytest.mark.parametrize("feed_forward", [True, False])
def test_residual_projections_have_smaller_initial_weights(feed_forward: bool) -> None:
    layers = 8 if feed_forward else 16  # with as many residual projections
    config = ModelConfig(vocab_size=65, n_layer=layers, feed_forward=feed_forward)
    model = GPT(config)
    initialise(model, 1)
    for name, tensor in model.stored_parameters().items():
        residual = name.endswith(("proj.weight", "down.weight"))
        expected = 0.02 / 4 if residual else 0.02
        if tensor.dim() == 1:  # a gain
            assert (tensor == 1).all()
        else:
            assert tensor.std().item() == pytest.approx(expected, rel=0.05), name
