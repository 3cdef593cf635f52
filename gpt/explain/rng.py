"""Random numbers of the lessons, drawn by torch without changing the state of its generator.

The tutorials' tables were printed on one kind of machine; these functions give the same numbers on
all machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# MCG31m1 of Intel's MKL: x -> a·x mod m (L'Ecuyer 1999).
MULTIPLIER, MODULUS = 1_132_489_760, 2**31 - 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch's generator inside, and restores its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def dropout_mask(shape: tuple[int, ...], p: float, seed: int) -> Tensor:
    """The factors of nn.Dropout after the seed: 0 with probability p, else 1 / (1 − p).

    With the same seed, torch draws one mask if it uses Intel's MKL, and another if it does not
    (pytorch issue 121595). This function computes MKL's mask: its generator is seeded with the
    first 32 bits of torch's.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty((), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    state = (int(drawn) >> 32 & 0xFFFFFFFF) % MODULUS or 1
    kept = []
    for _ in range(math.prod(shape)):
        kept.append(state / MODULUS < 1 - p)
        state = state * MULTIPLIER % MODULUS
    return torch.tensor(kept, dtype=torch.float64).view(shape) / (1 - p)
