"""The plain forms in float64: their known values, and that a difference is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpt.config import ModelConfig
from gpt.reading.exact import Exact, close, turned, unit
from gpt.reading.reader import Reader


def exact_of(**options: object) -> Exact:
    config = ModelConfig(vocab_size=2, block_size=2, n_layer=1, n_head=1, n_embd=2, **options)  # type: ignore[arg-type]
    tensors = {name: np.full(shape, 2.0, np.float32) for name, shape in config.shapes().items()}
    return Exact(Reader(config, tensors))


def test_norms_have_their_known_values() -> None:
    x = np.array([[3.0, -1.0]])
    np.testing.assert_allclose(unit(x), x / math.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(exact_of(norm="rms").norm(x, "norm"), x / math.sqrt(5), rtol=1e-5)
    with_bias = exact_of(norm="layer", bias=True)
    np.testing.assert_allclose(with_bias.norm(x, "norm"), [[4.0, 0.0]], atol=1e-4)
    np.testing.assert_allclose(exact_of(norm="layer").norm(x, "norm"), [[2.0, -2.0]], rtol=1e-4)
    assert with_bias.gains("norm") == "norm.weight and norm.bias"
    assert exact_of(norm="rms").gains("norm") == ""


def test_a_linear_layer_has_a_bias_or_not() -> None:
    x, name = np.array([[3.0, -1.0]]), "blocks.0.attention.proj"
    assert exact_of().apply(x, name).tolist() == [[4.0, 4.0]]
    assert exact_of(bias=True).apply(x, name).tolist() == [[6.0, 6.0]]


def test_positions_turn_by_their_number() -> None:
    x = np.array([[1.0, 0.0, 1.0, 0.0]] * 4)
    first, second = (math.cos(3), math.sin(3)), (math.cos(3 / 100), math.sin(3 / 100))
    assert turned(x)[3].tolist() == pytest.approx([*first, *second])
    assert turned(x)[0].tolist() == x[0].tolist()


def test_close_is_relative_to_the_largest_and_sees_nan() -> None:
    one = np.ones(3)
    assert close("x", one, one + 9e-6).passed
    assert not close("x", one, one + 2e-5).passed
    assert close("x", 100 * one, 100 * one + 2e-5).passed
    assert close("x", one, one + 2e-5, reach=10.0).passed
    assert not close("x", one, one * np.nan).passed
