"""Muon beside singular value decompositions and plain sums, and in both forms of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import TINY
from gpt.training.muon import FACTORS, MARGIN, Matrices, find_matrices, orthogonalise

from gpt.config import ModelConfig, TrainConfig
from gpt.model import GPT, initialise
from gpt.training.optim import Optimizer

TRAIN = {"matrix_lr": 0.1, "learning_rate": 0.5, "weight_decay": 0.2, "warmup_steps": 0}


def model_of(**options: Any) -> GPT:
    """A tiny model with random weights."""
    model = GPT(ModelConfig(vocab_size=9, **{**TINY, **options}))
    initialise(model, seed=1)
    return model


@pytest.mark.parametrize(("rows", "dtype", "close"), [(24, "float32", 0.07), (8, "bfloat16", 0.12)])
def test_singular_values_become_about_one_and_directions_stay(
    rows: int, dtype: str, close: float
) -> None:
    generator = torch.Generator().manual_seed(3)
    left, _ = torch.linalg.qr(torch.randn(3, rows, 8, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(3, 8, 8, generator=generator))
    values = torch.logspace(0, -2, 8)  # the largest is 100 times the smallest
    stack = 40 * left @ torch.diag(values) @ right.mT
    found = orthogonalise(stack.to(getattr(torch, dtype))).float()
    torch.testing.assert_close(found, left @ right.mT, atol=close, rtol=0)
    assert torch.equal(orthogonalise(torch.zeros(2, 4, 3)), torch.zeros(2, 4, 3))


def by_hand(weight: Any, gradients: list[Any], rate: float, momentum: float, decay: float) -> Any:
    """A matrix after steps with these gradients, in float64, by the polynomials of FACTORS of the
    singular values.
    """
    mean = np.zeros_like(weight)
    for gradient in gradients:
        mean = momentum * mean + (1 - momentum) * gradient
        left, values, right = np.linalg.svd(
            (1 - momentum) * gradient + momentum * mean, full_matrices=False
        )
        values = values / (MARGIN * np.sqrt((values**2).sum()))
        for a, b, c in FACTORS:
            values = a * values + b * values**3 + c * values**5
        scale = rate * max(1, weight.shape[0] / weight.shape[1]) ** 0.5
        weight = (1 - decay) * weight - scale * (left * values) @ right
    return weight


def test_steps_equal_those_by_singular_values() -> None:
    model, generator = model_of(), torch.Generator().manual_seed(2)
    optimizer = Optimizer(model, TrainConfig(**TRAIN, steps=10, beta1=0.75))
    block = model.blocks[1]
    attention, layer = block.attention, block.feed_forward  # type: ignore[union-attr]
    size = model.config.n_embd
    chosen = {
        "values": (attention.qkv.weight, slice(2 * size, None)),
        "projection": (attention.proj.weight, slice(None)),
        "up": (layer.up.weight, slice(None)),
        "down": (layer.down.weight, slice(None)),
    }
    before = {k: p[rows].detach().double().numpy() for k, (p, rows) in chosen.items()}
    gradients: dict[str, list[Any]] = {name: [] for name in chosen}
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for name, (parameter, rows) in chosen.items():
            assert parameter.grad is not None
            gradients[name].append(parameter.grad[rows].double().numpy())
        optimizer.step(0)
    for name, (parameter, rows) in chosen.items():
        expected = by_hand(before[name], gradients[name], 0.1, 0.75, 0.5 * 0.2)
        np.testing.assert_allclose(parameter[rows].detach().numpy(), expected, atol=2e-5)


def test_both_forms_of_attention_change_alike() -> None:
    fused, heads = model_of(), model_of(attention="heads")
    generator = torch.Generator().manual_seed(4)
    steps = []
    for model in (fused, heads):
        steps.append(Optimizer(model, TrainConfig(**{**TRAIN, "learning_rate": 0.1})))
    for step in range(3):
        ids = torch.randint(9, (2, 8), generator=generator)
        for model, optimizer in zip((fused, heads), steps, strict=True):
            optimizer.zero_grad()
            model(ids).logsumexp(-1).square().mean().backward()
            optimizer.step(step)
    first, second = fused.stored_parameters(), heads.stored_parameters()
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-4, rtol=1e-4)


def test_it_has_the_matrices_of_the_blocks() -> None:
    model = model_of(position="learned", bias=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {names[id(p)]: each.count for each in find_matrices(model) for p in each.parameters}
    kinds = {"attention.qkv": 3, "attention.proj": 1, "feed_forward.up": 1, "feed_forward.down": 1}
    assert found == {
        f"blocks.{layer}.{kind}.weight": count
        for layer in range(model.config.n_layer)
        for kind, count in kinds.items()
    }
    optimizer = Optimizer(model, TrainConfig(**TRAIN))
    adamw = {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
    every = {name for name, _ in model.named_parameters()}
    assert (adamw | set(found), adamw & set(found)) == (every, set())
    assert Matrices((torch.zeros(6, 2),), 3).shape == (2, 2)
