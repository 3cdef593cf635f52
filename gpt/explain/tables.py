"""What the lessons share: tensors become tables, two ways to one number become a check."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpt.checks import Check
from gpt.explain.lesson import Material, Table

EQUAL = 1e-7  # what counts as the same number; computed in float64, most differ by far less


def inputs_of(material: Material) -> Tensor:
    """(T, C) float64"""
    return torch.from_numpy(material.embeddings)


def table(name: str, tensor: Tensor, **labels: Any) -> Table:
    """A Table of the tensor's numbers; `labels` as there."""
    return Table(name, tensor.detach().numpy(), **labels)


def same(name: str, one: Tensor, other: Tensor) -> Check:
    """That two tensors hold the same numbers, relative to the largest where that is over 1."""
    one, other = one.detach(), other.detach()
    return Check(name, _gap(one, other), EQUAL * max(1.0, float(other.abs().max())))


def exactly(name: str, one: Tensor, other: Tensor) -> Check:
    """That two tensors hold the same bits."""
    return Check(name, _gap(one.detach(), other.detach()), 0.0)


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())
