"""Functions of the lessons: tables from tensors, and checks that two tensors are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpt.checks import Check
from gpt.explain.catalogue import TRANSLATED
from gpt.explain.lesson import Material, Table

EQUAL = 1e-7  # largest difference of equal numbers; in float64, most differ by far less


def inputs_of(material: Material) -> Tensor:
    """(T, C) embeddings in float64."""
    return torch.from_numpy(material.embeddings)


def second_text(material: Material) -> tuple[str, ...]:
    """Words of a second text that is not as long as the material's; y1, y2 … for own words."""
    size = len(TRANSLATED) - (len(material.words) == len(TRANSLATED))
    return tuple(f"y{n}" for n in range(1, size + 1)) if material.own else TRANSLATED[:size]


def complaint(call: Callable[[], object]) -> str:
    """The error that a call raises: its type and the first line of its text."""
    try:
        call()
    except (AttributeError, IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "nothing"


def table(name: str, tensor: Tensor, **labels: Any) -> Table:
    """A Table of the tensor's numbers; `labels` are its other fields."""
    return Table(name, tensor.detach().numpy(), **labels)


def same(name: str, one: Tensor, other: Tensor, bound: float = EQUAL) -> Check:
    """Checks that two tensors are equal within `bound`, relative to the largest number above 1."""
    one, other = one.detach(), other.detach()
    return Check(name, float((one - other).abs().max()), bound * max(1.0, float(other.abs().max())))
