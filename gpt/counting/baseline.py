"""The baseline: the loss of counting n-grams on a text, which a trained model has to beat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from gpt.counting.expert import Array, estimate_discounts
from gpt.counting.tables import AT_ONCE, MOST_CHARACTERS, Level, Numbers, count_levels
from gpt.storage.manifest import Baseline
from gpt.vocabulary import Ids

ORDERS = 8
MOST_VAL = 1_000_000  # characters to score


def count_baseline(
    train: Ids,
    val: Ids,
    vocab_size: int,
    orders: int = ORDERS,
    levels: Iterable[Level] | None = None,
) -> Baseline:
    """Mean nats per character of `val` under n-grams of `train`, for the orders 1 … `orders`.

    levels: those of `train`; None: count them now.

    `val` needs two characters: its first one is only context, as for a GPT. For a long text, only
    the last MOST_CHARACTERS of `train` are counted, and only the first MOST_VAL characters of `val`
    after its first one are scored. The scored text also chooses the best order, which makes the
    baseline a little too strong, never too weak.
    """
    train, val = train[-MOST_CHARACTERS:], val[: MOST_VAL + 1]
    levels = count_levels(train, vocab_size, orders) if levels is None else levels
    probabilities = kneser_ney(islice(levels, orders), train, val, vocab_size)
    losses = tuple(max(0.0, float(-np.log(each).mean())) for each in probabilities)
    return Baseline(losses, len(train), len(val) - 1)


def kneser_ney(levels: Iterable[Level], train: Ids, val: Ids, vocab_size: int) -> Iterator[Array]:
    """(len(val) − 1,) for each of the orders 1, 2, … of `train`: the probability of each character
    after the first one of `val`. `val` counts as the continuation of `train`.

    Order n counts how often each n-gram occurs; lower orders count how many distinct characters
    precede each n-gram (gpt/counting/expert.py has the formula).
    """
    text = np.concatenate((train[-ORDERS:], val))
    first = len(text) - len(val) + 1  # the first character to score
    histories = np.zeros(len(text), np.int32)
    lower = np.full(len(text), 1.0 / vocab_size)
    for level in levels:
        grams = level.find(histories, text)
        yield _interpolated(level, level.often, histories, grams, lower)[first:]
        lower = _interpolated(level, level.counts, histories, grams, lower)
        histories[0], histories[1:] = -1, grams[:-1]
        del level, grams  # frees them while the next order is counted


def _interpolated(
    level: Level, counts: Numbers, histories: Numbers, grams: Numbers, lower: Array
) -> Array:
    """(T,) histories, n-grams (−1 = none), lower order's probabilities -> (T,) probabilities."""
    if not len(counts):  # the text is shorter than the order
        return lower
    found = estimate_discounts(counts)
    size = len(level.children)
    total, left = np.zeros(size + 1, np.int32), np.zeros(size + 1)  # last item: history −1
    starts = np.zeros(size + 1, np.int32)
    np.cumsum(level.children, dtype=np.int32, out=starts[1:])
    cuts = starts.searchsorted(range(0, max(1, len(counts)), AT_ONCE)).tolist()
    for node, end in zip(cuts, [*cuts[1:], size], strict=True):
        followed = node + np.flatnonzero(level.children[node:end])
        if len(followed):
            first = starts[node]
            piece, places = counts[first : starts[end]], starts[followed] - first
            total[followed] = np.add.reduceat(piece, places, dtype=np.int32)
            left[followed] = np.add.reduceat(found[np.minimum(piece, 3)], places)
    known, mixed = total > 0, np.empty(len(lower))
    for first in range(0, len(lower), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        nodes, below = histories[part], lower[part]
        seen = np.where(grams[part] < 0, 0, counts[grams[part]])
        both = seen - found[np.minimum(seen, 3)] + left[nodes] * below
        mixed[part] = np.where(known[nodes], both / np.maximum(total[nodes], 1), below)
    return mixed
