"""The baseline: the loss of counting n-grams on a text, which a trained model has to beat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpt.counting.expert import Array, discounts
from gpt.counting.tables import MOST_CHARACTERS, Level, Numbers, count_levels
from gpt.storage.manifest import Baseline
from gpt.vocabulary import Ids

ORDERS = 8
MOST_VAL = 1_000_000  # characters that are scored


def count_baseline(train: Ids, val: Ids, vocab_size: int, orders: int = ORDERS) -> Baseline:
    """Mean nats per character of `val` under n-grams of `train`, for the orders 1 … `orders`.

    `val` needs two characters: its first one is only context, as for a GPT. For a long text, the
    last MOST_CHARACTERS of `train` are counted, and the first MOST_VAL characters of `val` after
    its first one are scored. The scored text also chooses the best order, which makes the baseline
    a little too strong, never too weak.
    """
    train, val = train[-MOST_CHARACTERS:], val[: MOST_VAL + 1]
    probabilities = kneser_ney(train, val, vocab_size, orders)
    losses = tuple(max(0.0, float(-np.log(each).mean())) for each in probabilities)
    return Baseline(losses, len(train), len(val) - 1)


def kneser_ney(train: Ids, val: Ids, vocab_size: int, orders: int = ORDERS) -> Iterator[Array]:
    """For each order 1 … `orders`: (len(val) − 1,) the probability of each character after the
    first of `val`, which counts as the continuation of `train`.

    The order n counts how often each n-gram occurs, the orders below it how many distinct
    characters precede each (gpt/counting/expert.py has the formula).
    """
    text = np.concatenate((train[-orders:], val))
    first = len(text) - len(val) + 1  # that is scored
    histories = np.zeros(len(text), np.int64)
    lower = np.full(len(text), 1.0 / vocab_size)
    for level in count_levels(train, vocab_size, orders):
        grams = level.find(histories, text)
        yield _interpolated(level, level.often, histories, grams, lower)[first:]
        lower = _interpolated(level, level.counts, histories, grams, lower)
        histories = np.concatenate(([-1], grams[:-1]))


def _interpolated(
    level: Level, counts: Numbers, histories: Numbers, grams: Numbers, lower: Array
) -> Array:
    """(T,) histories, n-grams (−1 = not in the text) and probabilities under the order below ->
    (T,) probabilities.
    """
    discount = discounts(counts)[np.minimum(counts, 3)]
    followed = np.flatnonzero(level.children)
    total, left = np.zeros((2, len(level.children) + 1))  # the last one is of history −1
    starts = (np.cumsum(level.children) - level.children)[followed]
    total[followed] = np.add.reduceat(counts, starts)
    left[followed] = np.add.reduceat(discount, starts)
    seen = np.append(counts - discount, 0.0)[grams]
    known = total[histories] > 0
    mixed = (seen + left[histories] * lower) / np.where(known, total[histories], 1.0)
    return np.where(known, mixed, lower)
