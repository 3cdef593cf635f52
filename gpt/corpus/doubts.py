"""Reasons to doubt a loss: the text stands in a training text, or the validation text is of another
kind than the rest.

Compares ids, in a time that depends on the length of the training text only. reading/novelty.py
finds the longest copy exactly, but hashes the whole training text first.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus, find_encodings, release_pages, reopen_corpus
from gpt.corpus.formats import separator_of
from gpt.storage.manifest import Doubts, Manifest
from gpt.vocabulary import Ids, Vocabulary

#: Share of the validation text that may stand in the training text, unsaid; manuals and programs
#: repeat .06 to .08 of themselves, prose nothing (benchmarks/LOG.md).
MOST_COPIED = 0.1
#: Nats that the last tenth may lie above the worst other one, unsaid; in prose and lists it is
#: below .1, for a licence or another author .26 and more (benchmarks/LOG.md).
MOST_UNLIKE = 0.2
MOST_SEARCHED = 2**22  # ids of the training text; of a longer one, evenly distributed blocks
MOST_LINES = 2**20  # characters of a list whose lines are compared
PLACES = 32  # pieces of a longer text
TENTHS, ORDER = 10, 4
SCORED = 2 * 10**5  # characters that are scored, in IN_TENTH pieces of each tenth
IN_TENTH = 4
FEWEST_SCORED = 2 * 10**4  # in fewer characters, tenths differ by chance
BACK_OFF = 5.0  # characters that a shorter history weighs as much as

SHORTEST = 100  # fewest characters of a copied passage; from 2 * BLOCK − 1 on it has a whole block
BLOCK = 48  # characters; a multiple of 8, so that a block's bytes are whole words
PIECES, LONGEST = 16, 4096  # a longer text is searched for this many pieces of this length
AT_ONCE = 2**18 // BLOCK * BLOCK  # ids
TABLE_BITS = 22
#: Limits for a text that repeats itself: likely blocks, comparisons in all (also the ids of the
#: validation text that are searched for), and at one start.
MOST, MOST_COMPARED, AT_START = 2**21, 2**13, 2**8

Hashes = npt.NDArray[np.uint64]


def share_learned(text: str, run: str, manifest: Manifest, data: Path) -> float:
    """How much of a text the run named `run`, or a parent run, was trained on: 1 for one of their
    whole texts; else the largest share of its known characters that is in a text of theirs in the
    folder `data`.
    """
    digest = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()
    if digest in {learned.digest for learned in manifest.trained_texts(run)}:
        return 1.0
    learned = list[tuple[Vocabulary, Ids]]()
    for parent in manifest.parent.texts if manifest.parent else ():
        for corpus in find_encodings(data, parent.digest):
            learned.append((corpus.vocabulary, corpus.parts(parent.val_fraction)[0]))
    if own := reopen_corpus(manifest.corpus, data, manifest.vocabulary):
        learned.append((own.vocabulary, own.parts(manifest.train.val_fraction)[0]))
    return max((copied_share(known.encode(text, "skip"), ids) for known, ids in learned), default=0)


def copied_share(text: Ids, other: Ids, every: int = 1) -> float:
    """The share of a text's characters that lie in passages of SHORTEST or more which the other
    text, in the same vocabulary, has, too. every: only so many-th blocks of the other are read.

    Compares hashes of the other text's blocks with hashes at every position of `text` (Karp & Rabin
    1987), then the passages themselves. If a text repeats itself very often, some may be missed.
    """
    text = _sample(text, PIECES * LONGEST, PIECES)
    if min(len(text), len(other)) < SHORTEST:
        return 0.0
    text = text.astype(other.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(text, BLOCK)
    hashes = _hashes(windows)
    table = np.zeros(2**TABLE_BITS, bool)
    table[hashes >> np.uint64(64 - TABLE_BITS)] = True
    blocks, places, count = [], [], 0  # blocks of the other text that are likely in `text`
    for first in range(0, len(other), AT_ONCE):
        part = other[first : first + AT_ONCE]
        of_part = _hashes(part[: len(part) // BLOCK * BLOCK].reshape(-1, BLOCK)[::every])
        likely = np.flatnonzero(table[of_part >> np.uint64(64 - TABLE_BITS)])[: MOST - count]
        blocks.append(of_part[likely])
        places.append(first + likely * every * BLOCK)
        count += len(likely)
        release_pages(other)
    order = np.concatenate(blocks).argsort(kind="stable")
    block, place = np.concatenate(blocks)[order], np.concatenate(places)[order]
    lower, upper = (np.searchsorted(block, hashes, side) for side in ("left", "right"))
    covered, end, left = 0, 0, MOST_COMPARED  # end: where the last passage ends
    for start in np.flatnonzero(lower < upper).tolist():
        if start + BLOCK <= end:
            continue
        longest = (0, 0)  # the length of the longest match: the part before `start`, and all of it
        for at in place[lower[start] : upper[start]][: min(left, AT_START)].tolist():
            left -= 1
            after = _common(text[start:], other[at : at + len(text)])
            before = _common(text[:start][::-1], other[max(0, at - start) : at][::-1])
            longest = max(longest, (before, before + after), key=lambda run: run[1])
        if longest[1] >= SHORTEST:
            begin = start - longest[0]
            covered += begin + longest[1] - max(end, begin)
            end = begin + longest[1]
    return covered / len(text)


def _hashes(blocks: Ids) -> Hashes:
    """(N, BLOCK) ids -> (N,) hashes."""
    words = np.ascontiguousarray(blocks).view(np.uint64)
    hashes = np.zeros(len(words), np.uint64)
    for column in words.T:
        hashes = (hashes ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _common(first: Ids, second: Ids) -> int:
    """The number of equal ids at the start of both."""
    shorter = min(len(first), len(second))
    unlike = first[:shorter] != second[:shorter]
    return int(unlike.argmax()) if unlike.any() else shorter


def doubts(corpus: Corpus, train: TrainConfig) -> Doubts:
    """The reasons to doubt the loss on the validation split of this corpus."""
    before, val = corpus.parts(train.val_fraction)
    share = copied(before, val, corpus.vocabulary)
    nats = 0.0  # by which the loss of 4-gram counting on the last tenth lies above the worst other
    if train.split == "last" and len(corpus.ids) >= FEWEST_SCORED:
        losses = losses_of_tenths(corpus.ids, len(corpus.vocabulary))
        nats = float(losses[-1] - losses[:-1].max())
    return Doubts(
        copied=share if share > MOST_COPIED else 0.0, unlike=nats if nats > MOST_UNLIKE else 0.0
    )


def copied(train: Ids, val: Ids, vocabulary: Vocabulary) -> float:
    """The share of the validation text that stands in the training text: passages; in a list with
    one item a line, whole lines.
    """
    start = vocabulary.decode(val[: 2**14])
    if separator_of(start) == "\n":
        parts = (_sample(part, MOST_LINES) for part in (train, val))
        known, lines = (vocabulary.decode(part).split("\n") for part in parts)
        distinct, lines = {*known}, [line for line in lines if line]
        return sum(line in distinct for line in lines) / max(1, len(lines))
    return copied_share(_sample(val, MOST_COMPARED), train, max(1, len(train) // MOST_SEARCHED))


def _sample(ids: Ids, most: int, pieces: int = PLACES) -> Ids:
    """At most so many ids, in evenly distributed pieces."""
    if len(ids) <= most:
        return ids
    length = most // pieces
    starts = np.linspace(0, len(ids) - length, pieces).astype(int)
    return np.concatenate([ids[start : start + length] for start in starts])


def losses_of_tenths(ids: Ids, vocab_size: int) -> npt.NDArray[np.float64]:
    """(10,) the loss on each tenth of a text (evenly distributed pieces of a long one), in nats per
    character, of n-grams that are counted in the other nine.

    Each order is mixed with the one below it as if that had been seen BACK_OFF times (MacKay and
    Peto 1995).
    """
    length = min(SCORED, len(ids)) // (TENTHS * IN_TENTH)
    starts = np.linspace(0, len(ids) - length, TENTHS * IN_TENTH).astype(int)
    pieces = ids[starts[:, None] + np.arange(length)].astype(np.int64)  # (40, length)
    grams = np.lib.stride_tricks.sliding_window_view(pieces, ORDER, axis=1).reshape(-1, ORDER)
    tenth = np.arange(TENTHS).repeat(len(grams) // TENTHS)
    *before, target = grams.T
    history, chance = np.zeros_like(target), np.full(len(target), 1.0 / vocab_size)
    for character in (*reversed(before), None):
        history, times = _counted_elsewhere(history, tenth)
        _, times_together = _counted_elsewhere(history * vocab_size + target, tenth)
        chance = (times_together + BACK_OFF * chance) / (times + BACK_OFF)
        if character is not None:
            history = history * vocab_size + character
    losses = -np.log(chance).reshape(TENTHS, -1).mean(axis=1)
    return np.asarray(losses, np.float64)


def _counted_elsewhere(
    codes: npt.NDArray[np.int64], tenth: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(n,) numbers of the distinct codes, and how often each code occurs in the other tenths."""
    distinct, numbers = np.unique(codes, return_inverse=True)
    cells = numbers * TENTHS + tenth
    own = np.bincount(cells, minlength=len(distinct) * TENTHS)
    total = own.reshape(-1, TENTHS).sum(axis=1)
    return numbers, total[numbers] - own[cells]
