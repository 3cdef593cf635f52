"""Forms of attention, from the simplest to multi-head: each adds one idea to the one before.

The names are those of `gpt/model/attention.py`, which is the last form. The functions after the
classes give a form, in float64, the weights of the form before it; tests compare outputs and
gradients of each pair. Tensor names: B batch, T words, S words of another text, C width, H heads, D
head_size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.config.model import Attention
from gpt.model.attention import ATTENTION

PARTS = ("query", "key", "value")


def attend(x: Tensor) -> Tensor:
    """Attention without weights: every row becomes a mean of all, (T, C) -> (T, C)."""
    return F.softmax(x @ x.T, dim=-1) @ x


def causal(size: int) -> Tensor:
    """(size, size): True where a key is not later than its query."""
    return torch.ones(size, size, dtype=torch.bool).tril()


def weights_of(queries: Tensor, keys: Tensor, allowed: Tensor | None = None) -> Tensor:
    """(..., T, D) queries, (..., S, D) keys -> (..., T, S) attention weights (Vaswani et al. 2017).

    Scores are divided by √D: the standard deviation of a sum of D products is √D times that of one
    product, and softmax of widely spread scores selects a single key. A key gets weight 0 where
    `allowed` is False.
    """
    scores = queries @ keys.transpose(-2, -1) * keys.shape[-1] ** -0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return F.softmax(scores, dim=-1)


class ParameterAttention(nn.Module):
    """Self-attention with three trained matrices: (..., T, d_in) -> (..., T, d_out)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.rand(d_in, d_out))
        self.key = nn.Parameter(torch.rand(d_in, d_out))
        self.value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x: Tensor) -> Tensor:
        return weights_of(x @ self.query, x @ self.key) @ (x @ self.value)


class SelfAttention(nn.Module):
    """The same, but with nn.Linear, which stores each matrix transposed and draws it around 0."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_in, d_out, bias=False)
        self.key = nn.Linear(d_in, d_out, bias=False)
        self.value = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return weights_of(self.query(x), self.key(x)) @ self.value(x)  # type: ignore[no-any-return]


class CrossAttention(SelfAttention):
    """The same, but keys and values come from another text, the memory, if there is one.

    (..., T, d_in), memory (..., S, d_in) -> (..., T, d_out). allowed: (..., T or 1, S), False where
    a key is padding.
    """

    def forward(
        self, x: Tensor, memory: Tensor | None = None, allowed: Tensor | None = None
    ) -> Tensor:
        memory = x if memory is None else memory
        return self.weights(x, memory, allowed) @ self.value(memory)  # type: ignore[no-any-return]

    def weights(self, x: Tensor, memory: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(..., T, S)"""
        return weights_of(self.query(x), self.key(memory), allowed)


class CausalAttention(SelfAttention):
    """One head of a GPT: no word attends to a later one; training drops weights.

    (B, T, d_in) -> (B, T, d_out), T up to block_size.
    """

    tril: Tensor

    def __init__(self, d_in: int, d_out: int, block_size: int, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_out)
        self.register_buffer("tril", causal(block_size), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        T = x.shape[-2]
        weights = weights_of(self.query(x), self.key(x), self.tril[:T, :T])  # (B, T, T)
        return self.dropout(weights) @ self.value(x)  # type: ignore[no-any-return]


class SideBySide(nn.Module):
    """Several heads, one after the other, then joined: (B, T, d_in) -> (B, T, H·D)."""

    def __init__(
        self, d_in: int, head_size: int, block_size: int, n_head: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            CausalAttention(d_in, head_size, block_size, dropout) for _ in range(n_head)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)  # (B, T, H·D)


class SplitAttention(CausalAttention):
    """Computes all heads at once: three large products, split among the heads, then a projection.

    (B, T, d_in) -> (B, T, d_out); each head has d_out / n_head columns. Raises ValueError unless
    n_head divides d_out.
    """

    def __init__(
        self, d_in: int, d_out: int, block_size: int, n_head: int, dropout: float = 0.0
    ) -> None:
        if d_out % n_head:
            raise ValueError(f"d_out {d_out} is not divisible by {n_head} heads")
        super().__init__(d_in, d_out, block_size, dropout)
        self.n_head = n_head
        self.proj = nn.Linear(d_out, d_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.join(x))  # type: ignore[no-any-return]

    def join(self, x: Tensor) -> Tensor:
        """The heads' outputs, joined, before the projection: (B, T, d_in) -> (B, T, d_out)."""
        T = x.shape[-2]
        queries, keys, values = (self.split(part(x)) for part in (self.query, self.key, self.value))
        weights = self.dropout(weights_of(queries, keys, self.tril[:T, :T]))  # (B, H, T, T)
        return (weights @ values).transpose(-3, -2).flatten(-2)  # type: ignore[no-any-return]

    def split(self, x: Tensor) -> Tensor:
        """(B, T, d_out) -> (B, H, T, D)"""
        return x.view(*x.shape[:-1], self.n_head, -1).transpose(-3, -2)


def from_nothing(width: int) -> ParameterAttention:
    """Attention without weights, as a ParameterAttention: keys and values are the input itself.

    Its queries are √width times the input, which cancels the scale 1/√width of the scores.
    """
    one = torch.eye(width, dtype=torch.float64)
    attention = ParameterAttention(width, width).double()
    attention.load_state_dict({"query": one * width**0.5, "key": one, "value": one})
    return attention


def to_parameters(linear: SelfAttention) -> ParameterAttention:
    """The same with parameters, transposed because nn.Linear has a row for each output."""
    d_out, d_in = linear.query.weight.shape
    attention = ParameterAttention(d_in, d_out).double()
    attention.load_state_dict({part: getattr(linear, part).weight.T for part in PARTS})
    return attention


def to_split(side_by_side: SideBySide) -> SplitAttention:
    """A SplitAttention with the heads' matrices stacked by rows; its projection is the identity."""
    heads: Any = side_by_side.heads
    stacked = {
        f"{part}.weight": torch.cat([getattr(head, part).weight for head in heads])
        for part in PARTS
    }
    d_out, d_in = stacked["query.weight"].shape
    split = SplitAttention(d_in, d_out, len(heads[0].tril), len(heads), heads[0].dropout.p).double()
    projection = {"proj.weight": torch.eye(d_out), "proj.bias": torch.zeros(d_out)}
    split.load_state_dict(stacked | projection)
    return split


def to_model(split: SplitAttention, kind: Attention) -> nn.Module:
    """The model's attention with these weights; input and output have equal width. kind: "heads" is
    the readable form, "fused" the fast one.
    """
    config = ModelConfig(
        vocab_size=1,
        block_size=len(split.tril),
        n_head=split.n_head,
        n_embd=len(split.query.weight),
        attention_dropout=split.dropout.p,
        bias=True,
        position="learned",
    )
    attention = ATTENTION[kind](config).double()
    packed = torch.cat([getattr(split, part).weight for part in PARTS])  # (3C, C)
    projection = {f"proj.{name}": value for name, value in split.proj.state_dict().items()}
    attention.load_state_dict({"qkv.weight": packed, **projection})
    return attention
