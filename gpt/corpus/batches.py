"""The windows of a step: a pure function of seed and step, so no order has to be saved."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gpt.config.train import WindowOrder
from gpt.corpus.corpus import release_pages
from gpt.vocabulary import Ids

BATCH, DROPOUT, EPOCH = 0, 1, 2  # the purposes of random streams


def windows(
    ids: Ids, starts: npt.NDArray[np.int64], block_size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(B, T) inputs, and (B, T) targets one character later, of windows that begin at `starts`."""
    rows = ids[starts[:, None] + np.arange(block_size + 1)].astype(np.int64)  # (B, T + 1)
    release_pages(ids)
    return rows[:, :-1], rows[:, 1:]


def batch_starts(
    ids: Ids,
    seed: int,
    step: int,
    batch_size: int,
    block_size: int,
    order: WindowOrder = "random",
    separator: Ids | None = None,
) -> npt.NDArray[np.int64]:
    """(B,) where a batch's windows begin in a text. separator (n,): the ids between two items, if
    windows are to begin at items.

    A pure function of (seed, step): Philox is a counter-based generator (Salmon et al. 2011), so
    any step's batch can be computed without the batches before it.

    random: every start is equally likely. epochs: each epoch reads every window of block_size once,
    in a new random order; the start of the first window is random, too, so that the borders between
    windows move.
    """
    length = len(ids)
    if order == "random":
        draws = philox(seed, step, BATCH).random_raw(batch_size)
        starts = (draws % np.uint64(length - block_size)).astype(np.int64)
    else:
        count = max(1, (length - block_size) // block_size)  # windows in an epoch
        starts = np.empty(batch_size, np.int64)
        for row, number in enumerate(range(step * batch_size, (step + 1) * batch_size)):
            first, shuffle = _epoch(length, seed, number // count, block_size, count)
            starts[row] = first + shuffle[number % count] * block_size
    return starts if separator is None else _begin_at_items(starts, ids, separator, block_size)


@lru_cache(maxsize=2)
def _epoch(
    length: int, seed: int, epoch: int, block_size: int, count: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """The start of an epoch's first window, and the order of its windows."""
    generator = np.random.Generator(philox(seed, epoch, EPOCH))
    spare = length - block_size - (count - 1) * block_size  # possible offsets of the first window
    return int(generator.integers(spare)), generator.permutation(count)


def _begin_at_items(
    starts: npt.NDArray[np.int64], ids: Ids, separator: Ids, block_size: int
) -> npt.NDArray[np.int64]:
    """(B,) starts of windows, each moved to the next item, if one begins within a window's length:
    long items are read as a whole.
    """
    near = ids[starts[:, None] + np.arange(block_size)]  # (B, T)
    width = block_size - len(separator) + 1
    if width < 1:
        return starts
    ends = np.ones((len(starts), width), bool)
    for place, token in enumerate(separator):
        ends &= near[:, place : place + width] == token
    moved = starts + ends.argmax(axis=1) + len(separator)
    fits = ends.any(axis=1) & (moved < len(ids) - block_size)
    return np.where(fits, moved, starts)


def philox(seed: int, step: int, purpose: int) -> np.random.Philox:
    """Independent random streams for each seed, step and purpose."""
    key = np.array([seed, step], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, purpose], dtype=np.uint64))
