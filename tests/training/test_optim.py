"""The optimizer: the learning rate at known steps, which parameters decay, and how they change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import TINY

from gpt.config import ModelConfig, TrainConfig
from gpt.model import GPT, initialise
from gpt.training.optim import Optimizer
from gpt.training.schedule import learning_rate

WARM_UP = {0: 0.1, 4: 0.5, 9: 1.0, 10: 1.1}


@pytest.mark.parametrize(
    ("schedule", "points"),
    [
        ("linear", {**WARM_UP, 40: 23 / 30, 55: 0.6, 70: 13 / 30, 100: 0.1, 10**9: 0.1}),
        ("cosine", {**WARM_UP, 40: 0.85, 55: 0.6, 70: 0.35, 100: 0.1, 10**9: 0.1}),
    ],
)
def test_learning_rate_has_known_values(schedule: Any, points: dict[int, float]) -> None:
    config = TrainConfig(
        steps=100, warmup_steps=10, learning_rate=1.1, min_lr=0.1, schedule=schedule
    )
    assert {step: learning_rate(config, step) for step in points} == pytest.approx(points)


@pytest.mark.parametrize("attention", ["fused", "heads"])
def test_weight_decay_applies_to_matrices_only(attention: Any) -> None:
    options = {"tied": True, "bias": True, "position": "learned"}
    model = GPT(ModelConfig(vocab_size=9, **TINY, attention=attention, **options))
    initialise(model, seed=1)
    optimizer = Optimizer(model, TrainConfig(learning_rate=0.5, weight_decay=0.2, warmup_steps=0))
    grouped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parameters = list(model.parameters())
    assert len(grouped) == len(parameters)
    assert {id(parameter) for parameter in grouped} == {id(parameter) for parameter in parameters}

    for parameter in parameters:
        parameter.data.add_(1)  # so that a vector of zeros could be seen to shrink
        parameter.grad = torch.zeros_like(parameter)
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer.step(0)
    for parameter, old in zip(parameters, before, strict=True):
        kept = 0.9 if parameter.dim() >= 2 else 1.0
        torch.testing.assert_close(parameter.detach(), kept * old)


def test_the_moments_decay_by_beta1_and_beta2() -> None:
    model = GPT(ModelConfig(vocab_size=9, **TINY))
    optimizer = Optimizer(model, TrainConfig(beta1=0.75, beta2=0.5))
    weight = model.lm_head.weight
    weight.grad = torch.ones_like(weight)
    optimizer.step(0)
    state = optimizer.state(weight)
    assert (state["exp_avg"].unique().item(), state["exp_avg_sq"].unique().item()) == (0.25, 0.5)


def test_embedding_and_output_may_have_another_learning_rate_with_the_same_schedule() -> None:
    config = TrainConfig(
        steps=10, warmup_steps=0, learning_rate=0.1, embedding_lr=0.4, min_lr=0.05, weight_decay=0.0
    )
    model = GPT(ModelConfig(vocab_size=9, **TINY))
    initialise(model, seed=1)
    optimizer = Optimizer(model, config)
    for step, share in ((0, 1.0), (5, 0.75), (10, 0.5)):
        optimizer.step(step)
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        assert rates[id(model.lm_head.weight)] == pytest.approx(0.4 * share)
        assert rates[id(model.token_embedding.weight)] == pytest.approx(0.4 * share)
        assert rates[id(model.blocks[0].attention.qkv.weight)] == pytest.approx(0.1 * share)
