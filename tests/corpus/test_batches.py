"""Batches: windows of the text, repeatable, each once in an epoch."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.config.train import WindowOrder
from gpt.corpus.corpus import batch_starts, windows
from gpt.vocabulary import Ids


def batch(
    ids: Ids, seed: int, step: int, batch_size: int, block_size: int, order: WindowOrder = "random"
) -> tuple[Ids, Ids]:
    """The inputs and targets of a step."""
    train = TrainConfig(seed=seed, batch_size=batch_size, window_order=order)
    return windows(ids, batch_starts(ids, train, step, block_size), block_size)


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(0, 2**63 - 1), st.integers(0, 10**9), st.integers(1, 30))
def test_batch_consists_of_windows_of_the_text_and_is_repeatable(
    data: st.DataObject, seed: int, step: int, block_size: int
) -> None:
    ids = np.arange(data.draw(st.integers(block_size + 1, 60)), dtype="u1")
    inputs, targets = batch(ids, seed, step, 5, block_size)
    assert inputs.shape == targets.shape == (5, block_size)
    assert inputs.dtype == targets.dtype == np.int64
    assert np.array_equal(inputs, inputs[:, :1] + np.arange(block_size))  # ids are positions
    assert np.array_equal(targets, inputs + 1)
    assert inputs.min() >= 0
    assert targets.max() < len(ids)
    again = batch(ids, seed, step, 5, block_size)
    assert np.array_equal(again, (inputs, targets))
    longer = batch(ids, seed, step, 9, block_size)[0]
    assert np.array_equal(longer[:5], inputs)  # a sequence does not depend on the others


def test_every_window_can_be_drawn_and_one_window_is_enough() -> None:
    starts = {int(row[0]) for step in range(40) for row in batch(np.arange(10), 0, step, 8, 4)[0]}
    assert starts == {0, 1, 2, 3, 4, 5}
    assert batch(np.arange(5), 7, 0, 2, 4)[1].tolist() == [[1, 2, 3, 4]] * 2


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(1, 9), st.integers(1, 20), st.integers(0, 200))
def test_epoch_contains_each_window_once(
    seed: int, batch_size: int, block_size: int, spare: int
) -> None:
    ids = np.arange(2 * block_size + 1 + spare, dtype="u1")
    count = (len(ids) - block_size) // block_size
    steps = -(-3 * count // batch_size)
    starts = [
        int(row[0])
        for step in range(steps)
        for row in batch(ids, seed, step, batch_size, block_size, "epochs")[0]
    ]
    for epoch in range(3):
        windows = sorted(starts[epoch * count : (epoch + 1) * count])
        assert len(set(windows)) == count
        assert {b - a for a, b in itertools.pairwise(windows)} <= {block_size}
        assert 0 <= windows[0] <= windows[-1] < len(ids) - block_size
    inputs, targets = batch(ids, seed, steps, batch_size, block_size, "epochs")
    assert np.array_equal(targets, inputs + 1)


def test_epochs_differ_in_offset_and_order() -> None:
    epochs = [batch(np.arange(1000), 1, step, 12, 80, "epochs")[0][:, 0] for step in range(0, 5)]
    assert len({int(starts.min()) for starts in epochs}) > 1
    assert len({tuple(np.argsort(starts).tolist()) for starts in epochs}) > 1
    text = batch(np.arange(9), 7, 3, 2, 8, "epochs")[0]
    assert text.tolist() == [list(range(8))] * 2


def test_batches_equal_the_recorded_ones() -> None:
    starts = [batch(np.arange(1000), 1337, step, 6, 8)[0][:, 0].tolist() for step in (0, 1)]
    assert starts == [[585, 883, 142, 5, 54, 699], [762, 581, 190, 880, 344, 602]]
