"""The transformer: ids -> logits."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.model.attention import ATTENTION, Keep, Rotate
from gpt.model.layers import EPSILON, POSITIONS, Dropout, FeedForward


class Block(nn.Module):
    """Self-attention, then feed-forward unless the model has none. Each reads the normalised stream
    and adds its output to the stream.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.n_embd, EPSILON, bias=config.bias)
        self.attention = ATTENTION[config.attention](config)
        self.feed_forward: nn.Module | None = None
        if config.feed_forward:
            self.norm2 = nn.LayerNorm(config.n_embd, EPSILON, bias=config.bias)
            self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, rotate: Rotate, keep: Keep | None = None, **cached: Any) -> Tensor:
        """(B, T, C) -> (B, T, C). keep: receives the stages, but not those of feed-forward; it
        needs attention in its readable form. cached: a layer's arguments from `Cache.layers`.
        """
        if keep is not None:
            keep(resid_pre=x)
            cached["keep"] = keep
        x = x + self.attention(self.norm1(x), rotate, **cached)
        if keep is not None:
            keep(resid_mid=x)
        if self.feed_forward is not None:
            x = x + self.feed_forward(self.norm2(x))
        if keep is not None:
            keep(resid_post=x)
        return x


class Cache:
    """Keys and values of all positions so far: (L, B, H, S, D), S = block_size.

    at: the positions of the ids that the forward pass gets together with the cache.
    """

    def __init__(self, config: ModelConfig, batch: int, device: torch.device) -> None:
        size = config.block_size
        shape = (config.n_layer, batch, config.n_head, size, config.head_size)
        self.keys, self.values = (torch.zeros(shape, device=device) for _ in range(2))
        self._past = torch.ones(size, size, dtype=torch.bool, device=device).tril()
        self.at = slice(0)

    def layers(self) -> list[dict[str, Any]]:
        """Arguments of each layer's attention: new queries may attend to all keys so far."""
        allowed = self._past[self.at, : self.at.stop]  # (T, S)
        stores = [partial(self._store, layer) for layer in range(len(self.keys))]
        return [{"allowed": allowed, "store": store} for store in stores]

    def _store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer, :, :, self.at] = keys
        self.values[layer, :, :, self.at] = values
        return self.keys[layer, :, :, : self.at.stop], self.values[layer, :, :, : self.at.stop]


class GPT(nn.Module):
    """(B, T) ids -> (B, T, vocab_size) logits of the next character at every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position = POSITIONS[config.position](config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd, EPSILON, bias=config.bias)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.token_embedding.weight

    def stream(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """(B, T) ids -> (B, T, C), or (B, 1, C) with a cache: the stream after the last norm."""
        at = slice(ids.shape[1]) if cache is None else cache.at
        x = self.dropout(self.position.embed(self.token_embedding(ids), at))  # (B, T, C)
        rotate = partial(self.position.rotate, at=at)
        layers = [{}] * len(self.blocks) if cache is None else cache.layers()
        for block, cached in zip(self.blocks, layers, strict=True):
            x = block(x, rotate, **cached)
        x = x if cache is None else x[:, -1:]
        return self.norm(x)  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """With a cache, the ids stand at its positions `at`, and only the logits after the last id
        are computed: (B, 1, vocab_size). A cache needs fused attention.
        """
        return self.lm_head(self.stream(ids, cache))  # type: ignore[no-any-return]

    def stored_parameters(self) -> dict[str, Tensor]:
        """Name -> parameter in the checkpoint's layout (ModelConfig.shapes), tied ones once."""
        state = self.state_dict()
        return {name: state[name].detach() for name in self.config.shapes()}

    def load_parameters(self, stored: dict[str, Tensor]) -> None:
        """Loads parameters from `stored_parameters`, for either form of attention."""
        if self.config.tied:
            stored = {**stored, "lm_head.weight": stored["token_embedding.weight"]}
        self.load_state_dict(stored)
