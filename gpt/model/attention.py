"""Attention in two forms: a readable one with a module for each head, and a fast one.

Both forms compute softmax(q·kᵀ / √head_size, masked above the diagonal) · v for every head,
concatenate the heads' outputs and project them (Vaswani et al. 2017). A checkpoint stores both
forms alike: the tensor `qkv` has the rows of all heads' queries, then of all keys, then of all
values.
Tensor names: B batch, T time, C n_embd, H heads, D head_size, S keys so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.model.layers import Dropout

#: (queries, keys) -> the same, rotated by their positions.
Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
#: Receives stages as keywords (names: gpt/config/model.py). A stage of one head has no head axis.
Keep = Callable[..., None]
#: Caches the keys and values of new positions, and returns those of all positions so far.
Store = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Head(nn.Module):
    """One head: (B, T, C) -> (B, T, D)."""

    tril: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.query = nn.Linear(config.n_embd, config.head_size, bias=config.qkv_bias)
        self.key = nn.Linear(config.n_embd, config.head_size, bias=config.qkv_bias)
        self.value = nn.Linear(config.n_embd, config.head_size, bias=config.qkv_bias)
        # A buffer moves to the module's device, and is not trained.
        lower = torch.ones(config.block_size, config.block_size, dtype=torch.bool).tril()
        self.register_buffer("tril", lower, persistent=False)
        self.dropout = nn.Dropout(config.attention_dropout)

    def forward(self, x: Tensor, rotate: Rotate, keep: Keep | None = None) -> Tensor:
        T = x.shape[1]
        queries, keys, values = self.query(x), self.key(x), self.value(x)  # (B, T, D)
        queries, keys = rotate(queries, keys)
        scores = queries @ keys.transpose(-2, -1)  # (B, T, T)
        scaled = scores * self.head_size**-0.5
        masked = scaled.masked_fill(~self.tril[:T, :T], float("-inf"))
        weights = self.dropout(F.softmax(masked, dim=-1))  # (B, T, T)
        context = weights @ values  # (B, T, D)
        if keep is not None:
            keep(q=queries, k=keys, v=values, scores=scores, scaled=scaled, masked=masked)
            keep(weights=weights, context=context)
        return context  # type: ignore[no-any-return]


class MultiHeadAttention(nn.Module):
    """The readable form. Concatenates the outputs of the heads and projects them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(config) for _ in range(config.n_head))
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        self.register_state_dict_post_hook(_pack)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_split)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor, rotate: Rotate, keep: Keep | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        contexts = [head(x, rotate, keep) for head in self.heads]
        concat = torch.cat(contexts, dim=-1)  # (B, T, C)
        proj = self.proj(concat)
        if keep is not None:
            keep(concat=concat, proj=proj)
        return self.dropout(proj)  # type: ignore[no-any-return]


class FusedAttention(nn.Module):
    """The fast form. Computes all heads in one matrix product and one attention kernel."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.attention_dropout = config.attention_dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.qkv_bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        rotate: Rotate,
        allowed: Tensor | None = None,
        store: Store | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C). With a cache, `store` caches the new keys and values, and
        `allowed` is (T, S), True where a new query may attend to a key.
        """
        B, T, C = x.shape
        parts = self.qkv(x).chunk(3, dim=-1)  # (B, T, C)
        if x.device.type == "cpu" and parts[0].dtype == torch.bfloat16:
            # On a CPU, attention in bfloat16 takes several times as long.
            parts = tuple(part.float() for part in parts)
        queries, keys, values = (
            part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, H, T, D)
            for part in parts
        )
        queries, keys = rotate(queries, keys)
        if store is not None:
            keys, values = store(keys, values)  # (B, H, S, D)
        dropout = self.attention_dropout if self.training else 0.0
        with torch.autocast("cpu", enabled=False):
            x = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=allowed,
                dropout_p=dropout,
                is_causal=allowed is None,
            )
        return self.dropout(self.proj(x.transpose(1, 2).reshape(B, T, C)))  # type: ignore[no-any-return]


ATTENTION: dict[str, type[nn.Module]] = {"fused": FusedAttention, "heads": MultiHeadAttention}

_PARTS, _KINDS = ("query", "key", "value"), ("weight", "bias")


def _pack(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Joins the heads' matrices to (3C, C), their biases to (3C,). A hook of state_dict()."""
    heads = len(module.heads)  # type: ignore[arg-type]
    names = [f"{prefix}heads.{head}.{part}." for part in _PARTS for head in range(heads)]
    for kind in _KINDS:
        if names[0] + kind in state:
            state[f"{prefix}qkv.{kind}"] = torch.cat([state.pop(name + kind) for name in names])


def _split(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Splits the tensors that `_pack` has joined. A hook of load_state_dict()."""
    heads = len(module.heads)  # type: ignore[arg-type]
    for kind in _KINDS:
        packed = state.pop(f"{prefix}qkv.{kind}", None)
        if packed is None:
            continue
        for number, rows in enumerate(packed.chunk(3 * heads)):
            part, head = _PARTS[number // heads], number % heads
            state[f"{prefix}heads.{head}.{part}.{kind}"] = rows
