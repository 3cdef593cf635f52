"""Measures how much of a text is copied, by its longest run of characters that also occurs in
another text.

Runs of one length are found by their hashes (Karp & Rabin 1987), the longest length by binary
search. Uses ids, no model and no files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Records, Title
from gpt.characters import cut, label
from gpt.checks import TableResult
from gpt.reading.sampler import Sample
from gpt.vocabulary import Ids, Vocabulary

PIECES = 20  # pieces of a text from which the usual length of a copy is measured
MOST = 32_000_000  # characters to search in; their hashes take eight times as many bytes
MOST_USUAL = 1_000_000  # characters from which these pieces are taken
CHUNK = 2**16  # characters to hash at once: they fit in a core's cache
TABLE = 18  # bits of a hash that rule out most runs before they are compared
LONGEST = 60  # cells of a copy to show
FIRST = 8  # the length to search first: it leaves few places for longer runs
UNUSED = np.uint64(64 - TABLE)
BASE = 0x9E3779B97F4A7C15  # base of the hashes, which are modulo 2⁶⁴
INVERSE = pow(BASE, -1, 2**64)


@dataclass(frozen=True)
class Copy:
    """A run of characters that two texts share. start: its position in the first text; at: its
    first position in the other; times: how often the other contains it.
    """

    text: str
    start: int
    at: int
    times: int

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Novelty(TableResult):
    """A text's longest copy from the training text. For comparison, pieces of the same length are
    taken from a text that the model was not trained on: the median and largest length of their
    longest copies.
    """

    characters: int
    longest: Copy
    median: int
    largest: int

    @property
    def facts(self) -> list[str]:
        """The longest copy, its position, and the usual length of copies."""
        copy = self.longest
        shown = "".join(label(each) if each in "\n\t\r" else each for each in copy.text)
        times = "once" if copy.times == 1 else f"{copy.times:,} times"
        where = f" ({times}, first at {copy.at:,}): “{cut(shown, LONGEST)}”" if copy.text else ""
        length = f"{len(copy)} of {self.characters} characters"
        return [
            f"longest copy from the training text: {length}{where}",
            f"in the validation text: {self.median} (median) to {self.largest}",
        ]

    def blocks(self) -> list[Block]:
        """The longest copy, and the usual length of copies."""
        return [Title("novelty", self.facts)]

    @property
    def numbers(self) -> dict[str, int | str]:
        """The numbers for programs; positions in characters. start: of the copy in the text; at: of
        the copy in the training text.
        """
        found = {"characters": self.characters, "copied": len(self.longest), **vars(self.longest)}
        return found | {"validation_median": self.median, "validation_largest": self.largest}

    def records(self) -> Records:
        """One row."""
        return Records({name: [value] for name, value in self.numbers.items()})


def novelty(texts: Sequence[str], train: Ids, val: Ids, vocabulary: Vocabulary) -> list[Novelty]:
    """The novelty of each text; the prompt of a sample is left out."""
    texts = [text[text.prompt :] if isinstance(text, Sample) else text for text in texts]
    others = {length: _even_pieces(val, length) for length in {len(text) for text in texts}}
    searched = [vocabulary.encode(text) for text in texts]
    found = longest_copies([*searched, *chain(*others.values())], train, vocabulary)
    rest, usual = iter(found[len(texts) :]), dict[int, list[int]]()
    for length, each in others.items():
        usual[length] = [len(next(rest)) for _ in each]
    return [
        Novelty(len(text), copy, int(np.median(usual[len(text)])), max(usual[len(text)]))
        for text, copy in zip(texts, found, strict=False)
    ]


def _even_pieces(ids: Ids, length: int) -> list[Ids]:
    """Pieces of a text, spread evenly over it. They show how much two texts by one author share, so
    a sample of the same length may share as much.
    """
    length = min(length, len(ids))
    starts = np.linspace(0, len(ids) - length, PIECES).astype(int).tolist()
    return [ids[start : start + length] for start in dict.fromkeys(starts)]


def longest_copies(texts: Sequence[Ids], other: Ids, vocabulary: Vocabulary) -> list[Copy]:
    """For each text, its longest run that occurs in the other text (the first, if several are as
    long); empty if none does.
    """
    search = _Search(texts, other, vocabulary)
    search.copies(FIRST)

    def longest(number: int) -> int:
        lengths = range(1, len(texts[number]) + 1)
        return bisect_left(lengths, True, key=lambda length: not search.copies(length)[number])

    return [search.copies(longest(number))[number] for number in range(len(texts))]


class _Search:
    """Searches one text for runs of several other texts."""

    def __init__(self, texts: Sequence[Ids], other: Ids, vocabulary: Vocabulary) -> None:
        self._texts, self._other = [_Hashes(text) for text in texts], _Hashes(other)
        self._vocabulary = vocabulary
        self._copies = {0: [Copy("", 0, 0, 0)] * len(texts)}
        self._places: dict[int, Ids] = {}  # length -> the places where runs of this length occur

    def copies(self, length: int) -> list[Copy]:
        """For each text, its first run of this length that occurs in the other, or an empty one."""
        if length not in self._copies:
            self._copies[length] = self._found(length)
        return self._copies[length]

    def _found(self, length: int) -> list[Copy]:
        hashed = [text.of(np.arange(text.runs(length)), length) for text in self._texts]
        runs = np.unique(np.concatenate(hashed))
        likely = np.zeros(2**TABLE, np.bool_)
        likely[runs >> UNUSED] = True
        first, times = np.zeros((2, len(runs)), np.int64)
        places = []
        for at in self._candidates(length):
            hashes = self._other.of(at, length)
            rest = likely[hashes >> UNUSED].nonzero()[0]
            number = runs.searchsorted(hashes[rest]).clip(max=len(runs) - 1)
            same = runs[number] == hashes[rest]
            number, at = number[same], at[rest[same]]
            new, where, counts = np.unique(number, return_index=True, return_counts=True)
            first[new] = np.where(times[new], first[new], at[where])
            times[new] += counts
            places.append(at)
        self._places[length] = np.concatenate(places) if places else np.empty(0, np.int64)
        return [
            self._first(text, length, first[numbers], times[numbers])
            for text, hashes in zip(self._texts, hashed, strict=True)
            for numbers in [runs.searchsorted(hashes)]
        ]

    def _candidates(self, length: int) -> Iterator[Ids]:
        """The places where runs of this length may occur: where shorter ones occur, or all."""
        shorter = max((each for each in self._places if each < length), default=0)
        known, runs = self._places.get(shorter), self._other.runs(length)
        for begin in range(0, runs if known is None else len(known), CHUNK):
            if known is None:
                yield np.arange(begin, min(begin + CHUNK, runs))
            else:
                at = known[begin : begin + CHUNK]
                yield at[at < runs]

    def _first(self, text: _Hashes, length: int, first: Ids, times: Ids) -> Copy:
        """The text's first run that occurs; first, times: where and how often each run occurs."""
        for start in times.nonzero()[0][:1].tolist():
            run, at = text.ids[start : start + length], int(first[start])
            if np.array_equal(run, self._other.ids[at : at + length]):  # hashes are no proof
                return Copy(self._vocabulary.decode(run), start, at, int(times[start]))
        return self._copies[0][0]


class _Hashes:
    """Hashes of all runs of a text: the sum of (id + 1) · BASE^(1 + place in the run)."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._sums = np.zeros(len(ids) + 1, np.uint64)  # 8 bytes for each character
        for begin in range(0, len(ids), CHUNK):
            at = np.arange(begin, min(begin + CHUNK, len(ids)))
            self._sums[at + 1] = (ids[at].astype(np.uint64) + np.uint64(1)) * _power(BASE, at)
        np.cumsum(self._sums, out=self._sums)

    def runs(self, length: int) -> int:
        """The number of runs of this length."""
        return max(0, len(self.ids) - length + 1)

    def of(self, at: Ids, length: int) -> npt.NDArray[np.uint64]:
        """The hashes of the runs of this length that begin at the places `at`."""
        sums: npt.NDArray[np.uint64] = self._sums[at + length] - self._sums[at]
        return sums * _power(INVERSE, at) * np.uint64(BASE)


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
