"""Converts a module of ladder.py to another form with the same weights and outputs.

Every function copies the weights. `tests/explain/test_convert.py` checks that outputs and gradients
of each pair are equal.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from gpt.config import ModelConfig
from gpt.config.model import Attention
from gpt.explain.ladder import (
    CausalAttention,
    ParameterAttention,
    SelfAttention,
    SideBySide,
    SplitAttention,
)
from gpt.model.attention import ATTENTION

PARTS = ("query", "key", "value")
Module = TypeVar("Module", bound=nn.Module)


def _like(module: Module, given: nn.Module) -> Module:
    """The module with the type, device and mode (training or evaluation) of the given one."""
    first = next(given.parameters())
    return module.to(first.device, first.dtype).train(given.training)


def from_nothing(width: int, dtype: torch.dtype = torch.float32) -> ParameterAttention:
    """Attention without weights, as a ParameterAttention whose keys and values are the input
    itself.

    Queries are √width times the input, which cancels the scale 1/√width of the scores.
    """
    attention = ParameterAttention(width, width).to(dtype)
    with torch.no_grad():
        for part in PARTS:
            nn.init.eye_(getattr(attention, part))
        attention.query.mul_(width**0.5)
    return attention


def to_parameters(linear: SelfAttention) -> ParameterAttention:
    """The same attention with parameters, which are transposed: nn.Linear has a row for each
    output.
    """
    d_out, d_in = linear.query.weight.shape
    attention = _like(ParameterAttention(d_in, d_out), linear)
    with torch.no_grad():
        for part in PARTS:
            getattr(attention, part).copy_(getattr(linear, part).weight.T)
    return attention


def to_split(side_by_side: SideBySide) -> SplitAttention:
    """A SplitAttention with the heads' matrices stacked by rows; its projection is the identity."""
    heads = [head for head in side_by_side.heads if isinstance(head, CausalAttention)]
    head_size, d_in = heads[0].query.weight.shape
    d_out = len(heads) * head_size
    block_size, dropout = len(heads[0].tril), heads[0].dropout.p
    split = _like(SplitAttention(d_in, d_out, block_size, len(heads), dropout), side_by_side)
    with torch.no_grad():
        for part in PARTS:
            rows = torch.cat([getattr(head, part).weight for head in heads])  # (H·D, d_in)
            getattr(split, part).weight.copy_(rows)
        nn.init.eye_(split.proj.weight)
        nn.init.zeros_(split.proj.bias)
    return split


def to_model(split: SplitAttention, kind: Attention) -> nn.Module:
    """The model's attention: "heads" is the readable form, "fused" the fast one.

    Raises ValueError unless inputs and outputs have the same width, as in a GPT.
    """
    d_out, d_in = split.query.weight.shape
    if d_in != d_out:
        raise ValueError(
            f"a GPT's attention has equal input and output widths, not {d_in} and {d_out}"
        )
    config = ModelConfig(
        vocab_size=1,
        block_size=len(split.tril),
        n_head=split.n_head,
        n_embd=d_in,
        attention_dropout=split.dropout.p,
        bias=True,
        position="learned",
    )
    attention = _like(ATTENTION[kind](config), split)
    packed = torch.cat([getattr(split, part).weight for part in PARTS])  # (3C, C)
    projection = {f"proj.{name}": value for name, value in split.proj.state_dict().items()}
    attention.load_state_dict({"qkv.weight": packed.detach(), **projection})
    return attention
