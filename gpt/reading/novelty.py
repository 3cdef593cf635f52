"""How much of a text is copied: its longest passage that also stands in another text. And which
characters would copy a passage.

Passages of one length are found by their hashes (Karp & Rabin 1987), the longest length by binary
search. Uses ids, no model and no files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.characters import cut, label
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

MOST = 32_000_000  # characters to search in; their hashes take eight times as many bytes
CHUNK = 2**16  # characters to hash at once: they fit in a core's cache
LONGEST = 60  # cells of a copy to show
BASE = 0x9E3779B97F4A7C15  # base of the hashes, which are modulo 2⁶⁴
INVERSE = pow(BASE, -1, 2**64)


@dataclass(frozen=True)
class Copy:
    """A passage that two texts share. start: its position in the first text; at: its first position
    in the other; times: how often the other contains it.
    """

    text: str = ""
    start: int = 0
    at: int = 0
    times: int = 0

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Novelty:
    """The longest passage of a text of so many characters that it has copied."""

    characters: int
    longest: Copy

    def __str__(self) -> str:
        """The passage, and where it stands."""
        copy = self.longest
        if not copy.text:
            return f"no character of {self.characters:,} stands in the training text"
        shown = "".join(label(each) if each in "\n\t\r" else each for each in copy.text)
        times = "" if copy.times == 1 else f", and {counted(copy.times - 1, 'more time')}"
        return (
            f"the longest copied passage has {len(copy):,} of {self.characters:,} characters: "
            f"“{cut(shown, LONGEST)}”, at character {copy.at:,} of the training text{times}"
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers for programs; positions in characters. start: of the copy in the text; at: of
        the copy in the training text.
        """
        return {"characters": self.characters, "copied": len(self.longest), **vars(self.longest)}


def longest_copies(texts: Sequence[str], other: Ids, vocabulary: Vocabulary) -> list[Copy]:
    """For each text, its longest passage that stands in the other text (the first, if several are
    as long); empty if none does.
    """
    search = _Search(texts, other, vocabulary)

    def longest(number: int) -> int:
        lengths = range(1, len(texts[number]) + 1)
        return bisect_left(lengths, True, key=lambda length: not search.copies(length)[number])

    return [search.copies(longest(number))[number] for number in range(len(texts))]


class _Search:
    """Searches one text for passages of several other texts."""

    def __init__(self, texts: Sequence[str], other: Ids, vocabulary: Vocabulary) -> None:
        self._texts = texts
        self._hashes = [_Hashes(vocabulary.encode(text)) for text in texts]
        self._other = _Hashes(other)
        self._copies = {0: [Copy()] * len(texts)}

    def copies(self, length: int) -> list[Copy]:
        """For each text, its first passage of this length that stands in the other, or an empty
        one.
        """
        if length not in self._copies:
            self._copies[length] = self._search(length)
        return self._copies[length]

    def _search(self, length: int) -> list[Copy]:
        hashed = [text.of(0, text.count(length), length) for text in self._hashes]
        wanted = np.unique(np.concatenate(hashed))
        first, times = np.zeros((2, len(wanted)), np.int64)
        count = self._other.count(length)
        for begin in range(0, count, CHUNK):
            hashes = self._other.of(begin, min(begin + CHUNK, count), length)
            numbers = wanted.searchsorted(hashes).clip(max=len(wanted) - 1)
            places = (wanted[numbers] == hashes).nonzero()[0]
            new, where, counts = np.unique(numbers[places], return_index=True, return_counts=True)
            first[new] = np.where(times[new], first[new], begin + places[where])
            times[new] += counts
        copies = []
        for number, hashes in enumerate(hashed):
            at = wanted.searchsorted(hashes)
            copies.append(self._first(number, length, first[at], times[at]))
        return copies

    def _first(self, number: int, length: int, first: Ids, times: Ids) -> Copy:
        """A text's first passage that stands in the other. first, times: where and how often each
        of its passages does.
        """
        for start in times.nonzero()[0][:1].tolist():
            at = int(first[start])
            passage = self._hashes[number].ids[start : start + length]
            if np.array_equal(passage, self._other.ids[at : at + length]):  # hashes are no proof
                text = self._texts[number][start : start + length]
                return Copy(text, start, at, int(times[start]))
        return Copy()


class Passages:
    """All passages of `length` characters of a text, found by their hashes."""

    def __init__(self, text: Ids, length: int) -> None:
        hashes, self.length = _Hashes(text), length
        count = hashes.count(length)
        parts = [
            hashes.of(begin, min(begin + CHUNK, count), length) for begin in range(0, count, CHUNK)
        ]
        self._known = np.concatenate([*parts, np.array([2**64 - 1], np.uint64)])
        self._known.sort()
        self._powers = _power(BASE, np.arange(1, length + 1)) if count else None

    def completed_by(self, text: Sequence[int], kinds: int) -> npt.NDArray[np.bool_]:
        """(kinds,) whether each id, written after these, would complete a passage."""
        begin = len(text) - self.length + 1
        if self._powers is None or begin < 0:
            return np.zeros(kinds, bool)
        before = np.array(text[begin:], np.uint64) + np.uint64(1)
        ids = np.arange(1, kinds + 1, dtype=np.uint64)
        hashes = (before * self._powers[:-1]).sum() + ids * self._powers[-1]
        found: npt.NDArray[np.bool_] = self._known[self._known.searchsorted(hashes)] == hashes
        return found


class _Hashes:
    """Hashes of all passages of a text: the sum of (id + 1) · BASE^(1 + place in the passage)."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._sums = np.zeros(len(ids) + 1, np.uint64)  # 8 bytes for each character
        for begin in range(0, len(ids), CHUNK):
            at = np.arange(begin, min(begin + CHUNK, len(ids)))
            self._sums[at + 1] = (ids[at].astype(np.uint64) + np.uint64(1)) * _power(BASE, at)
        np.cumsum(self._sums, out=self._sums)

    def count(self, length: int) -> int:
        """The number of passages of this length."""
        return max(0, len(self.ids) - length + 1)

    def of(self, begin: int, end: int, length: int) -> npt.NDArray[np.uint64]:
        """The hashes of the passages of this length that begin at begin … end − 1."""
        sums = self._sums[begin + length : end + length] - self._sums[begin:end]
        hashes: npt.NDArray[np.uint64] = sums * _power(INVERSE, np.arange(begin, end))
        return hashes * np.uint64(BASE)


def _power(base: int, exponents: Ids) -> npt.NDArray[np.uint64]:
    """base to the power of these exponents, which are below CHUNK², modulo 2⁶⁴."""
    near, far = _powers(base, CHUNK), _powers(pow(base, CHUNK, 2**64), CHUNK)
    result: npt.NDArray[np.uint64] = near[exponents % CHUNK] * far[exponents // CHUNK]
    return result


@cache
def _powers(base: int, count: int) -> npt.NDArray[np.uint64]:
    """(count,) base⁰, base¹, …, modulo 2⁶⁴."""
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)
