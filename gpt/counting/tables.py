"""Which n-grams a text has, and how often: one trie, breadth first.

Its nodes are histories: node 0 is the empty one, and node 1 + g is n-gram number g, seen as the
history of longer n-grams. Counting sorts the text once for each order. Knows ids and counts, no
files and no probabilities.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids

MOST_CHARACTERS = 2**21  # characters to count
MOST_GRAMS = 2**22  # n-grams in a trie: about 20 MB of file

AT_ONCE = 2**18  # numbers computed together; more take memory and save no time

Numbers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Level:
    """The distinct n-grams of one order, sorted by history, then by last character.

    symbols: (G,) the last character of each n-gram. often: (G,) how often it occurs. counts: (G,)
    how many distinct characters precede it; at the last order, how often it occurs. children: (H,)
    the number of n-grams with each history, which is an n-gram of the order below.
    """

    symbols: Numbers
    often: Numbers
    counts: Numbers
    children: Numbers

    def find(self, histories: Numbers, ids: Ids) -> npt.NDArray[np.int32]:
        """(T,) histories and (T,) next characters -> (T,) indices of the n-grams; −1 = none."""
        starts, found = np.zeros(len(self.children) + 1, np.int32), np.full(len(ids), -1, np.int32)
        np.cumsum(self.children, dtype=np.int32, out=starts[1:])
        for first in range(0, len(ids) * (len(self.symbols) > 0), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            found[part] = _find(starts, self.symbols, histories[part], ids[part])
        return found


@dataclass(frozen=True)
class Trie:
    """The n-grams of the orders 1 … N, in this order.

    symbols: (G,) the last character of each n-gram. counts: (G,) see Level. starts: (G + 3,): the
    n-grams with history h have the numbers starts[h] to starts[h + 1] − 1. ends: (N + 1,): ends[k]
    n-grams have the orders 1 to k.
    """

    symbols: Numbers
    counts: Numbers
    starts: Numbers
    ends: Sequence[int]

    @property
    def orders(self) -> int:
        return len(self.ends) - 1

    @property
    def unseen_node(self) -> int:
        """The node of all histories that the text does not have: nothing follows it."""
        return len(self.symbols) + 1

    def follow(self, histories: Numbers, ids: Ids) -> npt.NDArray[np.int64]:
        """(…, T) histories and (T,) next characters -> (…, T) histories that end with these."""
        grams = _find(self.starts, self.symbols, histories, ids)
        return np.where(grams < 0, self.unseen_node, grams + 1)

    def histories(self, ids: Numbers) -> npt.NDArray[np.int64]:
        """(…, T) ids -> (N, …, T + 1) the histories of 0 to N − 1 characters before each character,
        and after the last one. The id −1 stands for a character that the text does not have.
        """
        shape = (self.orders, *ids.shape[:-1], ids.shape[-1] + 1)
        found = np.full(shape, self.unseen_node, np.int64)
        found[0] = 0
        for order in range(1, self.orders):
            found[order, ..., 1:] = self.follow(found[order - 1, ..., :-1], ids)
        return found

    def histories_at(self, ids: Ids, starts: Numbers, length: int) -> npt.NDArray[np.int64]:
        """(n,) ids and (B,) starts -> (N, B · length) the histories before each of the `length`
        characters from each start on.
        """
        return self._around(ids, starts, length)[..., self.orders - 1 :].reshape(self.orders, -1)

    def _around(self, ids: Ids, starts: Numbers, length: int) -> npt.NDArray[np.int64]:
        """Like `histories_at` -> (N, B, N − 1 + length), including the N − 1 places before each
        start; histories reach back to the first of these places only.
        """
        places = np.asarray(starts)[:, None] + np.arange(1 - self.orders, length - 1)
        rows = np.where(places < 0, -1, np.asarray(ids[np.maximum(places, 0)]).astype(np.int64))
        return self.histories(rows)

    def advance(self, histories: Numbers, ids: Ids) -> npt.NDArray[np.int64]:
        """(N, T) histories and (T,) next characters -> (N, T) the histories after them."""
        after = np.zeros(histories.shape, np.int64)
        after[1:] = self.follow(histories[:-1], ids)
        return after

    def pruned(self, ids: Ids, starts: Numbers, length: int) -> Trie:
        """The trie with only the n-grams that continue histories of `histories_at`."""
        nodes = np.unique(self._around(ids, starts, length))
        nodes = nodes[self.starts[nodes + 1] > self.starts[nodes]]
        first = self.starts[nodes]
        kinds = self.starts[nodes + 1] - first
        grams = np.arange(kinds.sum()) + np.repeat(first - np.cumsum(kinds) + kinds, kinds)
        children = np.zeros(len(grams) + 1, np.int32)
        children[np.append(0, grams + 1).searchsorted(nodes)] = kinds
        ends = grams.searchsorted(self.ends).tolist()
        return Trie(self.symbols[grams], self.counts[grams], _starts(children, len(grams)), ends)

    def packed(self) -> dict[str, Numbers]:
        """The trie as three arrays of the smallest types: symbols, counts, and the number of
        n-grams that each history of less than N characters has.
        """
        children = np.diff(self.starts[: self.ends[-2] + 2])
        arrays = {"symbols": self.symbols, "counts": self.counts, "children": children}
        return {name: _smallest(numbers) for name, numbers in arrays.items()}


def unpack_trie(arrays: Mapping[str, Numbers], vocab_size: int, orders: int) -> Trie:
    """The trie from these three arrays, with at most `orders` orders. Raises ValueError if no text
    has such n-grams. Takes time and memory in proportion to the arrays.
    """
    symbols, counts, children = (arrays[name] for name in ("symbols", "counts", "children"))
    grams, nodes = len(symbols), len(children)
    if not 0 < nodes <= grams < 2**31 or len(counts) != grams or children.sum(dtype="i8") != grams:
        raise ValueError("the n-grams and their histories do not match")
    starts = _starts(children, grams)
    ends = [0]
    while ends[-1] < grams and len(ends) <= orders:
        # Histories of the next order: the node of the last n-gram so far, and those before it.
        ends.append(int(starts[min(ends[-1] + 1, nodes)]))
    if ends[-1] != grams or nodes != ends[-2] + 1:
        raise ValueError("the n-grams and their histories do not match")
    # Each distinct character before an n-gram makes a longer n-gram.
    *sums, last = (int(counts[a:b].sum(dtype=np.int64)) for a, b in pairwise(ends))
    if sums != np.diff(ends[1:]).tolist() or last > MOST_CHARACTERS:
        raise ValueError("no text has n-grams with these counts")
    ascending = np.ones(grams, np.bool_)
    np.greater(symbols[1:], symbols[:-1], out=ascending[:-1])
    for first in range(0, nodes, AT_ONCE):
        history = slice(first, min(first + AT_ONCE, nodes))
        ascending[starts[history] - 1] = True  # of the history before; −1: the last
    if not ascending.all() or int(symbols.max()) >= vocab_size:
        raise ValueError("the n-grams are not in order")
    return Trie(symbols, counts, starts, ends)


def count(ids: Ids, vocab_size: int, orders: int) -> Trie:
    """The n-grams of (n,) ids up to `orders` characters, counted as modified Kneser–Ney needs them
    (Chen & Goodman 1999). Counts the last MOST_CHARACTERS of a longer text, and fewer orders if
    all of them together have more than MOST_GRAMS n-grams.
    """
    kept = KeptLevels(orders)
    for _ in kept.passing(count_levels(ids, vocab_size, orders)):
        if kept.is_full:
            break
    return kept.trie()


class KeptLevels:
    """Keeps levels while they are counted, for a trie of at most `orders` orders."""

    def __init__(self, orders: int) -> None:
        self._orders, self._grams, self._levels = orders, 0, list[Level]()
        self.is_full = False  # the trie needs no further levels

    def passing(self, levels: Iterable[Level]) -> Iterator[Level]:
        """Yields the levels of the orders 1, 2, …, and keeps those that the trie needs."""
        for level in levels:
            self._grams += len(level.symbols)
            self.is_full |= bool(self._levels) and self._grams > MOST_GRAMS
            if not self.is_full:
                if self._levels:  # frees the memory of `often`, which only the last one needs
                    self._levels[-1] = replace(self._levels[-1], often=self._levels[-1].counts)
                self._levels.append(level)
                self.is_full = len(self._levels) == self._orders
            yield level

    def trie(self) -> Trie:
        """The trie of the orders that have n-grams; the last one has numbers of occurrences."""
        *shorter, last = self._levels
        levels = [*shorter, replace(last, counts=last.often)]
        levels = [level for level in levels if len(level.symbols)]
        ends = np.cumsum([0, *(len(level.symbols) for level in levels)]).tolist()
        starts = _starts(np.concatenate([level.children for level in levels]), ends[-1])
        symbols = np.concatenate([level.symbols for level in levels])
        counts = np.concatenate([level.counts for level in levels])
        return Trie(symbols, counts, starts, ends)


def _starts(children: Numbers, grams: int) -> npt.NDArray[np.int32]:
    """(H,) numbers of n-grams with each history -> (grams + 3,) Trie.starts."""
    starts = np.full(grams + 3, grams, np.int32)
    starts[0] = 0
    np.cumsum(children, dtype=np.int32, out=starts[1 : len(children) + 1])
    return starts


def count_levels(ids: Ids, vocab_size: int, orders: int) -> Iterator[Level]:
    """Counts like `count`, whatever the number of n-grams, and yields one order at a time."""
    text = np.asarray(ids[-MOST_CHARACTERS:])
    ends: Numbers = np.zeros(len(text) + 1, np.int32)  # number of the n-gram before each place
    histories = 1
    previous: Level | None = None
    for start in range(orders):  # the first characters of the text have no full history
        release_memory()
        level, after, first = _sort(ends, text, start, vocab_size, histories)
        if previous is not None:
            # Each distinct n-gram adds one character before the n-gram that is shorter by one.
            preceding = _tally(ends[1:][first], histories)
            ends = first = text[:0]  # frees them
            yield replace(previous, counts=preceding)
        histories, previous, ends = len(level.symbols), level, after
    if previous is not None:
        yield previous


def _sort(
    ends: Numbers, text: Ids, start: int, vocab_size: int, histories: int
) -> tuple[Level, Numbers, Numbers]:
    """Sorts the n-grams of the next order. ends: (characters + 1,) the number of the history before
    each place. Returns the n-grams that end at `start` or later; (characters + 1,) the number of
    the n-gram before each place; (G,) the first place where each n-gram ends.

    Works in place, as nothing in a training of a small model takes more memory.
    """
    # History, character and place in one number of at most 63 bits: sorting it sorts all three.
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
    symbols = np.empty(len(packed), text.dtype)
    np.remainder(packed, size, out=symbols, casting="unsafe")
    packed //= size
    children = _tally(packed, histories)
    del packed
    numbers = np.cumsum(new, dtype=np.int32)
    numbers -= 1
    often = _tally(numbers, len(symbols))
    after = np.zeros(len(text) + 1, np.int32)
    after[1:][places] = numbers
    return Level(symbols, often, often, children), after, places[new]


def release_memory() -> None:
    """Returns memory of freed arrays to the system: glibc keeps it for later arrays, for all
    threads together more than counting needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim:
        trim(0)


def _tally(numbers: Numbers, size: int) -> Numbers:
    """(size,) how often 0 … size − 1 occur, in the smallest type."""
    found = np.zeros(size, np.int32)
    for first in range(0, len(numbers), AT_ONCE):
        np.add.at(found, numbers[first : first + AT_ONCE].astype(np.intp), np.int32(1))
    return _smallest(found)


def _smallest(numbers: Numbers) -> Numbers:
    """The same numbers (none is negative) in the smallest unsigned type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))), copy=False)


def _find(starts: Numbers, symbols: Numbers, histories: Numbers, ids: Ids) -> npt.NDArray[np.int64]:
    """(…, T) histories and (T,) next characters -> (…, T) indices of the n-grams; −1 = none.

    A binary search in all histories at the same time, as sorted keys would take memory.
    """
    found, end = starts[histories].astype(np.int64), starts[histories + 1]
    for bit in reversed(range(int((end - found).max(initial=0)).bit_length())):
        later = found + (1 << bit)
        later[(later >= end) | (symbols.take(later, mode="clip") > ids)] = 0
        np.maximum(found, later, out=found)
    found[(found >= end) | (symbols.take(found, mode="clip") != ids)] = -1
    return found
