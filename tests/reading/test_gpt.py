"""The reader and the decoder keep no state that they should not; softmax and the norm are exact.

tests/test_parity.py compares both with torch.
"""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from random_models import random_reader

from gpt.config.model import Position
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import ACTIVATIONS, Reader, softmax

BLOCK = 8

INPUTS = np.array(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)


def ids_of(batch: int = 3) -> npt.NDArray[np.int64]:
    return np.random.default_rng(2).integers(9, size=(batch, BLOCK))


def test_a_step_returns_a_new_array_and_a_start_forgets() -> None:
    reader, ids = random_reader(), ids_of()
    decoder = CachedDecoder(reader)
    decoder.start(ids[:, :2])
    first = decoder.step(ids[:, 2])
    before = first.copy()
    decoder.step(ids[:, 3])
    assert np.array_equal(first, before)
    decoder.start(ids[:, :2])
    assert np.array_equal(decoder.step(ids[:, 2]), before)
    decoder.start(ids[:1, :5])
    one = decoder.step(ids[:1, 5])
    np.testing.assert_allclose(one, reader.logits(reader.forward(ids[:1, :6]))[:, -1], atol=1e-12)


@pytest.mark.parametrize("position", get_args(Position))
def test_a_model_in_float64_has_no_float32(position: str) -> None:
    reader, ids = random_reader(np.float32, position=position, bias=True), ids_of()
    expected, exact = reader.forward(ids), reader.in_float64()
    kept: dict[str, np.dtype[Any]] = {}

    def see(name: str, layer: int, stage: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kept[name] = stage.dtype
        return stage

    stream = exact.blocks(exact.embed(ids), range(2), see)
    found = exact.logits(exact.final_norm(stream, see), see)
    assert {*kept.values()} == {np.dtype(np.float64)}
    assert {"masked", "ffn_hidden", "final_norm", "logits"} < kept.keys()
    tensors = {name: each.astype(np.float64) for name, each in reader.tensors.items()}
    other = Reader(reader.config, tensors)
    assert np.array_equal(found, other.logits(other.forward(ids)))
    assert np.array_equal(reader.forward(ids), expected)  # which stays in float32
    assert reader.dtype == expected.dtype == np.float32


def test_softmax_equals_the_worked_example() -> None:
    scores = INPUTS @ INPUTS.T
    expected = [
        [0.2098, 0.2006, 0.1981, 0.1242, 0.1220, 0.1452],
        [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581],
        [0.1390, 0.2369, 0.2326, 0.1242, 0.1108, 0.1565],
        [0.1435, 0.2074, 0.2046, 0.1462, 0.1263, 0.1720],
        [0.1526, 0.1958, 0.1975, 0.1367, 0.1879, 0.1295],
        [0.1385, 0.2184, 0.2128, 0.1420, 0.0988, 0.1896],
    ]
    np.testing.assert_allclose(softmax(scores), expected, rtol=0, atol=6e-5)


def test_softmax_neither_overflows_nor_underflows() -> None:
    x = np.array([[1e4, 1e4, -1e4], [-1e4, -np.inf, -1e4]], dtype=np.float32)
    assert np.array_equal(softmax(x), [[0.5, 0.5, 0], [0.5, 0, 0.5]])
    assert softmax(x).dtype == np.float32


def test_a_norm_equals_the_formula() -> None:
    reader = random_reader(bias=True)
    x = np.random.default_rng(1).normal(3, 2, (5, reader.config.n_embd))
    normed = (x - x.mean(axis=-1)[:, None]) / np.sqrt(x.var(axis=-1)[:, None] + 1e-5)
    expected = normed * reader.tensors["norm.weight"] + reader.tensors["norm.bias"]
    np.testing.assert_allclose(reader.norm(x, "norm"), expected, rtol=1e-12)


def test_gelu_erf_is_exact_in_float64() -> None:
    x = np.append(np.linspace(-12, 12, 9999), [-1e3, 1e3, 0.0]).reshape(2, 3, -1)
    expected = x * np.array([1 + math.erf(each / 2**0.5) for each in x.flat]).reshape(x.shape) / 2
    np.testing.assert_allclose(ACTIVATIONS["gelu_erf"](x.copy()), expected, rtol=0, atol=1e-11)
    assert np.isnan(ACTIVATIONS["gelu_erf"](np.array([[np.nan]]))).all()
