"""Which part of a corpus validates, as an order of its characters: first all to train on.

So training reads one array and never asks how it was divided. Knows numbers of characters only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from gpt.errors import TextError

LONGEST_BLOCK = 2**16  # characters: hundreds of contexts, so that few windows lie at borders
FEWEST_BLOCKS = 10  # of one text that validate, however short that makes them
MOST_BLOCKS = 10**5
SHORTEST_IN_CONTEXTS = 4  # of a block; a shorter one would be all border


@dataclass(frozen=True)
class Division:
    """The order in which the characters of a text are stored.

    spans: first and last + 1 of each piece, in that order; boundary: how many characters come
    before those that validate, None where a share of the text says so; block: characters of each
    piece of one text, 0 where whole texts validate; borders: the characters of the text at which
    pieces that are moved behind the others begin and end, in turn.
    """

    spans: tuple[tuple[int, int], ...]
    boundary: int | None = None
    block: int = 0
    borders: tuple[int, ...] = ()

    @property
    def order(self) -> str:
        """A name of the order; empty where nothing was moved."""
        if len(self.spans) <= 1:
            return ""
        return hashlib.sha256(repr(self.spans).encode()).hexdigest()[:16]


def divide(starts: Sequence[int], training: int, every: int) -> Division:
    """By the characters at which texts begin, and at last end; `training` of them come first.

    every: of so many texts the last one validates; of a single text, blocks of a length of their
    own. 0 = none of them do. Empty texts do not count. Raises TextError.
    """
    characters = starts[-1]
    if training < len(starts) - 1:
        return Division(((0, characters),), starts[training])
    if not every:
        return Division(((0, characters),))
    starts = [*dict.fromkeys(starts)]
    texts, block = len(starts) - 1, 0
    if texts == 1:
        block = min(LONGEST_BLOCK, characters // (FEWEST_BLOCKS * every))
        block = max(1, block, characters // MOST_BLOCKS)
        starts = [*range(0, characters, block), characters]
        texts = len(starts) - 1
    if texts < every:
        what = "blocks" if block else "texts"
        raise TextError(
            f"--split every:{every}: there are {texts:,} {what}, so none would validate; use "
            f"every:{texts} or less, or --split last"
        )
    train: list[tuple[int, int]] = []
    for first in range(0, texts, every):  # what lies between two that validate
        train.append((starts[first], starts[min(first + every - 1, texts)]))
    val = [(starts[last], starts[last + 1]) for last in range(every - 1, texts, every)]
    spans = tuple((first, last) for first, last in (*train, *val) if first < last)
    boundary = sum(last - first for first, last in train)
    return Division(spans, boundary, block, tuple(chain.from_iterable(val)))
