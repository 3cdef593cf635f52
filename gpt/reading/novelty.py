"""How much of a text is copied: its longest run that stands in another, character for character.

By the other's suffix array (Manber & Myers 1993), which pydivsufsort makes: an optional extra, as
it is compiled. Knows texts, no model and no files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpt.errors import ConfigError

PIECES = 20  # of a text, to tell what is usual
MOST = 32_000_000  # characters to search in: the array takes four times as many bytes, or more
MOST_USUAL = 1_000_000  # characters from which pieces are taken to tell what is usual


@dataclass(frozen=True)
class Copy:
    """A run that stands in both texts. start: where in the one that was searched with; at: the
    first place in the other; times: how often it stands there. All in characters.
    """

    text: str
    start: int
    at: int
    times: int

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Novelty:
    """A text's longest copy from what a model was trained on, and for comparison the median and the
    largest length of copies in as long pieces of a text that it was not trained on.
    """

    characters: int
    longest: Copy
    median: int
    largest: int


def novelty(texts: Sequence[str], train: str, val: str) -> list[Novelty]:
    """How new each text is. Raises ConfigError where pydivsufsort is not installed."""
    copies = Copies(train)
    baselines = {length: usual(copies, val, length) for length in {len(text) for text in texts}}
    return [Novelty(len(text), copies.longest(text), *baselines[len(text)]) for text in texts]


class Copies:
    """A text to be searched for copies. Raises ConfigError where pydivsufsort is not installed."""

    def __init__(self, text: str) -> None:
        try:
            from pydivsufsort import divsufsort
        except ImportError:
            raise ConfigError(
                "--novelty needs pydivsufsort, which is not installed: pip install pydivsufsort"
            ) from None
        self._data = text.encode("utf-8", "surrogatepass")
        self._order = divsufsort(self._data) if text else np.empty(0, np.int32)

    def longest(self, text: str) -> Copy:
        """The first of the longest runs of `text` that stand here; empty if no character does."""
        best, best_start = "", 0
        for start, rest in _suffixes(text):
            if len(text) - start <= len(best):
                break
            found = self._prefix(rest)
            if len(found) > len(best):
                best, best_start = found, start
        data = best.encode("utf-8", "surrogatepass")
        at = len(_characters(self._data[: self._data.find(data)]))
        return Copy(best, best_start, at, self._times(data))

    def _prefix(self, piece: bytes) -> str:
        """The longest beginning of `piece`, in whole characters, that stands here."""
        place = bisect_left(self._order, piece, key=lambda at: self._data[at : at + len(piece)])
        neighbours = self._order[max(0, place - 1) : place + 1].tolist()
        shared = max(
            (_shared(piece, self._data[at : at + len(piece)]) for at in neighbours), default=0
        )
        return _characters(piece[:shared])

    def _times(self, piece: bytes) -> int:
        def begun(at: int) -> bytes:
            return self._data[at : at + len(piece)]

        if not piece:
            return 0
        first = bisect_left(self._order, piece, key=begun)
        return bisect_right(self._order, piece, lo=first, key=begun) - first


def usual(copies: Copies, text: str, length: int) -> tuple[int, int]:
    """Median and largest length of copies in pieces of another text, spread evenly over it.

    What a text by the same author copies, which a sample of that length may copy too.
    """
    length = min(length, len(text))
    starts = np.linspace(0, len(text) - length, PIECES).astype(int).tolist()
    found = [len(copies.longest(text[start : start + length])) for start in dict.fromkeys(starts)]
    return int(np.median(found)), max(found)


def _suffixes(text: str) -> Iterator[tuple[int, bytes]]:
    """Each character's position, and the bytes of the text from there on."""
    data, at = text.encode("utf-8", "surrogatepass"), 0
    for start, character in enumerate(text):
        yield start, data[at:]
        at += len(character.encode("utf-8", "surrogatepass"))


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes two begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _characters(data: bytes) -> str:
    """The text of bytes that begin with a character; one that is cut off at the end is left out."""
    whole = len(data)
    while whole and data[whole - 1] & 0xC0 == 0x80:
        whole -= 1
    if whole and data[whole - 1] >= 0xC0:
        size = 2 + (data[whole - 1] >= 0xE0) + (data[whole - 1] >= 0xF0)
        whole = whole - 1 if whole - 1 + size > len(data) else len(data)
    return data[:whole].decode("utf-8", "surrogatepass")
