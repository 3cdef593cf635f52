"""The counting expert for one text, character by character.

As Expert.predict, but with numbers in place of short arrays, and it keeps the distributions that
it computed: short histories return all the time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.expert import Array, Expert

MOST_KEPT = 2**21  # probabilities: 16 MB


class CachedExpert:
    """Predicts the next character of one text by counting.

    A text's nodes are its histories of 0, 1, 2 … characters, up to the longest that was counted.
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
            if not (total := sum(counts)):  # the start or the end of the counted text
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

    def followed(self, nodes: Sequence[int], symbol: int) -> list[int]:
        """The nodes of a text -> its nodes after one more character."""
        after = [0]
        for node in nodes[: self._orders - 1]:
            first, end = self._starts[node], self._starts[node + 1]
            place = bisect_left(self._symbols, symbol, first, end)
            if place == end or self._symbols[place] != symbol:
                break  # what is not in the text is in no longer n-gram of it
            after.append(place + 1)
        return after
