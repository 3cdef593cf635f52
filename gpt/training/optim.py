"""The optimizer, its parameter groups, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math

import torch
from torch import nn

from gpt.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019): matrices decay, gains and biases do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        fused=parameters[0].device.type in ("cpu", "cuda"),
    )


def learning_rate(step: int, config: TrainConfig) -> float:
    """For the step that comes after `step` finished ones: warm-up, then down to min_lr."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    rest = max(1, config.steps - config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / rest)
    if config.schedule == "cosine":
        progress = 0.5 - 0.5 * math.cos(math.pi * progress)
    return config.learning_rate + progress * (config.min_lr - config.learning_rate)
