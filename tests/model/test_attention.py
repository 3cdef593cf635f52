"""Attention, positions and activations equal what is computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.model.attention import ATTENTION
from gpt.model.layers import ACTIVATIONS, POSITIONS
from gpt.reading import gpt as reading

EVERY = slice(None)  # positions
both = pytest.mark.parametrize("kind", ATTENTION)


def attention_of(kind: str, **options: Any) -> nn.Module:
    """Two heads of two dimensions; queries, keys, values and the output are the input itself."""
    config = ModelConfig(vocab_size=2, block_size=8, n_head=2, n_embd=4, **options)
    attention = ATTENTION[kind](config)
    eye = torch.eye(4)
    attention.load_state_dict({"qkv.weight": torch.cat((eye, eye, eye)), "proj.weight": eye})
    return attention


def unturned(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    return queries, keys


@both
def test_scores_are_scaled_by_the_head_size(kind: str) -> None:
    x = torch.tensor([[[1.0, 2.0, 0.5, -1.0], [3.0, -1.0, 2.0, 1.0]]])
    y = attention_of(kind)(x, unturned)[0].tolist()
    # Head 0 gets (1, 2) and (3, −1): scores of the second row 3−2 = 1 and 9+1 = 10, over √2.
    # Head 1 gets (.5, −1) and (2, 1): scores 1−1 = 0 and 4+1 = 5, over √2.
    first = 1 / (1 + math.exp((10 - 1) / math.sqrt(2)))
    second = 1 / (1 + math.exp((5 - 0) / math.sqrt(2)))
    expected = [
        first * 1 + (1 - first) * 3,
        first * 2 + (1 - first) * -1,
        second * 0.5 + (1 - second) * 2,
        second * -1 + (1 - second) * 1,
    ]
    assert y[0] == pytest.approx([1.0, 2.0, 0.5, -1.0])  # the first row attends only to itself
    assert y[1] == pytest.approx(expected, abs=1e-6)


@both
def test_dropout_applies_to_weights_and_output_only_while_training(kind: str) -> None:
    x, still = torch.ones(500, 1, 4), attention_of(kind)
    attention = attention_of(kind, dropout=0.5, attention_dropout=0.5)
    torch.manual_seed(1)
    attention.eval()
    assert torch.equal(attention(x, unturned), still(x, unturned))
    attention.train()
    output = attention(x, unturned)  # each weight and each output dropped, or doubled
    assert set(output.unique().tolist()) == {0.0, 4.0}
    assert output.mean().item() == pytest.approx(1.0, abs=0.2)
    attention.dropout = nn.Identity()
    by_head = attention(x, unturned).view(500, 2, 2)  # one weight per head
    assert set(by_head.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(by_head[..., 0], by_head[..., 1])
    assert not torch.equal(by_head[:, 0], by_head[:, 1])


def test_rotary_score_depends_only_on_the_distance() -> None:
    config = ModelConfig(vocab_size=2, block_size=32, n_head=1, n_embd=6)
    q, k = torch.randn(2, 6, generator=torch.Generator().manual_seed(3))
    rotary = POSITIONS["rotary"](config)
    queries, keys = rotary.rotate(q.expand(32, 6), k.expand(32, 6), EVERY)
    scores = queries @ keys.T
    assert scores[0, 0] == pytest.approx(float(q @ k), abs=1e-5)
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1], rtol=0, atol=1e-5)
    assert (scores[:, 0] - scores[0, 0]).abs()[1:].min() > 1e-3


def test_sinusoidal_positions_equal_the_papers() -> None:
    config = ModelConfig(vocab_size=2, block_size=4, n_head=1, n_embd=4, position="sinusoidal")
    sinusoidal = POSITIONS["sinusoidal"](config)
    row = sinusoidal.embed(torch.zeros(1, 4, 4), EVERY)[0, 3].tolist()
    expected = [math.sin(3), math.cos(3), math.sin(3 / 100), math.cos(3 / 100)]
    assert row == pytest.approx(expected, abs=1e-6)


def test_activations_have_their_known_values() -> None:
    x = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, -4.0])
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = {
        "relu": [0, 0, 0, 0.5, 2, 0],
        "relu2": [0, 0, 0, 0.25, 4, 0],
        "gelu": 0.5 * x * (1 + np.tanh(inner)),
        "gelu_erf": [0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in x],
    }
    for name, activation in reading.ACTIVATIONS.items():
        np.testing.assert_allclose(activation(x.copy()), expected[name], rtol=0, atol=1e-15)


def test_numpy_gelu_with_erf_is_close_to_torchs_for_numbers_of_every_size() -> None:
    x = np.concatenate((np.linspace(-15, 15, 6001), [-1e15, -1e-30, 0, 1e-30, 1e15]))
    expected = ACTIVATIONS["gelu_erf"](torch.from_numpy(x)).numpy()
    found = reading.ACTIVATIONS["gelu_erf"](x.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=3e-7)
