"""Attention, from one head to a GPT. Replace each `raise NotImplementedError` by your code.

`gptx exercise attention --check attention.py` says which stage is right and what went wrong.
B texts, T characters, C = n_embd, D = head_size = C // n_head, V = vocab_size, p = the share
that dropout drops.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: F401 (your code needs it)
from torch import Tensor, nn


class Head(nn.Module):
    """One head of causal self-attention."""

    tril: Tensor

    def __init__(self, n_embd: int, head_size: int, block_size: int, p: float) -> None:
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.ones(block_size, block_size).tril())  # 1 on and below
        self.dropout = nn.Dropout(p)

    def scores(self, x: Tensor) -> Tensor:
        """Stage head: queries · keysᵀ / √D, (B, T, C) -> (B, T, T); row i belongs to query i."""
        raise NotImplementedError("head")

    def weights(self, scores: Tensor) -> Tensor:
        """Stage mask: −∞ where self.tril[:T, :T] is 0, then softmax of each row, same shape."""
        raise NotImplementedError("mask")

    def forward(self, x: Tensor) -> Tensor:
        """Stage mask: weights, with dropout, times values, (B, T, C) -> (B, T, D)."""
        raise NotImplementedError("mask")


class MultiHeadAttention(nn.Module):
    def __init__(self, n_head: int, n_embd: int, block_size: int, p: float) -> None:
        super().__init__()
        size = n_embd // n_head
        self.heads = nn.ModuleList(Head(n_embd, size, block_size, p) for _ in range(n_head))
        self.proj = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        """Stage multi-head: the heads' (B, T, D) concatenated, projected, dropout, (B, T, C)."""
        raise NotImplementedError("multi-head")


class FeedForward(nn.Module):
    def __init__(self, n_embd: int, p: float) -> None:
        super().__init__()
        self.up = nn.Linear(n_embd, 4 * n_embd)
        self.down = nn.Linear(4 * n_embd, n_embd)
        self.dropout = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        """Stage block: up, ReLU, down, dropout, (B, T, C) -> (B, T, C)."""
        raise NotImplementedError("block")


class Block(nn.Module):
    def __init__(self, n_head: int, n_embd: int, block_size: int, p: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(n_embd)
        self.attention = MultiHeadAttention(n_head, n_embd, block_size, p)
        self.norm2 = nn.LayerNorm(n_embd)
        self.feed_forward = FeedForward(n_embd, p)

    def forward(self, x: Tensor) -> Tensor:
        """Stage block: x plus attention of norm1(x); the sum plus feed-forward of its norm2."""
        raise NotImplementedError("block")


class GPT(nn.Module):
    """Ids of characters -> logits of the next character at every position."""

    def __init__(
        self, vocab_size: int, block_size: int, n_layer: int, n_head: int, n_embd: int, p: float
    ) -> None:
        super().__init__()
        self.block_size = block_size
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.position_embedding = nn.Embedding(block_size, n_embd)
        self.dropout = nn.Dropout(p)
        blocks = (Block(n_head, n_embd, block_size, p) for _ in range(n_layer))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def embed(self, ids: Tensor) -> Tensor:
        """Stage position: embeddings of tokens + of positions, dropout, (B, T) -> (B, T, C)."""
        raise NotImplementedError("position")

    def forward(self, ids: Tensor) -> Tensor:
        """Is complete: (B, T) -> (B, T, V)."""
        logits: Tensor = self.lm_head(self.norm(self.blocks(self.embed(ids))))
        return logits


def loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Stage loss: the mean cross-entropy of the next characters, (B, T, V) and (B, T) -> ().

    ids are what the model has read: logits[:, t] predict ids[:, t + 1], the last ones nothing.
    """
    raise NotImplementedError("loss")


def probabilities(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    """Stage sampling: softmax of logits / temperature, (B, V) -> (B, V). If top_k is a number, only
    the top_k largest logits of each row get a probability, and the others 0.
    """
    raise NotImplementedError("sampling")


def draw(chances: Tensor) -> Tensor:
    """Stage sampling: for each row of probabilities, one id drawn at random, (B, V) -> (B, 1)."""
    raise NotImplementedError("sampling")


@torch.no_grad()
def generate(model: GPT, ids: Tensor, count: int, temperature: float, top_k: int | None) -> Tensor:
    """Is complete: (B, T) ids -> (B, T + count)."""
    for _ in range(count):
        logits = model(ids[:, -model.block_size :])[:, -1]
        ids = torch.cat((ids, draw(probabilities(logits, temperature, top_k))), dim=1)
    return ids
