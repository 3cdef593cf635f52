"""The decoder-only transformer: ids -> logits, nothing else. No loss, no sampling, no files."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.model.attention import ATTENTION, Rotate
from gpt.model.layers import NORMS, Dropout, FeedForward
from gpt.model.ngram_embedding import NgramEmbedding
from gpt.model.positions import POSITIONS

INIT_STD = 0.02


class Block(nn.Module):
    """Communication, then computation, each normalised first and added to the stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1 = NORMS[config.norm](config)
        self.attention = ATTENTION[config.attention](config)
        self.norm2 = NORMS[config.norm](config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, rotate: Rotate, bias: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), rotate, bias)
        return x + self.feed_forward(self.norm2(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """(B, T) ids -> (B, T, vocab_size) logits of the next character at every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.ngram_embedding = NgramEmbedding(config) if config.ngram > 1 else None
        self.position = POSITIONS[config.position](config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = NORMS[config.norm](config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.token_embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embedding(ids)  # (B, T, C)
        if self.ngram_embedding is not None:
            x = x + self.ngram_embedding(ids)
        x = self.dropout(self.position.embed(x))
        bias = self.position.bias(ids.shape[1])  # (H, T, T), or None
        for block in self.blocks:
            x = block(x, self.position.rotate, bias)
        return self.lm_head(self.norm(x))  # type: ignore[no-any-return]  # (B, T, vocab_size)

    def stored_parameters(self) -> dict[str, Tensor]:
        """The parameters in the checkpoint's layout (ModelConfig.shapes), tied ones once."""
        state = self.state_dict()
        return {name: state[name].detach() for name in self.config.shapes()}

    def load_parameters(self, stored: dict[str, Tensor]) -> None:
        """Takes what `stored_parameters` gave, whichever attention gave it."""
        tied = {"lm_head.weight": stored["token_embedding.weight"]} if self.config.tied else {}
        self.load_state_dict({**stored, **tied})


def initialise(model: GPT, seed: int) -> None:
    """GPT-2's start: N(0, 0.02), residual projections smaller by √(2·n_layer) (Radford 2019).

    n-gram embeddings start from nothing.
    A pure function of config and seed: both forms of attention start from the same numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    residual_std = INIT_STD / math.sqrt(2 * model.config.n_layer)
    stored = {}
    for name, shape in model.config.shapes().items():
        if name.endswith(".bias") or name == "ngram_embedding.weight":
            stored[name] = torch.zeros(shape)
        elif len(shape) == 1:
            stored[name] = torch.ones(shape)
        else:
            residual = name.endswith(("proj.weight", "down.weight"))
            std = residual_std if residual else INIT_STD
            stored[name] = torch.randn(shape, generator=generator) * std
    model.load_parameters(stored)
