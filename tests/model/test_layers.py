"""Layers: the statistics of dropout, and the hand-written gradient of relu2."""

from __future__ import annotations

import pytest
import torch

from gpt.model.layers import Dropout, ReluSquared


@pytest.mark.parametrize("p", [0.05, 0.1, 0.25, 0.5, 0.9, 0.999])
def test_dropout_drops_a_share_of_p_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(401, 999)
    y = Dropout(p)(x)
    exact = min(255, round(256 * p)) / 256
    assert abs(exact - p) <= 1 / 512 or p > 0.998
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - exact)).item()}
    deviation = (exact * (1 - exact) / x.numel()) ** 0.5
    assert (y == 0).float().mean().item() == pytest.approx(exact, abs=5 * deviation)
    rows, columns = (y == 0).float().mean(1), (y == 0).float().mean(0)
    assert rows.std().item() == pytest.approx((exact * (1 - exact) / 999) ** 0.5, rel=0.2)
    assert columns.std().item() == pytest.approx((exact * (1 - exact) / 401) ** 0.5, rel=0.2)


def test_dropout_repeats_with_the_seed_and_is_off_while_evaluating() -> None:
    x, dropout = torch.randn(7, 5, 3, requires_grad=True), Dropout(0.5)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(dropout(x) != 0)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    torch.manual_seed(3)
    y = dropout(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.where(y == 0, 0.0, 2.0))
    assert dropout.eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_relu_squared_has_the_correct_gradient() -> None:
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.equal(ReluSquared.apply(x), torch.relu(x).square())
    assert torch.autograd.gradcheck(ReluSquared.apply, x)
    first = torch.randn(5, 7, requires_grad=True)
    second = first.detach().clone().requires_grad_()
    upstream = torch.randn(5, 7)
    ReluSquared.apply(first).backward(upstream)
    torch.relu(second).square().backward(upstream)
    assert torch.equal(first.grad, second.grad)
