"""Drawing characters on a device: the filters and the draw of gpt/reading/sampler.py, in torch.

The steps are the same and in float64, so that equal uniforms draw equal characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpt.config import SampleConfig


def _top_k(ranked: Tensor, k: int) -> Tensor:
    return (torch.arange(ranked.shape[-1], device=ranked.device) < k).expand_as(ranked)


def _top_p(ranked: Tensor, p: float) -> Tensor:
    return ranked.cumsum(dim=-1) - ranked < p


def _min_p(ranked: Tensor, p: float) -> Tensor:
    return ranked >= p * ranked.amax(dim=-1, keepdim=True)


def _typical_p(ranked: Tensor, p: float) -> Tensor:
    surprise = -ranked.log()  # infinite where an earlier filter left 0
    entropy = -torch.xlogy(ranked, ranked).sum(dim=-1, keepdim=True)
    distance, order = (surprise - entropy).abs().round(decimals=9).sort(dim=-1, stable=True)
    return torch.empty_like(distance, dtype=torch.bool).scatter(
        -1, order, _top_p(ranked.gather(-1, order), p)
    )


#: Like FILTERS of gpt/reading/sampler.py: the same names, order, arguments and results.
FILTERS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "typical_p": _typical_p,
}


def draw(logits: Tensor, uniforms: Tensor, config: SampleConfig) -> Tensor:
    """(B, vocab_size) logits and (B,) uniforms in [0, 1) -> (B,) ids."""
    if config.temperature == 0:
        return logits.argmax(dim=-1)
    weights = torch.softmax(logits.double() / config.temperature, dim=-1)
    values = {name: getattr(config, name) for name in FILTERS}
    if any(value is not None for value in values.values()):
        ranked, order = weights.sort(dim=-1, descending=True, stable=True)
        for name, keeps in FILTERS.items():
            if values[name] is not None:
                ranked = ranked.masked_fill(~keeps(ranked, values[name]), 0.0)
                ranked = ranked / ranked.sum(dim=-1, keepdim=True)
        weights = torch.zeros_like(weights).scatter(-1, order, ranked)
    cumulative = weights.cumsum(dim=-1)
    below = cumulative <= (uniforms * cumulative[:, -1])[:, None]
    return below.sum(dim=-1).clamp(max=weights.shape[-1] - 1)
