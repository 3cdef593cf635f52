"""Streams divided among cores equal those of one decoder."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import random_reader
from threadpoolctl import threadpool_info, threadpool_limits

from gpt.reading import decode
from gpt.reading.decode import LEAST_STREAMS, CachedDecoder, ParallelDecoder
from gpt.reading.gpt import Reader


@pytest.fixture
def reader() -> Reader:
    return random_reader(position="learned")


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
@pytest.mark.parametrize(
    "streams", [1, 2 * LEAST_STREAMS - 1, 2 * LEAST_STREAMS, 3 * LEAST_STREAMS + 5]
)
def test_samples_are_the_same_on_any_number_of_cores(
    reader: Reader, cores: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "cores", lambda: cores)
    alone, many = CachedDecoder(reader), ParallelDecoder(reader)
    ids = np.random.default_rng(2).integers(9, size=(streams, 8))
    for begin in (1, 5):
        np.testing.assert_allclose(
            many.start(ids[:, :begin]), alone.start(ids[:, :begin]), atol=1e-12
        )
        for at in range(begin, 8):
            np.testing.assert_allclose(many.step(ids[:, at]), alone.step(ids[:, at]), atol=1e-12)
    assert many._shares == (
        1 if streams < 2 * LEAST_STREAMS else min(cores, streams // LEAST_STREAMS)
    )
    one = many.start(ids[:1, :3])
    np.testing.assert_allclose(one, alone.start(ids[:1, :3]), atol=1e-12)


@pytest.mark.parametrize("cores", [1, 3])
def test_cores_take_one_item_after_the_other(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(item: int) -> int:
        if item < 0:
            raise ValueError(item)
        blas = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
        return item * item if max(blas) == 1 else -1

    monkeypatch.setattr(decode, "cores", lambda: cores)
    with threadpool_limits(2, user_api="blas"):
        assert decode.map_on_cores(work, range(20)) == [item * item for item in range(20)]
        assert decode.map_on_cores(work, []) == []
        with pytest.raises(ValueError, match="-1"):
            decode.map_on_cores(work, [1, 2, -1, 3])
        after = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    assert max(after) == 2
