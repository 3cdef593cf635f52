"""Functions for lessons: make tables from tensors, check that two tensors are equal, and make
random numbers that are the same on all machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gpt.checks import Check
from gpt.lessons.catalogue import TRANSLATED
from gpt.lessons.lesson import Material, Table

EQUAL = 1e-7  # largest difference between equal numbers; in float64, most differ by far less


def input_tensor(material: Material) -> Tensor:
    """(T, C) embeddings in float64."""
    return torch.from_numpy(material.embeddings)


def second_text(material: Material) -> tuple[str, ...]:
    """Words of a second text of another length; y1, y2 … if the words are the user's."""
    size = len(TRANSLATED) - (len(material.words) == len(TRANSLATED))
    return tuple(f"y{n}" for n in range(1, size + 1)) if material.own else TRANSLATED[:size]


def error_text(call: Callable[[], object]) -> str:
    """The error that a call raises: its type and the first line of its message."""
    try:
        call()
    except (AttributeError, IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "nothing"


def table(
    name: str, numbers: Tensor | Mapping[str, Tensor], rule: str = "", /, **labels: Any
) -> Table:
    """A Table from a tensor, or from columns with names; `labels` are its other fields."""
    if not isinstance(numbers, Tensor):
        labels["columns"], numbers = tuple(numbers), torch.stack([*numbers.values()], dim=-1)
    return Table(name, numbers.detach().numpy(), rule=rule, **labels)


def check_equal(name: str, one: Tensor, other: Tensor | float, bound: float = EQUAL) -> Check:
    """A check that a tensor equals another one, or a number, within `bound`, relative to the
    largest number above 1.
    """
    one, other = one.detach(), torch.as_tensor(other).detach()
    return Check(name, float((one - other).abs().max()), bound * max(1.0, float(other.abs().max())))


# The generator MCG31m1 of Intel's MKL: x -> a·x mod m (L'Ecuyer 1999).
MULTIPLIER, MODULUS = 1_132_489_760, 2**31 - 1


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """A context in which torch's generator has this seed; afterwards its state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def dropout_mask(shape: tuple[int, ...], p: float, seed: int) -> Tensor:
    """The factors of nn.Dropout with this seed: 0 with probability p, else 1 / (1 − p).

    With the same seed, torch draws one mask if it uses Intel's MKL, and another if it does not
    (pytorch issue 121595). This function computes MKL's mask, whose generator is seeded with the
    first 32 bits of torch's generator.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty((), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    state = (int(drawn) >> 32 & 0xFFFFFFFF) % MODULUS or 1
    kept = []
    for _ in range(math.prod(shape)):
        kept.append(state / MODULUS < 1 - p)
        state = state * MULTIPLIER % MODULUS
    return torch.tensor(kept, dtype=torch.float64).view(shape) / (1 - p)
