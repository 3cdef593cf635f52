"""Measures how much of a text is copied, by its longest run of characters that also occurs in
another text; and finds the sources of its passages there.

Runs of one length are found by their hashes (Karp & Rabin 1987), the longest length by binary
search. Uses ids, no model and no files.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Cell, Column, Fold, Passage, Records, Table, Title
from gpt.characters import cut, in_line, label
from gpt.checks import TableResult
from gpt.reading.sampler import Sample
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

PIECES = 20  # pieces of a text from which the usual length of a copy is measured
MOST = 32_000_000  # characters to search in; their hashes take eight times as many bytes
MOST_USUAL = 1_000_000  # characters from which these pieces are taken
CHUNK = 2**16  # characters to hash at once: they fit in a core's cache
TABLE = 18  # bits of a hash that rule out most runs before they are compared
LONGEST = 60  # cells of a copy to show
FIRST = 8  # the length to search first: it leaves few places for longer runs
MOST_PIECE = 200  # characters of a piece from which the usual share of copies is measured
AROUND = 30  # characters to show beside a passage
LISTED = 10  # passages to list
UNIT = 4  # each step of a passage's colour stands for so many characters
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


@dataclass(frozen=True)
class Source(Copy):
    """A passage of a sample, and its first place in the training text. line, last_line: the lines,
    counted from 1, in which it begins and ends there. before, after: the text beside it there.
    """

    line: int
    last_line: int
    before: str
    after: str

    @property
    def row(self) -> list[str]:
        """Length, position in the sample, lines, frequency, and the passage in its text."""
        lines = f"{self.line:,}" + f"–{self.last_line:,}" * (self.last_line > self.line)
        place = f"{in_line(self.before)}[{cut(in_line(self.text), LONGEST)}]{in_line(self.after)}"
        return [f"{len(self):,}", f"{self.start:,}", lines, f"{self.times:,}", place]


@dataclass(frozen=True, repr=False)
class Sources(TableResult):
    """The passages of a text, of `least` characters or more, that occur in the training text: the
    longest ones, sorted by length, that together cover what all such passages cover (OLMoTrace, Liu
    et al. 2025).

    prompt: this many first characters are not searched. covered: the share of the other characters
    that passages cover; median, largest: the same share in pieces of the validation text.
    """

    text: str
    prompt: int
    least: int
    covered: float
    median: float
    largest: float
    passages: tuple[Source, ...]

    def __repr__(self) -> str:
        return f"<Sources: {'; '.join(self.facts)}>"

    @property
    def facts(self) -> list[str]:
        """How much of the text occurs in the training text, and how much usually does."""
        characters = counted(len(self.text) - self.prompt, "character")
        passages = f"{counted(len(self.passages), 'passage')} of {self.least} or more"
        return [
            f"{100 * self.covered:.0f} % of {characters} stand in the training text ({passages})",
            f"of {PIECES} pieces of the validation text {100 * self.median:.0f} % (median), "
            f"at most {100 * self.largest:.0f} %",
        ]

    def blocks(self, most: int = LISTED) -> list[Block]:
        """The text, coloured by the lengths of its passages, and the `most` longest of them."""
        rows, size = [each.row for each in self.passages], len(self.text)
        values, hints = [math.nan] * size, ["not in the training text"] * size
        hints[: self.prompt] = ["the prompt"] * self.prompt
        for each, row in reversed([*zip(self.passages, rows, strict=True)]):
            own = slice(each.start, each.start + len(each))
            values[own] = [len(each) / UNIT] * len(each)
            hints[own] = [f"line {row[2]}, {counted(each.times, 'time')}: {row[4]}"] * len(each)
        unit = f"length of the passage, in units of {UNIT} characters"
        shown = Passage(self.text, values if rows else (), unit, hints=hints, dim=self.prompt)
        columns = [*map(Column, ("characters", "at", "line", "times"))]
        columns.append(Column("in the training text", left=True))
        listed = Table(columns, [[*map(Cell, row)] for row in rows[:most]])
        longest = Fold("the longest passages", [listed], opened=True)
        return [Title("sources", self.facts), *[shown] * bool(size), *[longest] * bool(rows)]

    def records(self) -> Records:
        """A row for each passage. start: its position in the text; at: in the training text."""
        rows = {
            field.name: [vars(each)[field.name] for each in self.passages]
            for field in fields(Source)
        }
        usual = {"validation_median": self.median, "validation_largest": self.largest}
        return Records(rows, {"least": self.least, "covered": self.covered, **usual})


def novelty(texts: Sequence[str], train: Ids, val: Ids, vocabulary: Vocabulary) -> list[Novelty]:
    """The novelty of each text; the prompt of a sample is left out."""
    texts = [text[_prompt(text) :] for text in texts]
    others = {length: even_pieces(val, length) for length in {len(text) for text in texts}}
    searched = [vocabulary.encode(text) for text in texts]
    found = longest_copies([*searched, *chain(*others.values())], train, vocabulary)
    rest, usual = iter(found[len(texts) :]), dict[int, list[int]]()
    for length, each in others.items():
        usual[length] = [len(next(rest)) for _ in each]
    return [
        Novelty(len(text), copy, int(np.median(usual[len(text)])), max(usual[len(text)]))
        for text, copy in zip(texts, found, strict=False)
    ]


def sources(
    texts: Sequence[str], train: Ids, val: Ids, vocabulary: Vocabulary, least: int = FIRST
) -> list[Sources]:
    """The sources of each text; the prompts of samples are not searched."""
    prompts = [*map(_prompt, texts)]
    searched = [vocabulary.encode(text[start:]) for text, start in zip(texts, prompts, strict=True)]
    searched += even_pieces(val, min(MOST_PIECE, max(map(len, searched))))
    maximal = _Search(searched, train, vocabulary).maximal(least)
    found = [_cover(len(ids), each) for ids, each in zip(searched, maximal, strict=True)]
    usual = [share for share, _ in found[len(texts) :]]
    numbers = float(np.median(usual)), max(usual)
    ends, result = np.flatnonzero(train == vocabulary.id_of("\n")), []
    for text, prompt, (share, copies) in zip(texts, prompts, found, strict=False):
        passages = []
        for copy in copies:
            at, end = copy.at, copy.at + len(copy)
            lines = (ends.searchsorted([at, end - 1]) + 1).tolist()
            around = train[max(0, at - AROUND) : at], train[end : end + AROUND]
            place = copy.text, copy.start + prompt, at, copy.times, *lines
            passages.append(Source(*place, *map(vocabulary.decode, around)))
        result.append(Sources(str(text), prompt, least, share, *numbers, tuple(passages)))
    return result


def _prompt(text: str) -> int:
    return text.prompt if isinstance(text, Sample) else 0


def _cover(length: int, copies: Sequence[Copy]) -> tuple[float, list[Copy]]:
    """The share of a text that copies cover, and the longest copies that cover the same."""
    free, kept = np.ones(length, np.bool_), []
    for copy in sorted(copies, key=len, reverse=True):
        own = slice(copy.start, copy.start + len(copy))
        if free[own].any():
            free[own] = False
            kept.append(copy)
    return float(1 - free.mean()) if length else 0.0, kept


def even_pieces(ids: Ids, length: int) -> list[Ids]:
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

    def maximal(self, least: int) -> list[list[Copy]]:
        """For each text, its runs of `least` characters or more that occur in the other and are
        part of no longer such run.
        """
        self.copies(least)
        hashes = self._other.of(self._places[least], least)
        order = np.argsort(hashes, kind="stable")
        places, hashes = self._places[least][order], hashes[order]
        return [[*self._maximal(text, least, places, hashes)] for text in self._texts]

    def _maximal(self, text: _Hashes, least: int, places: Ids, hashes: Ids) -> Iterator[Copy]:
        """The `maximal` runs of one text. places: where runs of length `least` occur, in the order
        of their hashes.
        """
        end, own = 0, text.of(np.arange(text.runs(least)), least)
        ranges = hashes.searchsorted(own), hashes.searchsorted(own, "right")
        for start, (first, last) in enumerate(zip(*map(np.ndarray.tolist, ranges), strict=True)):

            def where(length: int, start: int = start, at: Ids = places[first:last]) -> Ids:
                at = at[at <= len(self._other.ids) - length]
                found: Ids = at[self._other.of(at, length) == text.of(np.array([start]), length)]
                return found

            lengths = range(max(least, end + 1 - start), len(text.ids) - start + 1)
            if lengths and len(at := where(lengths[0])):
                longer = bisect_left(lengths, True, key=lambda length: not len(where(length)))
                at = where(length := lengths[longer - 1])
                run, end = text.ids[start : start + length], start + length
                if np.array_equal(run, self._other.ids[at[0] : at[0] + length]):
                    yield Copy(self._vocabulary.decode(run), start, int(at[0]), len(at))

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
