"""Interpolated modified Kneser–Ney over the trie: the probability of every next character.

P_n(w | h) = (c(hw) − D(c(hw)) + Σ_v D(c(hv)) · P_{n−1}(w | h')) / Σ_v c(hv), where h' is h without
its first character; P_{n−1}(w | h') alone if nothing followed h; P_0 is uniform over the vocabulary
(Chen & Goodman 1999). All in float64: a distribution sums to 1 within 1e-12.
`CachedExpert` computes the same for one text, character by character, with Python numbers in place
of short arrays.
Tensor names: T positions or streams, N orders, V vocab_size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.tables import MOST_CHARACTERS, Numbers, Trie
from gpt.vocabulary import Ids

AT_ONCE = 2**16  # n-grams whose probabilities are computed together
FALLBACK = (0.5, 1.0, 1.5)  # discounts where the counts of counts give none

Array = npt.NDArray[np.float64]


def estimate_discounts(counts: Numbers) -> Array:
    """(4,) the discounts of counts of 0, 1, 2, and 3 or more (Chen & Goodman 1999).

    counts: the counts of all n-grams of an order. The discounts are 0, ½, 1, 1½ if one of the
    counts 1, 2, 3 and 4 does not occur, or if a computed discount is not above 0.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == n)) for n in (1, 2, 3, 4))
    found = FALLBACK
    if n1 and n2 and n3 and n4:
        y = n1 / (n1 + 2 * n2)
        estimated = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        if min(estimated) > 0:
            found = estimated
    return np.array([0.0, *found])


@dataclass(frozen=True)
class CountingPrediction:
    """What counting says about T next characters.

    chances: (T, V) the probability of each character. The others describe the longest history that
    was followed by something: depth: (T,) its order; total: (T,) how often it was counted; kinds:
    (T,) how many distinct characters followed it.
    """

    chances: Array
    depth: Numbers
    total: Array
    kinds: Numbers

    @cached_property
    def logs(self) -> Array:
        """(T, V) the logarithms of the chances."""
        found: Array = np.log(self.chances)
        return found


class Expert:
    """Predicts the next character by counting."""

    def __init__(self, trie: Trie, vocab_size: int) -> None:
        self.trie, self.vocab_size = trie, vocab_size
        orders = [trie.counts[first:end] for first, end in pairwise(trie.ends)]
        self.discounts = np.stack([estimate_discounts(counts) for counts in orders])  # (N, 4)

    @property
    def least(self) -> float:
        """A lower bound of the logarithm of any probability: with the largest total, each order
        leaves one smallest discount to the order below.
        """
        largest = max(MOST_CHARACTERS, len(self.trie.symbols))
        left = np.log(self.discounts[:, 1:].min(axis=1) / largest)
        return float(left.sum() - np.log(self.vocab_size))

    def pruned(self, ids: Ids, starts: Numbers, length: int) -> Expert:
        """An expert that needs less memory. It predicts the same after the histories of
        `histories_at` (gpt/counting/tables.py), and knows less after others.
        """
        expert = copy(self)
        expert.trie = self.trie.pruned(ids, starts, length)
        return expert

    def predict(self, histories: Numbers) -> CountingPrediction:
        """(N, T) histories -> the next character's distribution after each."""
        orders, count = histories.shape
        first = self.trie.starts[histories].ravel()  # (N · T,)
        kinds = self.trie.starts[histories + 1].ravel() - first
        ends = np.cumsum(kinds)
        if ends[-1] > AT_ONCE and count > 1:
            halves = [self.predict(half) for half in np.array_split(histories, 2, axis=1)]
            columns = zip(*(vars(half).values() for half in halves), strict=True)
            return CountingPrediction(*map(np.concatenate, columns))
        # All n-grams of all histories, one after the other; `pair` holds their order and position.
        pair = np.repeat(np.arange(orders * count), kinds)
        grams = np.arange(ends[-1]) + (first - ends + kinds)[pair]
        counts = self.trie.counts[grams]
        taken = self.discounts[pair // count, np.minimum(counts, 3)]
        total = np.bincount(pair, counts, orders * count)
        divisor = np.maximum(total, 1)
        left = np.bincount(pair, taken, orders * count) / divisor  # the share of the lower order
        left[total == 0] = 1.0
        below = np.ones((orders + 1, count))  # and what all higher orders leave of it
        np.cumprod(left.reshape(orders, count)[::-1], axis=0, out=below[1:])
        shares = (counts - taken) * (below[-2::-1].ravel() / divisor)[pair]
        cells = pair % count * self.vocab_size + self.trie.symbols[grams]
        chances = np.bincount(cells, shares, count * self.vocab_size).view(np.float64)
        known = total.reshape(orders, count) > 0
        deepest = orders - 1 - known[::-1].argmax(axis=0)
        at = deepest, np.arange(count)
        chances = chances.reshape(count, -1)
        chances += below[-1][:, None] / self.vocab_size
        return CountingPrediction(
            chances=chances,
            depth=deepest + 1,
            total=total.reshape(orders, count)[at],
            kinds=kinds.reshape(orders, count)[at],
        )


MOST_KEPT = 2**21  # probabilities to cache: 16 MB


class CachedExpert:
    """Predicts the next character of one text by counting. It keeps the distributions that it
    computed, as short histories return all the time.

    The nodes of a text are its last 0, 1, 2 … characters as histories, up to the longest counted
    one.
    """

    def __init__(self, expert: Expert) -> None:
        def items(array: npt.NDArray[Any]) -> memoryview:
            return memoryview(np.require(array, requirements="A"))  # type: ignore[arg-type]

        trie, size = expert.trie, expert.vocab_size
        self._orders = trie.orders
        self._symbols, self._counts = items(trie.symbols), items(trie.counts)
        self._starts = items(trie.starts)
        self._discounts: list[list[float]] = expert.discounts[:, 1:].tolist()
        self._uniform: Array = np.full(size, 1 / size)
        self._kept: dict[int, Array] = {}

    def predict(self, nodes: Sequence[int]) -> Array:
        """(V,) the probability of each next character."""
        order, starts, kept = len(nodes), self._starts, self._kept
        while order and nodes[order - 1] not in kept:
            order -= 1
        chances = kept[nodes[order - 1]] if order else self._uniform
        for node in nodes[order:]:
            order += 1
            first, end = starts[node], starts[node + 1]
            counts = self._counts[first:end].tolist()
            if not (total := sum(counts)):  # the counted text starts or ends here
                continue
            one, two, more = self._discounts[order - 1]
            zeros, ones, twos = map(counts.count, (0, 1, 2))
            left = ones * one + twos * two + (end - first - zeros - ones - twos) * more
            chances = chances * (left / total)
            cells: Any = chances.data
            few = (0.0, (1 - one) / total, (2 - two) / total)
            for symbol, seen in zip(self._symbols[first:end].tolist(), counts, strict=True):
                cells[symbol] += few[seen] if seen < 3 else (seen - more) / total
            if len(kept) * len(chances) >= MOST_KEPT:
                kept.clear()
            kept[node] = chances
        return chances

    def advance(self, nodes: Sequence[int], symbol: int) -> list[int]:
        """The nodes of a text -> its nodes after one more character."""
        after = [0]
        for node in nodes[: self._orders - 1]:
            first, end = self._starts[node], self._starts[node + 1]
            place = bisect_left(self._symbols, symbol, first, end)
            if place == end or self._symbols[place] != symbol:
                break  # no longer n-gram contains what the text does not contain
            after.append(place + 1)
        return after
