"""Pairs of texts: lines `source TAB target` of an encoded corpus, found in its ids.

TAB and NEWLINE are characters of the one vocabulary of both sides: a decoder reads `TAB target` and
predicts `target NEWLINE`. So there are no special tokens. pair_batches.py chooses the lines to
validate on, and makes the batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpt.corpus import cache
from gpt.corpus.corpus import Corpus
from gpt.corpus.pair_lines import LINE_FORMAT, NEWLINE, QUOTED, RETURN, TAB, no_pair
from gpt.errors import TextError
from gpt.storage.manifest import CorpusId
from gpt.vocabulary import Ids, Vocabulary, in_sources

Integers = npt.NDArray[np.int64]

SEARCHED_AT_ONCE = 2**20  # ids


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a corpus, by line number: 0, 1, … in the order of the ids, without blank lines.

    ids (characters,): the whole text, memory-mapped. starts, tabs, ends (N,): the source of line n
    is ids[starts[n] : tabs[n]], its target is ids[tabs[n] + 1 : ends[n]]. last: the id of NEWLINE,
    which the decoder writes last. identity: names the text.
    """

    ids: Ids
    starts: Integers
    tabs: Integers
    ends: Integers
    last: int
    identity: CorpusId

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def source_lengths(self) -> Integers:
        """(N,) the number of characters of each source."""
        return self.tabs - self.starts

    @cached_property
    def target_lengths(self) -> Integers:
        """(N,) the number of characters to predict in each line: its target and the NEWLINE."""
        return self.ends - self.tabs

    @property
    def longest(self) -> int:
        """The smallest block_size that holds every source, and every target with its NEWLINE."""
        return int(max(self.source_lengths.max(), self.target_lengths.max()))

    def characters(self, lines: Integers) -> int:
        """The number of characters to predict in these lines, each line's NEWLINE included."""
        return int(self.target_lengths[lines].sum())

    def place(self, line: int) -> str:
        """A line's number in the user's text, as errors show it: "line 3 of pairs.tsv"."""
        return _place(self.ids, int(self.starts[line]), self.last, self.identity)


def find_pairs(corpus: Corpus) -> Pairs:
    """The pairs of a text that was read with `read_corpus(pairs=True)`.

    Lines end with LF or CR LF; blank lines are ignored. Raises TextError with the first line that
    is no pair.
    """
    ids, identity = corpus.ids, corpus.identity
    tab, newline, cr = map(corpus.vocabulary.id_of, (TAB, NEWLINE, RETURN))
    for character, name in ((TAB, "TAB"), (NEWLINE, "NEWLINE")):
        if character in identity.folded:
            raise TextError(
                f"{name} is among the rare characters that are replaced, but pairs need it; lower "
                "`min_count`"
            )
    every_tab, newlines = positions_of(ids, tab), positions_of(ids, newline)
    starts = np.concatenate([[0], newlines + 1])
    ends = np.concatenate([newlines, [len(ids)]])
    ends = ends - ((ends > starts) & (ids[np.maximum(ends - 1, 0)] == cr))
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    before = np.searchsorted(every_tab, starts)  # TABs before each line
    count = np.searchsorted(every_tab, ends) - before
    tabs = np.append(every_tab, len(ids))[before]
    bad = (count != 1) | (tabs == starts) | (tabs + 1 == ends)
    if bad.any():
        line = int(np.argmax(bad))
        start, end = int(starts[line]), int(ends[line])
        shown = corpus.vocabulary.decode(ids[start : min(end, start + QUOTED + 1)])
        problem = no_pair(int(count[line]), bool(tabs[line] > start), shown)
        raise TextError(f"{_place(ids, start, newline, identity)} {problem}")
    if not len(starts):
        raise TextError(f"{_names(identity)} has only blank lines; {LINE_FORMAT}")
    if newline < 0:
        raise TextError(f"{_names(identity)} has no NEWLINE; end each line with one")
    return Pairs(ids, starts, tabs, ends, newline, identity)


def learn_sides(corpus: Corpus, known: Vocabulary | None = None) -> Corpus:
    """The corpus with `unread` and `unwritten` in its vocabulary: the symbols that occur only in
    targets, or only in sources, of the training and the validation text. known: the vocabulary of
    the model that the training starts with, which has learned to read and to write more symbols.
    """
    vocabulary = replace(corpus.vocabulary, unread=(), unwritten=())
    tab, newline = map(vocabulary.id_of, (TAB, NEWLINE))
    stands, mark = np.zeros((2, len(vocabulary)), np.bool_), np.array([newline])
    for first in range(0, len(corpus.ids), SEARCHED_AT_ONCE):
        ids = np.concatenate((mark, corpus.ids[first : first + SEARCHED_AT_ONCE]))
        of_sources = in_sources(ids, tab, newline)
        for side, of_side in enumerate((of_sources, ~of_sources)):
            stands[side, ids[of_side]] = True
        mark = ids[(ids == tab) | (ids == newline)][-1:]
        cache.release_pages(corpus.ids)
    lacking = (known.unread, known.unwritten) if known else ((), ())
    found = []
    for side in (0, 1):
        others = {TAB, NEWLINE} | ({*known.characters} - {*lacking[side]} if known else set())
        symbols = zip(vocabulary.characters, stands[side].tolist(), strict=True)
        found.append(tuple(each for each, there in symbols if not there and each not in others))
    unread, unwritten = found
    return replace(corpus, vocabulary=replace(vocabulary, unread=unread, unwritten=unwritten))


def check_window(pairs: Pairs, block_size: int, remedy: str = "") -> None:
    """Raises TextError with the first line that does not fit a window of block_size.

    remedy: the end of the error, if block_size cannot change.
    """
    sources, targets = pairs.source_lengths, pairs.target_lengths
    needed = np.maximum(sources, targets)
    if (long := needed > block_size).any():
        at = int(np.argmax(long))
        side, has = ("source", sources[at]) if sources[at] > block_size else ("target", targets[at])
        end = " with its NEWLINE" if side == "target" else ""
        remedy = remedy or f"use `block_size={needed.max()}`, or delete long lines"
        raise TextError(
            f"{pairs.place(at)}: its {side}{end} is {has:,} long, the context holds "
            f"{block_size:,}; {remedy}"
        )


def positions_of(ids: Ids, wanted: int) -> Integers:
    """The positions of an id in the text; none if it is negative."""
    found = [np.empty(0, np.int64)]
    for first in range(0, len(ids) * (wanted >= 0), SEARCHED_AT_ONCE):
        found.append(first + np.flatnonzero(ids[first : first + SEARCHED_AT_ONCE] == wanted))
        cache.release_pages(ids)
    return np.concatenate(found)


def _place(ids: Ids, start: int, newline: int, identity: CorpusId) -> str:
    """The number, from 1, of the line that begins at `start`, within its own text."""
    first, text = 0, _names(identity)
    if identity.boundary is not None and start >= identity.boundary:
        first, text = identity.boundary, "the file of `split`"
    number = 1 + len(positions_of(ids[first:start], newline))
    return f"line {number:,} of {text}"


def _names(identity: CorpusId) -> str:
    """The names of the training texts, which are read as one."""
    first, *more = identity.sources
    if len(more) > 1:
        return f"{first} and the {len(more):,} texts after it"
    return " + ".join((first, *more))
