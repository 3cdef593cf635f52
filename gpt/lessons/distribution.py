"""The distribution of the next character in torch: temperature, filters, their order, draws.

The lesson "sampling" shows these functions. They repeat gpt/reading/sampler.py, which a tutorial
must not import, for a single distribution; tests compare the two. Tensor names: V characters, N
random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.config import SampleConfig
from gpt.config.sample import SHAPING


def soften(logits: Tensor, temperature: float) -> Tensor:
    """(V,) logits -> probabilities; temperature 0 gives all to the largest, the first of equals."""
    if temperature == 0:
        return F.one_hot(logits.argmax(), len(logits)).to(logits)
    return F.softmax((logits - logits.max()) / temperature, dim=0)


def rank(scores: Tensor) -> Tensor:
    """(V,) ids, the largest score first; of equal scores, the lowest id."""
    return scores.argsort(descending=True, stable=True)


def rank_typical(p: Tensor) -> Tensor:
    """(V,) ids, the surprisal nearest to the entropy first; of equally near ones, the likeliest."""
    likeliest = rank(p)
    return likeliest[rank(-distances(p)[likeliest])]


def distances(p: Tensor) -> Tensor:
    """(V,) distances of the surprisals −ln p from the entropy, in steps of 1e-9 nats."""
    entropy: Tensor = torch.special.entr(p).sum()
    return (-p.log() - entropy).abs().round(decimals=9)


def keep_fewest(amounts: Tensor, order: Tensor, least: float) -> Tensor:
    """(V,) True for the fewest ids, taken in this order, whose amounts add up to `least`."""
    kept = torch.empty_like(amounts, dtype=torch.bool)
    kept[order] = amounts[order].cumsum(dim=0) - amounts[order] < least
    return kept


#: Name of the option -> (V,) probabilities and the option's value -> (V,) True for those it keeps.
FILTERS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "top_k": lambda p, k: keep_fewest(torch.ones_like(p), rank(p), k),
    "top_p": lambda p, mass: keep_fewest(p, rank(p), mass),
    "min_p": lambda p, share: p >= share * p.max(),
    "typical_p": lambda p, mass: keep_fewest(p, rank_typical(p), mass),
}


def shape(logits: Tensor, config: SampleConfig, order: Sequence[str] = SHAPING) -> list[Tensor]:
    """(V,) logits -> the (V,) probabilities after each option that is set, in this order.

    What a filter removes gets 0; the others are divided by their sum.
    """
    p, after = soften(logits, 1), []
    for name in order:
        value = getattr(config, name)
        if value is None:
            continue
        if name == "temperature":
            p = soften(p.log(), value)
        else:
            p = p * FILTERS[name](p, value)
            p = p / p.sum()
        after.append(p)
    return after


def uniforms(seed: int, count: int) -> Tensor:
    """The first random numbers of the first text of `gptx sample --seed`: (N,) in [0, 1).

    Philox is counter-based (Salmon et al. 2011); 53 bits make a float.
    """
    raw = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)).random_raw(count)
    return torch.from_numpy((raw >> np.uint64(11)) * 2.0**-53)


def draw(p: Tensor, u: Tensor) -> Tensor:
    """(V,) probabilities, (N,) random numbers -> (N,) ids, by inversion."""
    ends = p.cumsum(dim=0)
    return (ends <= u[:, None] * ends[-1]).sum(dim=1).clamp(max=len(p) - 1)
