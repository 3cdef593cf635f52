"""The decoder-only transformer: ids -> logits. Loss, sampling and files are elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.config.fields import require
from gpt.model.attention import ATTENTION, Rotate
from gpt.model.layers import NORMS, Dropout, FeedForward
from gpt.model.positions import POSITIONS


class Block(nn.Module):
    """Attention, then feed-forward; each reads the normalised stream and is added to it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1 = NORMS[config.norm](config)
        self.attention = ATTENTION[config.attention](config)
        self.norm2 = NORMS[config.norm](config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, rotate: Rotate, bias: Tensor | None = None, **more: Any) -> Tensor:
        """more: further arguments of the attention."""
        x = x + self.attention(self.norm1(x), rotate, bias, **more)
        return x + self.feed_forward(self.norm2(x))  # type: ignore[no-any-return]


class Cache:
    """Keys and values of the positions so far, at fixed addresses, as a CUDA graph needs.

    (L, B, H, S, D), S = block_size. at: (T,), the positions of the ids that a forward gets together
    with the cache.
    """

    at: Tensor

    def __init__(self, config: ModelConfig, batch: int, device: torch.device) -> None:
        size = config.block_size
        shape = (config.n_layer, batch, config.n_head, size, config.head_size)
        self.keys, self.values = (torch.zeros(shape, device=device) for _ in range(2))
        self._past = torch.ones(size, size, dtype=torch.bool, device=device).tril()

    def layers(self) -> list[dict[str, Any]]:
        """Each layer's arguments of attention, so that new queries attend to all keys so far."""
        allowed = self._past.index_select(0, self.at)  # (T, S)
        stores = [partial(self._store, layer) for layer in range(len(self.keys))]
        return [{"allowed": allowed, "store": store} for store in stores]

    def _store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer].index_copy_(2, self.at, keys)
        self.values[layer].index_copy_(2, self.at, values)
        return self.keys[layer], self.values[layer]


class GPT(nn.Module):
    """(B, T) ids -> (B, T, vocab_size) logits of the next character at every position.

    Raises ConfigError for n-gram embeddings, which only gpt/reading computes.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        reason = "only numpy computes n-gram embeddings of earlier releases (gpt.load), not torch"
        require(config.ngram == 1, "ngram", reason)
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position = POSITIONS[config.position](config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = NORMS[config.norm](config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.token_embedding.weight

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """With a cache, the ids are at its positions `at`, and only the logits after the last of
        them are computed: (B, 1, vocab_size). A cache needs fused attention.
        """
        T = ids.shape[1]
        at, keys = (slice(T), T) if cache is None else (cache.at, self.config.block_size)
        x = self.dropout(self.position.embed(self.token_embedding(ids), at))  # (B, T, C)
        rotate, bias = partial(self.position.rotate, at=at), self.position.bias(keys, at)
        layers = [{}] * len(self.blocks) if cache is None else cache.layers()
        for block, cached in zip(self.blocks, layers, strict=True):
            x = block(x, rotate, bias, **cached)
        x = x if cache is None else x[:, -1:]
        return self.lm_head(self.norm(x))  # type: ignore[no-any-return]  # (B, T, vocab_size)

    def stored_parameters(self) -> dict[str, Tensor]:
        """The parameters in the checkpoint's layout (ModelConfig.shapes), tied ones once."""
        state = self.state_dict()
        return {name: state[name].detach() for name in self.config.shapes()}

    def load_parameters(self, stored: dict[str, Tensor]) -> None:
        """Sets the parameters that `stored_parameters` returned, for either form of attention."""
        tied = {"lm_head.weight": stored["token_embedding.weight"]} if self.config.tied else {}
        self.load_state_dict({**stored, **tied})
