"""The baseline: the loss of counting n-grams on a text, which a trained model has to beat.

Interpolated modified Kneser–Ney (Chen & Goodman 1999), in numpy. Uses no model and no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.storage.manifest import Baseline
from gpt.vocabulary import Ids

ORDERS = 8
MOST_TRAIN, MOST_VAL = 2_000_000, 1_000_000  # characters: at most 240 MB while they are counted
FALLBACK = (0.5, 1.0, 1.5)  # discounts if they cannot be estimated

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]


def count_baseline(train: Ids, val: Ids, vocab_size: int, orders: int = ORDERS) -> Baseline:
    """Mean nats per character of `val` under n-grams of `train`, for the orders 1 … `orders`.

    `val` needs two characters: its first one is only context, as for a GPT. For a long text, the
    last MOST_TRAIN characters of `train` are counted, and the first MOST_VAL characters of `val`
    after its first one are scored. The scored text also chooses the best order, which makes the
    baseline a little too strong, never too weak.
    """
    train, val = train[-MOST_TRAIN:], val[: MOST_VAL + 1]
    probabilities = kneser_ney(train, val, vocab_size, orders)
    losses = tuple(max(0.0, float(-np.log(each).mean())) for each in probabilities)
    return Baseline(losses, len(train), len(val) - 1)


def kneser_ney(train: Ids, val: Ids, vocab_size: int, orders: int = ORDERS) -> Iterator[Array]:
    """For each order 1 … `orders`: (len(val) − 1,) the probability of each character after the
    first of `val`, which counts as the continuation of `train`.

    P_n(w | h) = (c(hw) − D(c(hw)) + Σ_v D(c(hv)) · P_{n−1}(w | h')) / Σ_v c(hv), where h' is h
    without its first character; P_{n−1}(w | h') alone where h was never seen; and P_0 is uniform
    over the vocabulary. At the order n, c(hw) is how often hw occurs in `train`; at the orders
    below n it is how many distinct characters precede hw there. Each order and each kind of count
    has separate discounts.
    """
    text = np.concatenate((train, val))
    boundary = len(train)
    context = np.zeros(len(text), np.int32)  # number of the history before each character
    lower = np.full(len(val) - 1, 1.0 / vocab_size)
    shorter: _Grams | None = None
    for order in range(1, orders + 1):
        grams = _number(context, text, vocab_size, boundary)
        start = order - 1  # the first characters of the text have no full history
        if shorter is not None:
            # Each distinct n-gram adds one preceding character to the gram without its first
            # character.
            distinct = grams.first[(grams.first >= start) & (grams.first < boundary)]
            lower = shorter.interpolate(distinct, lower)
            shorter = None
        yield grams.interpolate(slice(start, boundary), lower)
        # The history of order n + 1 at a place is the gram of order n that ended just before it.
        context[1:] = grams.at[:-1]
        context[0] = len(grams.history)
        shorter = grams


def discounts(counts: Numbers) -> Array:
    """(4,) the discounts of counts of 0, 1, 2, and 3 or more (Chen & Goodman 1999).

    counts: how often each gram occurs. If no gram occurs once, twice, three or four times, or if an
    estimated discount is not above 0, the result is 0, ½, 1, 1½.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    found = FALLBACK
    if n1 and n2 and n3 and n4:
        y = n1 / (n1 + 2 * n2)
        estimated = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        if min(estimated) > 0:
            found = estimated
    return np.array([0.0, *found])


@dataclass(frozen=True)
class _Grams:
    """The distinct n-grams of a text, numbered in the order of their histories.

    at (characters,): the n-gram that ends at each place. first (grams,): the place where each one
    ends first. history (grams,): the number of its history. after (validation characters − 1,): the
    history before each character that is scored.
    """

    at: Numbers
    first: Numbers
    history: Numbers
    after: Numbers

    def interpolate(self, ends: Numbers | slice, lower: Array) -> Array:
        """The scored characters' probabilities from the n-grams that end at the places `ends`, and
        from `lower`, the probabilities of the order below.
        """
        counts = np.bincount(self.at[ends], minlength=len(self.history)).astype(np.int32)
        discount = discounts(counts)
        total = np.bincount(self.history, counts)[self.after]
        left = np.bincount(self.history, discount[np.minimum(counts, 3)])[self.after]
        seen = counts[self.at[-len(lower) :]]
        mixed = seen - discount[np.minimum(seen, 3)] + left * lower
        return np.where(total > 0, mixed / np.maximum(total, 1), lower)


def _number(context: Numbers, text: Ids, vocab_size: int, boundary: int) -> _Grams:
    """Numbers the pairs of a history and its next character. Equal pairs have equal numbers, which
    increase with the history, then with the character.
    """
    # A pair and its place are packed in one number, and sorted without a second array. They fit in
    # 64 bits: 3,000,001 histories × 0x110000 characters take 42 bits, places take 22.
    bits = np.uint64((len(text) - 1).bit_length())
    pairs = context.astype(np.uint64)
    pairs *= np.uint64(vocab_size)
    np.add(pairs, text, out=pairs, casting="unsafe")
    pairs <<= bits
    pairs |= np.arange(len(text), dtype=np.uint32)
    pairs.sort()
    places = (pairs & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int32)
    pairs >>= bits
    new = np.append(True, pairs[1:] != pairs[:-1])
    at = np.empty(len(text), np.int32)
    at[places] = np.cumsum(new, dtype=np.int32) - 1
    history = (pairs[new] // np.uint64(vocab_size)).astype(np.int32)
    return _Grams(at, places[new], history, context[boundary + 1 :].copy())
