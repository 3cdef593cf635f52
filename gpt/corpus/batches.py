"""The windows of a step: a pure function of seed and step, so no order has to be saved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gpt.config.train import WindowOrder
from gpt.corpus import cache
from gpt.corpus.items import begin_at_items
from gpt.vocabulary import Ids

BATCH, DROPOUT, EPOCH = 0, 1, 2  # the purposes of random streams
LISTED = 2**20  # the longest order of an epoch that is kept as a list; longer ones use `permute`
ROUNDS = 4  # rounds of the network in `permute`


def batch(
    ids: Ids,
    seed: int,
    step: int,
    batch_size: int,
    block_size: int,
    order: WindowOrder = "random",
    part: slice = slice(None),
    separator: Ids | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(B, T) inputs and (B, T) targets, one character later; or only their rows `part`. separator:
    see `batch_starts`.

    A pure function of (seed, step): Philox is a counter-based generator (Salmon et al. 2011), so
    any step's batch can be computed without the batches before it.
    """
    starts = batch_starts(ids, seed, step, batch_size, block_size, order, separator)[part]
    rows = ids[starts[:, None] + np.arange(block_size + 1)].astype(np.int64)  # (B, T + 1)
    cache.release_pages(ids)
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
    """(B,) where a batch's windows begin in a text; pure in (seed, step). separator (n,): the ids
    between two items, if windows are to begin at items.

    random: every start is equally likely. epochs: each epoch reads every window of block_size once,
    in a new random order; the start of the first window is random, too, so that the borders between
    windows move.
    """
    length = len(ids)
    if order == "random":
        draws = philox(seed, step, BATCH).random_raw(batch_size)
        starts = (draws % np.uint64(length - block_size)).astype(np.int64)
    else:
        starts = _epoch_starts(length, seed, step, batch_size, block_size)
    return starts if separator is None else begin_at_items(starts, ids, separator, block_size)


def _epoch_starts(
    length: int, seed: int, step: int, batch_size: int, block_size: int
) -> npt.NDArray[np.int64]:
    count = max(1, (length - block_size) // block_size)  # windows in an epoch
    numbers = step * batch_size + np.arange(batch_size)
    starts = np.empty(batch_size, np.int64)
    for epoch in np.unique(numbers // count).tolist():
        now = numbers // count == epoch
        if count <= LISTED:
            first, shuffle = _epoch(length, seed, epoch, block_size, count)
            places = shuffle[numbers[now] % count]
        else:
            first, *keys = philox(seed, epoch, EPOCH).random_raw(1 + ROUNDS).tolist()
            first, places = first % block_size, permute(numbers[now] % count, count, keys)
        starts[now] = first + places * block_size
    return starts


@lru_cache(maxsize=2)
def _epoch(
    length: int, seed: int, epoch: int, block_size: int, count: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """The start of an epoch's first window, and the order of its windows."""
    generator = np.random.Generator(philox(seed, epoch, EPOCH))
    spare = length - block_size - (count - 1) * block_size  # possible offsets of the first window
    return int(generator.integers(spare)), generator.permutation(count)


def permute(
    numbers: npt.NDArray[np.int64], count: int, keys: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Applies a permutation of 0 … count − 1 to these numbers without listing it.

    A Feistel network (Luby & Rackoff 1988) over the next power of four, one round for each key.
    Results of `count` or more go through it again (cycle walking, Black & Rogaway 2002).
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    places = numbers.astype(np.uint64)
    outside = np.ones(len(places), np.bool_)
    while outside.any():
        left, right = places[outside] >> half, places[outside] & low
        for key in keys:
            mixed = (right + np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & low)
        places[outside] = (left << half) | right
        outside = places >= count
    return places.astype(np.int64)


def philox(seed: int, step: int, purpose: int) -> np.random.Philox:
    """Independent random streams for each seed, step and purpose."""
    key = np.array([seed, step], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, purpose], dtype=np.uint64))
