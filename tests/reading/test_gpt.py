"""The reader and the decoder keep no state that they should not; float64 is whole.

tests/test_parity.py compares both with torch.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from random_models import random_reader

from gpt.config.model import Position
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader, softmax

BLOCK = 8


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


def test_softmax_neither_overflows_nor_underflows() -> None:
    x = np.array([[1e4, 1e4, -1e4], [-1e4, -np.inf, -1e4]], dtype=np.float32)
    assert np.array_equal(softmax(x), [[0.5, 0.5, 0], [0.5, 0, 0.5]])
    assert softmax(x).dtype == np.float32
