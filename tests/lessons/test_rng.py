"""Random numbers of the lessons: MKL's dropout mask; torch's generator is restored."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpt.lessons.tables import dropout_mask, torch_seed


@pytest.mark.parametrize("seed", [0, 1, 123, 789, 2**31 - 1, 2**63 - 1])
def test_dropout_mask_equals_one_of_torchs_two_masks(seed: int) -> None:
    torch.manual_seed(seed)
    drawn = nn.Dropout(0.5)(torch.ones(6, 6, dtype=torch.float32)).double()
    torch.manual_seed(seed)
    without_mkl = 2.0 * (torch.rand(6, 6, dtype=torch.float64) < 0.5)
    ours = dropout_mask((6, 6), 0.5, seed)
    assert torch.equal(drawn, ours) or torch.equal(drawn, without_mkl)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_mask_drops_a_share_of_p(p: float) -> None:
    mask = dropout_mask((40_000,), p, seed=3)
    assert set(mask.tolist()) == {0.0, 1 / (1 - p)}
    assert float((mask == 0).double().mean()) == pytest.approx(p, abs=0.01)


def test_each_seed_gives_its_own_dropout_mask() -> None:
    first = dropout_mask((6, 6), 0.5, 1)
    assert torch.equal(first, dropout_mask((6, 6), 0.5, 1))
    assert not torch.equal(first, dropout_mask((6, 6), 0.5, 2))
    assert torch.equal(first[0], dropout_mask((2, 6), 0.5, 1)[0])


def test_seeded_restores_torchs_generator() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    with torch_seed(5):
        inside = torch.rand(3)
    dropout_mask((3,), 0.5, 5)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), inside)
