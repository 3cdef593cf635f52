"""Functions of the lessons: tables from tensors, and checks that two tensors are equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpt.checks import Check
from gpt.explain.lesson import Material, Table

EQUAL = 1e-7  # largest difference of equal numbers; in float64, most differ by far less


def inputs_of(material: Material) -> Tensor:
    """(T, C) embeddings in float64."""
    return torch.from_numpy(material.embeddings)


def table(name: str, tensor: Tensor, **labels: Any) -> Table:
    """A Table of the tensor's numbers; `labels` are its other fields."""
    return Table(name, tensor.detach().numpy(), **labels)


def same(name: str, one: Tensor, other: Tensor, bound: float = EQUAL) -> Check:
    """Checks that two tensors are equal within `bound`, relative to the largest number above 1."""
    one, other = one.detach(), other.detach()
    return Check(name, float((one - other).abs().max()), bound * max(1.0, float(other.abs().max())))
