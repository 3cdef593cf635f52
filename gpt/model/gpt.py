"""The transformer, decoder-only or with an encoder: ids -> logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.model.attention import ATTENTION, Keep, Rotate
from gpt.model.layers import NORMS, Dropout, FeedForward
from gpt.model.positions import POSITIONS


class Block(nn.Module):
    """Self-attention, then attention to an encoder's output if there is one, then feed-forward
    unless the model has none.

    Each of these sublayers is added to the stream. It reads the normalised stream; with post_norm,
    it reads the stream itself and the sum is normalised.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.post_norm = config.post_norm
        self.norm1 = NORMS[config.norm](config)
        self.attention = ATTENTION[config.attention](config)
        self.cross: nn.Module | None = None
        if config.encoder_layers:
            self.cross_norm = NORMS[config.norm](config)
            self.cross = ATTENTION[config.attention](config)
        self.feed_forward: nn.Module | None = None
        if config.feed_forward:
            self.norm2 = NORMS[config.norm](config)
            self.feed_forward = FeedForward(config)

    def forward(
        self,
        x: Tensor,
        rotate: Rotate,
        memory: Tensor | None = None,
        seen: Tensor | None = None,
        keep: Keep | None = None,
        **more: Any,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C). memory: (B, S, C), the encoder's output; seen: (B, S), False for
        padding. keep: receives the stages up to self-attention, which must be in its readable form,
        and resid_post. more: further arguments of self-attention.
        """
        if keep is not None:
            keep(resid_pre=x)
            more["keep"] = keep
        x = self._add(x, self.norm1, lambda x: self.attention(x, rotate, **more))
        if keep is not None:
            keep(resid_mid=x)
        if self.cross is not None:
            cross = partial(self.cross, rotate=rotate, memory=memory, allowed=key_mask(seen))
            x = self._add(x, self.cross_norm, cross)
        if self.feed_forward is not None:
            x = self._add(x, self.norm2, self.feed_forward)
        if keep is not None:
            keep(resid_post=x)
        return x

    def _add(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.post_norm:
            return norm(x + sublayer(x))  # type: ignore[no-any-return]
        return x + sublayer(norm(x))


def key_mask(seen: Tensor | None) -> Tensor | None:
    """(B, S) False for padding -> (B, 1, S), a mask for all queries."""
    return None if seen is None else seen[:, None]


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


class Stack(nn.Module):
    """Embeddings, blocks and the last norm: (B, T) ids -> (B, T, C). Base of the GPT and of its
    encoder, in which each character attends to all characters but padding.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position = POSITIONS[config.position](config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.Identity() if config.post_norm else NORMS[config.norm](config)

    def stream(self, ids: Tensor, cache: Cache | None = None, **more: Any) -> Tensor:
        """(B, T) ids -> (B, T, C), or (B, 1, C) with a cache. more: arguments of the blocks."""
        T = ids.shape[1]
        at = slice(T) if cache is None else cache.at
        x = self.token_embedding(ids)
        if self.config.scaled_embedding:
            x = x * self.config.n_embd**0.5
        x = self.dropout(self.position.embed(x, at))  # (B, T, C)
        rotate = partial(self.position.rotate, at=at)
        layers = [{}] * len(self.blocks) if cache is None else cache.layers()
        for block, cached in zip(self.blocks, layers, strict=True):
            x = block(x, rotate, **cached, **more)
        x = x if cache is None else x[:, -1:]
        return self.norm(x)  # type: ignore[no-any-return]


class GPT(Stack):
    """(B, T) ids -> (B, T, vocab_size) logits of the next character at every position; with an
    encoder (config.encoder_layers), of a target, given a source (Vaswani et al. 2017).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.encoder: Stack | None = None
        if config.encoder:
            self.encoder = Stack(config.encoder)
            if config.shared_embedding:
                self.encoder.token_embedding.weight = self.token_embedding.weight
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.token_embedding.weight

    def encode(self, source: Tensor, seen: Tensor | None = None) -> Tensor:
        """(B, S) ids -> (B, S, C), the memory. seen: (B, S), False for padding; None: all True."""
        assert self.encoder is not None
        seen = torch.ones_like(source, dtype=torch.bool) if seen is None else seen
        return self.encoder.stream(source, allowed=key_mask(seen))

    def forward(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        source: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> Tensor:
        """source: (B, S) ids; seen: (B, S), see `encode`; both for a model with an encoder.

        With a cache, the ids stand at its positions `at`, and only the logits after the last id are
        computed: (B, 1, vocab_size). A cache needs fused attention; in a model with an encoder, use
        `stream` with cache and memory.
        """
        more = {} if source is None else {"memory": self.encode(source, seen), "seen": seen}
        return self.lm_head(self.stream(ids, cache, **more))  # type: ignore[no-any-return]

    def stored_parameters(self) -> dict[str, Tensor]:
        """Name -> parameter in the checkpoint's layout (ModelConfig.shapes), tied ones once."""
        state = self.state_dict()
        return {name: state[name].detach() for name in self.config.shapes()}

    def load_parameters(self, stored: dict[str, Tensor]) -> None:
        """Loads parameters from `stored_parameters`, for either form of attention."""
        table, again = stored["token_embedding.weight"], dict[str, Tensor]()
        if self.config.tied:
            again["lm_head.weight"] = table
        if self.config.shared_embedding:
            again["encoder.token_embedding.weight"] = table
        self.load_state_dict({**stored, **again})
