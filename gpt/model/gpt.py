"""The transformer from ids to logits, its initial weights, and its forward pass on a device.

Tensor names: B batch, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.config.model import HEAD_STAGES, Attention
from gpt.model.attention import ATTENTION, Rotate
from gpt.model.layers import EPSILON, POSITIONS, Dropout, FeedForward, Rotary
from gpt.vocabulary import Ids

Array = npt.NDArray[np.float32]
STD = 0.02
COMMON = 0.5  # length of the vector common to all embeddings, relative to their random part
PEAK = 8.0  # score, before the softmax, of the character that a head attends to at first
_BY_CHARACTER = ("token_embedding.weight", "lm_head.weight")  # have a row for each character
SLOWEST = 0.1  # radians per character; slower rotations cannot tell neighbours apart


class Block(nn.Module):
    """One layer: self-attention, then feed-forward if the model has it. Both read the normalised
    residual stream, and add their output to the stream.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.n_embd, EPSILON, bias=config.bias)
        self.attention = ATTENTION[config.attention](config)
        self.feed_forward: nn.Module | None = None
        if config.feed_forward:
            self.norm2 = nn.LayerNorm(config.n_embd, EPSILON, bias=config.bias)
            self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, rotate: Rotate, **options: Any) -> Tensor:
        """(B, T, C) -> (B, T, C). options: further arguments of attention. These are the layer's
        `KeyValueCache.attention_arguments`, or `keep`, which receives all stages except those of
        feed-forward.
        """
        middle: Tensor = x + self.attention(self.norm1(x), rotate, **options)
        after = middle
        if self.feed_forward is not None:
            after = middle + self.feed_forward(self.norm2(middle))
        if keep := options.get("keep"):
            keep(resid_pre=x, resid_mid=middle, resid_post=after)
        return after


class KeyValueCache:
    """Stores the (L, B, H, S, D) keys and values of all positions so far, S = block_size. at: the
    positions of the ids of the next forward pass. The caller sets it.
    """

    def __init__(self, config: ModelConfig, batch: int, device: torch.device) -> None:
        size = config.block_size
        shape = (config.n_layer, batch, config.n_head, size, config.head_size)
        self.keys, self.values = (torch.zeros(shape, device=device) for _ in range(2))
        self._past = torch.ones(size, size, dtype=torch.bool, device=device).tril()
        self.at = slice(0)

    def attention_arguments(self) -> list[dict[str, Any]]:
        """Returns every layer's arguments for attention: a mask, and a function that caches."""
        allowed = self._past[self.at, : self.at.stop]  # (T, S)
        stores = [partial(self._store, layer) for layer in range(len(self.keys))]
        return [{"allowed": allowed, "store": store} for store in stores]

    def _store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer, :, :, self.at] = keys
        self.values[layer, :, :, self.at] = values
        return self.keys[layer, :, :, : self.at.stop], self.values[layer, :, :, : self.at.stop]


class GPT(nn.Module):
    """A GPT: (B, T) ids -> (B, T, vocab_size) logits of the next character at every position."""

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

    def residual_stream(self, ids: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T) ids -> (B, T, C) residual stream after the last norm; (B, 1, C) with a cache."""
        at = slice(ids.shape[1]) if cache is None else cache.at
        x = self.dropout(self.position.embed(self.token_embedding(ids), at))  # (B, T, C)
        rotate = partial(self.position.rotate, at=at)
        layers = [{}] * len(self.blocks) if cache is None else cache.attention_arguments()
        for block, options in zip(self.blocks, layers, strict=True):
            x = block(x, rotate, **options)
        x = x if cache is None else x[:, -1:]
        return self.norm(x)  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T) ids -> (B, T, vocab_size) logits. With a cache, the ids are those at the positions
        `cache.at`, and the logits are (B, 1, vocab_size), after the last id. A cache needs fused
        attention.
        """
        return self.lm_head(self.residual_stream(ids, cache))  # type: ignore[no-any-return]

    def stored_parameters(self) -> dict[str, Tensor]:
        """Returns name -> parameter as in a checkpoint (ModelConfig.shapes), no tied copies."""
        state = self.state_dict()
        return {name: state[name].detach() for name in self.config.shapes()}

    def load_parameters(self, stored: dict[str, Tensor]) -> None:
        """Loads parameters in the layout of `stored_parameters`, in either form of attention."""
        if self.config.tied:
            stored = {**stored, "lm_head.weight": stored["token_embedding.weight"]}
        self.load_state_dict(stored)


def initialise(model: GPT, seed: int) -> None:
    """Initialises the weights as GPT-2 does (Radford et al. 2019). Weights are drawn from N(0,
    0.02²), and those of residual projections divided by √(2·n_layer), or by √n_layer in a model
    without feed-forward. Fused attention and separate heads get the same numbers.
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


def copy_weights(model: GPT, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Copies the weights of a model whose vocabulary is the start of this model's vocabulary. The
    embedding and output rows of new characters start as the mean of the known rows (Hewitt 2021).
    So no new character is likelier at first than the known ones are on average.
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
    """Sets initial weights with which head h of the first layer attends h + 1 characters back.

    Otherwise a GPT must first learn such heads (Olsson et al. 2022). Training may change them.
    A common vector is added to all embeddings, and queries and keys read it. Rotary positions
    rotate the vector, so that the score at a distance d is PEAK times the mean of
    cos(speed · (d − h − 1)).
    """
    C, H, D = config.n_embd, config.n_head, config.head_size
    common = torch.randn(C, generator=generator)
    common = (common - common.mean()) / common.std() / math.sqrt(C)  # of length 1 and mean 0
    stored["token_embedding.weight"] += COMMON * STD * math.sqrt(C) * common
    read = math.sqrt(C) * COMMON / math.hypot(1, COMMON)  # `common` in a normalised embedding
    speeds = Rotary.speeds(config)
    speeds = speeds[speeds >= SLOWEST].float()
    row = math.sqrt(PEAK * math.sqrt(D) / len(speeds)) / read * common  # (C,)
    qkv = stored["blocks.0.attention.qkv.weight"].view(3, H, D // 2, 2, C)
    for head in range(min(H, config.previous_heads)):
        turns = speeds * (head + 1)
        qkv[0, head, : len(turns), 0] += row
        qkv[1, head, : len(turns), 0] += turns.cos()[:, None] * row
        qkv[1, head, : len(turns), 1] += turns.sin()[:, None] * row


class DeviceGPT:
    """A GPT on a device, for the reader (probe.Device). `start` sets B, the number of streams."""

    def __init__(self, model: GPT, device: str) -> None:
        self.config, self._model, self._device = model.config, model, torch.device(device)
        self._forms: dict[Attention, GPT] = {}
        self._cache = KeyValueCache(self.config, 0, self._device)

    def make_twin(self) -> DeviceGPT:
        twin = copy(self)
        twin._cache = KeyValueCache(self.config, 0, self._device)
        return twin

    def start(self, ids: Ids) -> Array:
        if len(ids) != self._cache.keys.shape[1]:
            self._cache = KeyValueCache(self.config, len(ids), self._device)
        self._cache.at = slice(0)
        return self._continue(ids)

    def step(self, ids: Ids) -> Array:
        return self._continue(ids[:, None])

    @torch.inference_mode()
    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C): the residual stream after the last norm."""
        return _finite(self._with("fused").residual_stream(self._tokens(ids)))

    @torch.inference_mode()
    def block(self, x: Array, layer: int) -> dict[str, Array]:
        """Returns the stages of a layer, name -> (B, …) array, for its (B, T, C) input."""
        stages = defaultdict[str, list[Tensor]](list)

        def keep(**tensors: Tensor) -> None:
            for name, stage in tensors.items():
                stages[name].append(stage)

        model = self._with("heads")
        rotate = partial(model.position.rotate, at=slice(x.shape[1]))
        model.blocks[layer](torch.tensor(x, device=self._device), rotate, keep=keep)
        _finite(stages["resid_post"][0])
        return {
            name: (torch.stack(parts, dim=1) if name in HEAD_STAGES else parts[0]).cpu().numpy()
            for name, parts in stages.items()
        }

    @torch.inference_mode()
    def _continue(self, ids: Ids) -> Array:
        end = self._cache.at.stop
        self._cache.at = slice(end, end + ids.shape[1])
        return _finite(self._with("fused")(self._tokens(ids), self._cache)[:, 0])

    def _tokens(self, ids: Ids) -> Tensor:
        return torch.tensor(ids.astype(np.int64), device=self._device)

    def _with(self, attention: Attention) -> GPT:
        """Returns the model with this form of attention, on the device."""
        if attention not in self._forms:
            model = self._model
            if model.config.attention != attention:
                model = GPT(replace(model.config, attention=attention))
                model.load_parameters(self._model.stored_parameters())
            self._forms[attention] = model.to(self._device).eval()
        return self._forms[attention]


def _finite(result: Tensor) -> Array:
    """Copies the result to numpy. Raises FloatingPointError if a number is not finite."""
    array: Array = result.cpu().numpy()
    if not np.isfinite(array).all():
        raise FloatingPointError("its numbers are not finite")
    return array
