"""Counts the n-grams of a text, and stores them in a trie.

The n-grams of order n have n characters. The history of an n-gram is the n-gram without its last
character. The nodes of the trie are histories, in breadth-first order: node 0 is the empty history,
and node 1 + g is the n-gram number g, as the history of longer n-grams. Counting sorts the text
once for every order.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids

MOST_CHARACTERS = 2**21  # most characters that are counted
MOST_GRAMS = 2**22  # most n-grams in a trie, which take about 20 MB in a file

AT_ONCE = 2**18  # numbers computed at once; more would take memory and save no time

Numbers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Level:
    """The G distinct n-grams of one order, sorted by history, then by last character.

    symbols: (G,) their last characters. often: (G,) how often they occur. counts: (G,) how many
    distinct characters precede them, or `often` at the last order. children: (H,) the number of
    n-grams with each of the H histories, which are the n-grams of the order below.
    """

    symbols: Numbers
    often: Numbers
    counts: Numbers
    children: Numbers


@dataclass(frozen=True)
class Trie:
    """The n-grams of the orders 1 … N, numbered in this order.

    symbols: (G,) their last characters. counts: (G,) as in Level. starts: (H + 2,): the n-grams
    with history h have the numbers starts[h] to starts[h + 1] − 1. History H stands for all
    histories that the text does not have, which have no n-grams. ends: (N + 1,): ends[k] is the
    number of n-grams of the orders 1 to k.
    """

    symbols: Numbers
    counts: Numbers
    starts: Numbers
    ends: Sequence[int]

    @property
    def orders(self) -> int:
        return len(self.ends) - 1

    def histories_at(self, ids: Ids, starts: Numbers, length: int) -> npt.NDArray[np.int64]:
        """(n,) ids, (B,) starts -> (N, B · length) nodes: for each of the `length` characters from
        every start on, its histories of 0 to N − 1 characters.
        """
        before = self.orders - 1
        places = np.asarray(starts)[:, None] + np.arange(-before, length - 1)
        symbols = np.asarray(ids[np.maximum(places, 0)]).astype(np.int64)
        symbols[places < 0] = -1  # a character that the text does not have
        unseen = len(self.starts) - 2
        shape = (self.orders, len(places), before + length)
        histories = np.full(shape, unseen, np.int64)
        histories[0] = 0
        for order in range(1, self.orders):
            grams = find_grams(self.starts, self.symbols, histories[order - 1, :, :-1], symbols)
            histories[order, :, 1:] = np.where(grams < 0, unseen, grams + 1)
        return histories[:, :, before:].reshape(self.orders, -1)

    def stored_arrays(self) -> dict[str, Numbers]:
        """Returns three arrays for a file: symbols, counts, and every history's number of n-grams.
        Their types are the smallest that can hold the numbers.
        """
        children = np.diff(self.starts[:-1])
        arrays = {"symbols": self.symbols, "counts": self.counts, "children": children}
        return {name: _smallest(numbers) for name, numbers in arrays.items()}


def unpack_trie(arrays: Mapping[str, Numbers], vocab_size: int, orders: int) -> Trie:
    """Makes a trie of at most `orders` orders from the arrays of `Trie.stored_arrays`. Raises
    ValueError if the arrays' sizes do not match, or for an id outside the vocabulary.
    """
    symbols, counts, children = (arrays[name] for name in ("symbols", "counts", "children"))
    starts, ends = first_grams(children), [0]
    while ends[-1] < len(children) and len(ends) <= orders:
        ends.append(int(starts[ends[-1] + 1]))
    if not 0 < ends[-1] == len(symbols) == len(counts) or len(children) != ends[-2] + 1:
        raise ValueError("the n-grams and their histories do not match")
    if int(symbols.max()) >= vocab_size:
        raise ValueError("an n-gram has an unknown character")
    return Trie(symbols, counts, starts, ends)


def count_ngrams(ids: Ids, vocab_size: int, orders: int) -> Trie:
    """Counts the n-grams of (n,) ids up to `orders` characters, for modified Kneser–Ney. Counts
    only the last MOST_CHARACTERS of a longer text, and fewer orders if all orders together have
    more than MOST_GRAMS n-grams. The counts are those of Chen & Goodman 1999.
    """
    kept: list[Level] = []
    for order, _ in enumerate(keep_levels(count_levels(ids, vocab_size, orders), kept, orders), 1):
        if len(kept) < order:
            break
    return join_levels(kept)


def keep_levels(levels: Iterable[Level], kept: list[Level], orders: int) -> Iterator[Level]:
    """Yields all levels. Appends the first `orders` levels to `kept`, or fewer if all these would
    have more than MOST_GRAMS n-grams.
    """
    grams = 0
    for order, level in enumerate(levels, 1):
        grams += len(level.symbols)
        if order <= orders and (order == 1 or grams <= MOST_GRAMS):
            if kept:  # frees the memory of `often`, which only the last level needs
                kept[-1] = replace(kept[-1], often=kept[-1].counts)
            kept.append(level)
        yield level


def join_levels(levels: Sequence[Level]) -> Trie:
    """Joins levels to a trie. The counts of the last level are how often its n-grams occur."""
    levels = [level for level in levels if len(level.symbols)]
    counts = [level.counts for level in levels]
    counts[-1] = levels[-1].often
    return Trie(
        symbols=np.concatenate([level.symbols for level in levels]),
        counts=np.concatenate(counts),
        starts=first_grams(np.concatenate([level.children for level in levels])),
        ends=np.cumsum([0, *(len(level.symbols) for level in levels)]).tolist(),
    )


def first_grams(children: Numbers) -> npt.NDArray[np.int32]:
    """(H,) how many n-grams each history has -> (H + 2,) Trie.starts."""
    starts = np.zeros(len(children) + 2, np.int32)
    np.cumsum(children, dtype=np.int32, out=starts[1:-1])
    starts[-1] = starts[-2]
    return starts


def count_levels(ids: Ids, vocab_size: int, orders: int) -> Iterator[Level]:
    """Yields the levels of the orders one after the other, for any number of n-grams."""
    text = np.asarray(ids[-MOST_CHARACTERS:])
    ends: Numbers = np.zeros(len(text) + 1, np.int32)  # number of the n-gram before every place
    histories = 1
    previous: Level | None = None
    for start in range(orders):  # the first characters of the text have no full history
        release_memory()
        level, after, first = _sort(ends, text, start, vocab_size, histories)
        if previous is not None:
            # The first character of an n-gram is a distinct predecessor of its other characters.
            preceding = _tally(ends[1:][first], histories)
            ends = first = text[:0]  # frees the arrays
            yield replace(previous, counts=preceding)
        histories, previous, ends = len(level.symbols), level, after
    if previous is not None:
        yield previous


def _sort(
    ends: Numbers, text: Ids, start: int, vocab_size: int, histories: int
) -> tuple[Level, Numbers, Numbers]:
    """Counts the n-grams of the next order by sorting, in place to save memory.

    ends: (characters + 1,) the number of the history before every place. Returns the level of the
    n-grams that end at `start` or later, (characters + 1,) the number of the n-gram before every
    place, and (G,) the first place where an n-gram ends.
    """
    # One number of at most 63 bits holds history, character and place, in the order of sorting.
    bits, size = np.uint64(max(1, (len(text) - 1).bit_length())), np.uint64(vocab_size)
    packed = ends[start:-1].astype(np.uint64)
    packed *= size
    np.add(packed, text[start:], out=packed, casting="unsafe")
    packed <<= bits
    packed |= np.arange(start, len(text), dtype=np.uint32)
    packed.sort()
    places = np.empty(len(packed), np.int32)
    np.bitwise_and(packed, (np.uint64(1) << bits) - np.uint64(1), out=places, casting="unsafe")
    packed >>= bits
    new = np.empty(len(packed), np.bool_)
    new[:1] = True
    np.not_equal(packed[1:], packed[:-1], out=new[1:])
    kept = 0
    for first in range(0, len(packed), AT_ONCE):  # packed = packed[new], in place
        part = packed[first : first + AT_ONCE][new[first : first + AT_ONCE]]
        packed[kept : kept + len(part)] = part
        kept += len(part)
    packed = packed[:kept]
    symbols = np.empty(kept, text.dtype)
    np.remainder(packed, size, out=symbols, casting="unsafe")
    packed //= size
    children = _tally(packed, histories)
    del packed
    numbers = np.cumsum(new, dtype=np.int32)
    numbers -= 1
    often = _tally(numbers, kept)
    after = np.zeros(len(text) + 1, np.int32)
    after[1:][places] = numbers
    return Level(symbols, often, often, children), after, places[new]


def release_memory() -> None:
    """Returns the memory of freed arrays to the system. glibc would keep it for later arrays. The
    memory that it keeps for all threads together is more than counting needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim:
        trim(0)


def find_grams(
    starts: Numbers, symbols: Numbers, histories: Numbers, ids: Ids
) -> npt.NDArray[np.int64]:
    """(…, T) histories and (…, T) next characters -> (…, T) numbers of the n-grams, −1 for none.
    The history −1 has no n-grams. One binary search runs for all histories at the same time.
    """
    if not len(symbols):
        return np.full(histories.shape, -1)
    grams, end = starts[histories].astype(np.int64), starts[histories + 1]
    for bit in reversed(range(int((end - grams).max(initial=0)).bit_length())):
        later = grams + (1 << bit)
        later[(later >= end) | (symbols.take(later, mode="clip") > ids)] = 0
        np.maximum(grams, later, out=grams)
    grams[(grams >= end) | (symbols.take(grams, mode="clip") != ids)] = -1
    return grams


def _tally(numbers: Numbers, size: int) -> Numbers:
    """Counts how often 0 … size − 1 occur -> (size,), in the smallest type."""
    often = np.zeros(size, np.int32)
    for first in range(0, len(numbers), AT_ONCE):
        np.add.at(often, numbers[first : first + AT_ONCE].astype(np.intp), np.int32(1))
    return _smallest(often)


def _smallest(numbers: Numbers) -> Numbers:
    """Converts numbers, none of them negative, to the smallest unsigned type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))), copy=False)
