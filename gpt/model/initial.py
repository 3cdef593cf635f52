"""The weights before the first step: by config and seed alone, or another model's.

Tensor names: C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from gpt.config import ModelConfig
from gpt.model.gpt import GPT
from gpt.model.layers import Rotary

STD = 0.02
COMMON = 0.5  # length of the vector that all embeddings share, relative to their random part
PEAK = 8.0  # score before the softmax of the character on which a head starts
_BY_CHARACTER = ("token_embedding.weight", "lm_head.weight")  # a row for each character
SLOWEST = 0.1  # radians per character; slower pairs cannot distinguish neighbours


def initialise(model: GPT, seed: int) -> None:
    """Initialises as GPT-2 does: N(0, 0.02), residual projections divided by √(2·n_layer) (Radford
    2019), or by √n_layer if there are no feed-forward layers. Both forms of attention start with
    the same numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    residual_std = STD / math.sqrt((1 + model.config.feed_forward) * model.config.n_layer)
    stored = {}
    for name, shape in model.config.shapes().items():
        if name.endswith(".bias"):
            stored[name] = torch.zeros(shape)
        elif len(shape) == 1:
            stored[name] = torch.ones(shape)
        else:
            std = residual_std if name.endswith(("proj.weight", "down.weight")) else STD
            stored[name] = torch.randn(shape, generator=generator) * std
    if model.config.previous_heads:
        _start_on_previous(model.config, stored, generator)
    model.load_parameters(stored)


def start_from(model: GPT, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Sets another model's weights. In the embedding and in the output, new characters follow those
    of the other model, and start as their mean (Hewitt 2021): none gets a larger probability than
    the known ones have on average.
    """
    shapes, stored = model.config.shapes(), dict[str, Tensor]()
    for name, array in tensors.items():
        known = torch.tensor(array)
        added = shapes[name][0] - len(known) if name in _BY_CHARACTER else 0
        mean = known.mean(dim=0, keepdim=True) if added else known[:0]
        stored[name] = torch.cat((known, mean.expand(added, *known.shape[1:])))
    model.load_parameters(stored)


def _start_on_previous(
    config: ModelConfig, stored: dict[str, Tensor], generator: torch.Generator
) -> None:
    """Sets weights so that head h of the first layer attends to about the character h + 1 places
    before.

    A GPT otherwise has to learn such heads first (Olsson et al. 2022); training may change them.
    All embeddings get one common vector, which queries and keys read. Rotary positions rotate it,
    so that the score at a distance d is PEAK times the mean of cos(speed · (d − h − 1)).
    """
    C, H, D = config.n_embd, config.n_head, config.head_size
    common = torch.randn(C, generator=generator)
    common = (common - common.mean()) / common.std() / math.sqrt(C)  # of length 1 and mean 0
    stored["token_embedding.weight"] += COMMON * STD * math.sqrt(C) * common
    read = math.sqrt(C) * COMMON / math.hypot(1, COMMON)  # its size in a normalised embedding
    speeds = Rotary.speeds(config)
    speeds = speeds[speeds >= SLOWEST].float()
    row = math.sqrt(PEAK * math.sqrt(D) / len(speeds)) / read * common  # (C,)
    qkv = stored["blocks.0.attention.qkv.weight"].view(3, H, D // 2, 2, C)
    for head in range(min(H, config.previous_heads)):
        turns = speeds * (head + 1)
        qkv[0, head, : len(turns), 0] += row
        qkv[1, head, : len(turns), 0] += turns.cos()[:, None] * row
        qkv[1, head, : len(turns), 1] += turns.sin()[:, None] * row
