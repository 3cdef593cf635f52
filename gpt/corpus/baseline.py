"""The baseline: the loss of counting n-grams on a text, which a trained model has to beat.

Interpolated modified Kneser–Ney (Chen & Goodman 1999), in numpy. Knows ids, no model and no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.storage.manifest import Baseline
from gpt.vocabulary import Ids

ORDERS = 8
MOST_TRAIN, MOST_VAL = 2_000_000, 1_000_000  # characters: at most 210 MB while they are counted
AT_ONCE = 2**18  # characters that are processed together, to save memory
PACKED_BITS = 64  # of a history, its next character and a place in the text
FALLBACK = (0.5, 1.0, 1.5)  # discounts if the counts of counts give none

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
    below n it is how many distinct characters precede hw there. Each order and kind of count has
    discounts of its own.
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
            # Each distinct gram has one more character before the gram that is shorter by one.
            places = grams.first[(grams.first >= start) & (grams.first < boundary)]
            lower = shorter.interpolate(_count(shorter.at[places], len(shorter.history)), lower)
            shorter = None
        yield grams.interpolate(_count(grams.at[start:boundary], len(grams.history)), lower)
        # The history of order n + 1 at a place is the gram of order n that ended just before it.
        context[1:] = grams.at[:-1]
        context[0] = len(grams.history)
        shorter = grams


def discounts(counts: Numbers) -> Array:
    """(4,) what is subtracted from a count of 0, 1, 2, and 3 or more (Chen & Goodman 1999).

    counts: how often each gram occurs. If no gram occurs once, twice, three or four times, or if a
    discount would not be above 0, they are 0, ½, 1, 1½.
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

    def interpolate(self, counts: Numbers, lower: Array) -> Array:
        """The scored characters' probabilities from the n-grams' counts and the order below."""
        discount = discounts(counts)
        histories = int(self.history[-1]) + 1
        total, left = np.zeros(histories, np.int32), np.zeros(histories)
        for start in range(0, len(counts), AT_ONCE):
            history, some = (part[start : start + AT_ONCE] for part in (self.history, counts))
            np.add.at(total, history, some)
            np.add.at(left, history, discount[np.minimum(some, 3)])
        total, left = total[self.after], left[self.after]
        seen = counts[self.at[-len(lower) :]]
        mixed = seen - discount[np.minimum(seen, 3)] + left * lower
        return np.where(total > 0, mixed / np.maximum(total, 1), lower)


def _number(context: Numbers, text: Ids, vocab_size: int, boundary: int) -> _Grams:
    """Numbers the pairs of a history and its next character. Equal pairs have equal numbers, which
    increase with the history, then with the character.
    """
    after = context[boundary + 1 :].copy()
    size = len(text)
    bits = max(1, (size - 1).bit_length())
    if (int(context.max()) * vocab_size + vocab_size - 1).bit_length() + bits > PACKED_BITS:
        wide = context.astype(np.int64) * vocab_size + text
        keys, first, at = np.unique(wide, return_index=True, return_inverse=True)
        history = (keys // vocab_size).astype(np.int32)
        return _Grams(at.reshape(-1).astype(np.int32), first.astype(np.int32), history, after)
    # A pair and its place in one number: sorted in place, they need no second array.
    packed = context.astype(np.uint64)
    packed *= np.uint64(vocab_size)
    np.add(packed, text, out=packed, casting="unsafe")
    packed <<= np.uint64(bits)
    packed |= np.arange(size, dtype=np.uint32)
    packed.sort()
    at = np.empty(size, np.int32)
    firsts, histories, last, grams = [], [], None, 0
    for start in range(0, size, AT_ONCE):
        part = packed[start : start + AT_ONCE]
        pairs = part >> np.uint64(bits)
        new = np.empty(len(part), np.bool_)
        new[0] = pairs[0] != last
        np.not_equal(pairs[1:], pairs[:-1], out=new[1:])
        places = (part & np.uint64((1 << bits) - 1)).astype(np.int64)
        numbers = grams + np.cumsum(new, dtype=np.int64)
        at[places] = numbers - 1
        firsts.append(places[new].astype(np.int32))
        histories.append((pairs[new] // np.uint64(vocab_size)).astype(np.int32))
        last, grams = pairs[-1], int(numbers[-1])
    return _Grams(at, np.concatenate(firsts), np.concatenate(histories), after)


def _count(numbers: Numbers, kinds: int) -> Numbers:
    """(kinds,) how often each number occurs: bincount in pieces, to save memory."""
    counts = np.zeros(kinds, np.int32)
    for start in range(0, len(numbers), AT_ONCE):
        np.add.at(counts, numbers[start : start + AT_ONCE], 1)
    return counts
