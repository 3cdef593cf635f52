"""Drawing characters on a device: the sampler's filters and its inversion, in torch.

The same steps in float64 as gpt/reading/sampler.py, to which tests hold it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpt.config import SampleConfig


def draw(logits: Tensor, uniforms: Tensor, config: SampleConfig) -> Tensor:
    """(B, vocab_size) logits and (B,) uniforms in [0, 1) -> (B,) ids."""
    if config.temperature == 0:
        return logits.argmax(dim=-1)
    weights = torch.softmax(logits.double() / config.temperature, dim=-1)
    if config.top_k is not None or config.top_p is not None:
        ranked, order = weights.sort(dim=-1, descending=True, stable=True)
        if config.top_k is not None:
            ranked[:, config.top_k :] = 0.0
            ranked = ranked / ranked.sum(dim=-1, keepdim=True)
        if config.top_p is not None:
            before = ranked.cumsum(dim=-1) - ranked  # the mass of the likelier ones
            ranked = ranked.masked_fill(before >= config.top_p, 0.0)
        weights = torch.zeros_like(weights).scatter(-1, order, ranked)
    if config.min_p is not None:
        least = config.min_p * weights.amax(dim=-1, keepdim=True)
        weights = weights.masked_fill(weights < least, 0.0)
    cumulative = weights.cumsum(dim=-1)
    below = cumulative <= (uniforms * cumulative[:, -1])[:, None]
    return below.sum(dim=-1).clamp(max=weights.shape[-1] - 1)
