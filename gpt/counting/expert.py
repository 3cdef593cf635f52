"""Interpolated modified Kneser–Ney over the trie: the probability of every next character.

P_n(w | h) = (c(hw) − D(c(hw)) + Σ_v D(c(hv)) · P_{n−1}(w | h')) / Σ_v c(hv), where h' is h without
its first character; P_{n−1}(w | h') alone if nothing followed h; P_0 is uniform over the vocabulary
(Chen & Goodman 1999). All in float64: a distribution sums to 1 within 1e-12.
Tensor names: T positions or streams, N orders, V vocab_size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.counting.tables import Numbers, Trie

FALLBACK = (0.5, 1.0, 1.5)  # discounts, if the counts of counts give none

Array = npt.NDArray[np.float64]


def discounts(counts: Numbers) -> Array:
    """(4,) what is subtracted from a count of 0, 1, 2, and 3 or more (Chen & Goodman 1999).

    counts: of all n-grams of an order. If none occurs once, twice, three or four times, or if a
    discount would not be above 0, they are 0, ½, 1, 1½.
    """
    _, n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=6)[:5].tolist()
    found = FALLBACK
    if n1 and n2 and n3 and n4:
        y = n1 / (n1 + 2 * n2)
        estimated = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        if min(estimated) > 0:
            found = estimated
    return np.array([0.0, *found])


def smoothed(counts: Numbers, children: Numbers) -> tuple[Numbers, Array, Array]:
    """(G,) counts of an order's n-grams, and (H,) how many of them each history has -> (H,) the sum
    of their counts; (H,) the share of the order below, 1 if there is none; (G,) the share that each
    n-gram keeps, (c − D(c)) / Σ c.
    """
    discount = discounts(counts)[np.minimum(counts, 3)]
    total, left = np.zeros(len(children), np.int64), np.ones(len(children))
    followed = np.flatnonzero(children)
    begins = (np.cumsum(children) - children)[followed]
    total[followed] = np.add.reduceat(counts, begins, dtype=np.int64)
    divisor = np.maximum(total, 1)
    left[followed] = np.add.reduceat(discount, begins) / divisor[followed]
    left[total == 0] = 1.0
    return total, left, (counts - discount) / np.repeat(divisor, children)


class Expert:
    """Predicts the next character by counting."""

    def __init__(self, trie: Trie, vocab_size: int) -> None:
        self.trie, self.vocab_size = trie, vocab_size
        nodes = len(trie.starts) - 1
        self._kinds = np.diff(trie.starts)
        self._total, self._left = np.zeros(nodes, np.int64), np.ones(nodes)
        self._shares = np.empty(len(trie.symbols))
        # The histories of an order are the n-grams of the order below; the first has one history.
        for first, last, below in zip(trie.ends, trie.ends[1:], [-1, *trie.ends], strict=False):
            histories, grams = slice(below + 1, first + 1), slice(first, last)
            self._total[histories], self._left[histories], self._shares[grams] = smoothed(
                trie.counts[grams], self._kinds[histories]
            )

    def distributions(self, histories: Numbers) -> Array:
        """(N, T) histories -> (T, V) the probability of each next character."""
        count, size = histories.shape[1], self.vocab_size
        left = np.ones((len(histories) + 1, count))  # the share of all orders below, times …
        np.cumprod(self._left[histories[::-1]], axis=0, out=left[1:])
        kinds = self._kinds[histories].ravel()
        ends = np.cumsum(kinds)
        grams = np.arange(ends[-1]) + np.repeat(
            self.trie.starts[histories].ravel() + kinds - ends, kinds
        )
        shares = self._shares[grams] * np.repeat(left[-2::-1].ravel(), kinds)
        cells = np.repeat(np.tile(np.arange(count) * size, len(histories)), kinds)
        cells += self.trie.symbols[grams]
        chances = np.bincount(cells, shares, count * size).reshape(count, size)
        lowest: Array = left[-1][:, None] / size
        return chances + lowest

    def evidence(self, histories: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """(N, T) histories -> for the longest one that something followed: (T,) its order, how
        often it was counted, and how many distinct characters follow it.
        """
        total = self._total[histories]
        known = total > 0
        known[0] = True
        depth = len(known) - known[::-1].argmax(axis=0)
        deepest = depth - 1, np.arange(len(depth))
        return depth, total[deepest], self._kinds[histories[deepest]]
