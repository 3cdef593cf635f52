"""Interpolated modified Kneser–Ney as Chen & Goodman (1999) define it, with dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

Gram = tuple[int, ...]


class Level:
    """One order: counts and discounts. one: the number 1 of the type to compute in."""

    def __init__(self, counts: Counter[Gram], one: Any) -> None:
        self.followers: dict[Gram, dict[int, int]] = defaultdict(dict)
        for gram, count in counts.items():
            self.followers[gram[:-1]][gram[-1]] = count
        n = Counter(counts.values())
        self.discounts = [0 * one, one / 2, one, 3 * one / 2]
        if n[1] and n[2] and n[3] and n[4]:
            y = one * n[1] / (n[1] + 2 * n[2])
            found = [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)]
            if all(each > 0 for each in found):
                self.discounts = [0 * one, *found]

    def probability(self, history: Gram, character: int, lower: Any) -> Any:
        seen = self.followers.get(history)
        if not seen:
            return lower
        left = sum(self.discounts[min(count, 3)] for count in seen.values())
        count = seen.get(character, 0)
        return (count - self.discounts[min(count, 3)] + left * lower) / sum(seen.values())


class Definition:
    """The probabilities of a text's n-grams."""

    def __init__(self, train: Sequence[int], vocab_size: int, orders: int, one: Any = 1.0) -> None:
        def grams(size: int) -> Counter[Gram]:
            starts = range(len(train) - size + 1)
            return Counter(tuple(train[start : start + size]) for start in starts)

        self.uniform = one / vocab_size
        self.counted = [Level(grams(size), one) for size in range(1, orders + 1)]
        self.continued = [
            Level(Counter(gram[1:] for gram in grams(size + 1)), one) for size in range(1, orders)
        ]

    def probability(self, history: Sequence[int], character: int, orders: int) -> Any:
        """Of a character after a history, by n-grams of up to `orders` characters."""
        return self._interpolated(tuple(history), character, orders, self.counted)

    def _interpolated(self, history: Gram, character: int, order: int, levels: list[Level]) -> Any:
        if order == 0:
            return self.uniform
        lower = self._interpolated(history, character, order - 1, self.continued)
        if len(history) < order - 1:
            return lower
        last = history[len(history) - order + 1 :]
        return levels[order - 1].probability(last, character, lower)
