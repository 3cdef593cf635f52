"""Measures how much of a text is copied: its longest run of characters that also occurs in another.

Searches the other text's suffix array (Manber & Myers 1993). pydivsufsort computes it; this package
is optional, as it is compiled. Uses ids, no model and no files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from gpt.errors import ConfigError
from gpt.vocabulary import Ids, Vocabulary

PIECES = 20  # pieces of a text that the usual length of a copy is measured on
MOST = 32_000_000  # characters to search in: the array takes four times as many bytes, or more
MOST_USUAL = 1_000_000  # characters from which the PIECES are taken


@dataclass(frozen=True)
class Copy:
    """A run of characters that two texts share. start: its position in the first text; at: its
    first position in the other; times: how often it occurs there.
    """

    text: str
    start: int
    at: int
    times: int

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Novelty:
    """A text's longest copy from the training text, and for comparison the median and the largest
    length of copies in equally long pieces of a text that the model was not trained on.
    """

    characters: int
    longest: Copy
    median: int
    largest: int


def novelty(texts: Sequence[str], train: Ids, val: Ids, vocabulary: Vocabulary) -> list[Novelty]:
    """The novelty of each text. Raises ConfigError if pydivsufsort is not installed."""
    copies = Copies(train, vocabulary)
    baselines = {length: usual(copies, val, length) for length in {len(text) for text in texts}}
    return [
        Novelty(len(text), copies.longest(vocabulary.encode(text)), *baselines[len(text)])
        for text in texts
    ]


def suffix_sort() -> Any:
    """pydivsufsort's function. Raises ConfigError if it is not installed."""
    try:
        from pydivsufsort import divsufsort
    except ImportError:
        raise ConfigError(
            "novelty", "needs pydivsufsort, which is not installed: pip install pydivsufsort"
        ) from None
    return divsufsort


class Copies:
    """A text's ids, to search for copies. Raises ConfigError if pydivsufsort is not installed.

    Ids are bytes, the most significant first, so that bytes sort as ids do.
    """

    def __init__(self, ids: Ids, vocabulary: Vocabulary) -> None:
        divsufsort = suffix_sort()
        self._vocabulary, self._dtype = vocabulary, ids.dtype.newbyteorder(">")
        self._data = ids.astype(self._dtype).tobytes()
        order = divsufsort(self._data) if len(ids) else np.empty(0, np.int32)
        size = self._dtype.itemsize
        self._order = order if size == 1 else order[order % size == 0]

    def longest(self, ids: Ids) -> Copy:
        """The first of the longest runs of `ids` that occur in this text; empty if no character
        does.
        """
        data, size = ids.astype(self._dtype).tobytes(), self._dtype.itemsize
        start = length = 0  # in bytes
        for begin in range(0, len(data), size):
            if len(data) - begin <= length:
                break
            shared = self._shared(data[begin:]) // size * size
            if shared > length:
                start, length = begin, shared
        if not length:
            return Copy("", 0, 0, 0)
        run = data[start : start + length]
        first = bisect_left(self._order, run, key=lambda at: self._data[at : at + length])
        last = bisect_right(self._order, run, first, key=lambda at: self._data[at : at + length])
        text = self._vocabulary.decode(ids[start // size : (start + length) // size])
        at = int(self._order[first:last].min()) // size
        return Copy(text, start // size, at, last - first)

    def _shared(self, piece: bytes) -> int:
        """The length in bytes of the longest prefix of `piece` that occurs in this text."""
        place = bisect_left(self._order, piece, key=lambda at: self._data[at : at + len(piece)])
        neighbours = self._order[max(0, place - 1) : place + 1].tolist()
        shared = 0
        for at in neighbours:
            pairs = zip(piece, self._data[at : at + len(piece)], strict=False)
            shared = max(shared, len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))))
        return shared


def usual(copies: Copies, ids: Ids, length: int) -> tuple[int, int]:
    """Median and largest length of copies in pieces of another text, spread evenly over it: a text
    by the same author copies as much, so a sample of that length may, too.
    """
    length = min(length, len(ids))
    starts = np.linspace(0, len(ids) - length, PIECES).astype(int).tolist()
    found = [len(copies.longest(ids[start : start + length])) for start in dict.fromkeys(starts)]
    return int(np.median(found)), max(found)
