"""The optimizer: the learning rate at known steps, which parameters decay, and how they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, TINY, corpus_of, manifest_of

from gpt.config import ModelConfig, TrainConfig
from gpt.model import GPT, initialise
from gpt.storage.run import new_run
from gpt.training.progress import Evaluated, learning_rate
from gpt.training.step import (
    FACTORS,
    MARGIN,
    Average,
    Optimizer,
    evaluate,
)
from gpt.training.trainer import Job, Trainer

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


TRAIN = {"matrix_lr": 0.1, "learning_rate": 0.5, "weight_decay": 0.2, "warmup_steps": 0}


def model_of(**options: Any) -> GPT:
    """A tiny model with random weights."""
    model = GPT(ModelConfig(vocab_size=9, **{**TINY, **options}))
    initialise(model, seed=1)
    return model


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


@pytest.mark.parametrize("tied", [True, False])
def test_the_average_is_an_exponential_moving_average(tied: bool) -> None:
    model = GPT(ModelConfig(vocab_size=5, **TINY, tied=tied))
    initialise(model, seed=1)
    average = Average(model, decay=0.5)
    expected = model.lm_head.weight.detach().clone()
    for step in range(1, 30):
        model.lm_head.weight.data.normal_()
        average.update(model, step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.lm_head.weight.detach()
        torch.testing.assert_close(average.model.lm_head.weight, expected)
    assert (average.model.lm_head.weight is average.model.token_embedding.weight) == tied
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_averaged_weights_are_evaluated_and_saved(tmp_path: Path) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    trainers = {}
    for decay in (0.0, 0.9):
        run = new_run(tmp_path / "checkpoints", f"decay-{decay}")
        manifest = manifest_of(corpus, {"average": decay, "learning_rate": 0.02})
        trainers[decay] = Trainer(run, Job(corpus, manifest))
        events = [event for event in trainers[decay].events() if isinstance(event, Evaluated)]
        kept = trainers[decay].saved_model
        assert events[-1].val_loss == evaluate(kept, trainers[decay].val, "cpu").nats
        saved = run.last().model().tensors["lm_head.weight"]
        assert torch.equal(torch.tensor(saved), kept.lm_head.weight.detach())
    plain, averaged = trainers[0.0], trainers[0.9]
    assert torch.equal(plain.model.lm_head.weight, averaged.model.lm_head.weight)
    assert not torch.equal(averaged.saved_model.lm_head.weight, averaged.model.lm_head.weight)
