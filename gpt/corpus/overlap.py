"""Finds how much of a text a run has learned: the share of it that is in the texts that the run was
trained on, in a time that depends on the length of those texts only.

Compares ids. reading/novelty.py finds the longest copy exactly, but hashes the whole training text
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus import cache
from gpt.corpus.corpus import reopen_corpus
from gpt.storage.manifest import Manifest, TrainedText
from gpt.vocabulary import Ids, Vocabulary

SHORTEST = 100  # fewest characters of a copied passage; from 2 * BLOCK − 1 on it has a whole block
BLOCK = 48  # characters; a multiple of 8, so that a block's bytes are whole words
PIECES, LONGEST = 16, 4096  # a longer text is searched for this many pieces of this length
AT_ONCE = 2**18 // BLOCK * BLOCK  # ids
TABLE_BITS = 22
#: Limits for a text that repeats itself: likely blocks, comparisons in all, and at one start.
MOST, MOST_COMPARED, AT_START = 2**21, 2**13, 2**8

#: Texts that a run has learned, each as its vocabulary and ids.
Learned: TypeAlias = Sequence[tuple[Vocabulary, Ids]]
Hashes = npt.NDArray[np.uint64]


def is_whole_text(text: str, of: Iterable[TrainedText]) -> bool:
    """Whether a whole text is one of those that a run was trained and validated on."""
    digest = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()
    return digest in {each.digest for each in of}


def learned_texts(manifest: Manifest, data: Path) -> Learned:
    """The texts in `data` on which a run was trained, and those on which its parent runs were
    trained, whose weights it started with: each as its vocabulary and ids.
    """
    learned = []
    for each in manifest.parent.texts if manifest.parent else ():
        for ids, record in cache.find_encodings(data, each.digest):
            shared = int(len(ids) * (1 - each.val_fraction))
            learned.append((record.vocabulary, ids[: record.identity.boundary or shared]))
    vocabulary = manifest.vocabulary
    corpus = reopen_corpus(manifest.corpus, data, vocabulary)
    if corpus is not None:
        learned.append((vocabulary, corpus.parts(manifest.train.val_fraction)[0]))
    return learned


def share_learned(text: str, learned: Learned) -> float:
    """The largest share of a text's known characters that is in one of these texts."""
    if len(text) < SHORTEST:
        return 0.0
    return max(
        (copied_share(known.encode(text, "skip"), ids) for known, ids in learned), default=0.0
    )


def copied_share(text: Ids, other: Ids, every: int = 1) -> float:
    """The share of a text's characters that lie in passages of SHORTEST or more which the other
    text has, too. every: only each so many-th block of the other text is read, so that passages are
    found for certain if they have `every` blocks.

    Both have the same vocabulary. Compares hashes of the other text's blocks with hashes at every
    position of `text` (Karp & Rabin 1987), then compares the passages themselves. If a text repeats
    itself very often, some passages may be missed.
    """
    if len(text) > PIECES * LONGEST:
        starts = np.linspace(0, len(text) - LONGEST, PIECES).astype(int)
        text = np.concatenate([text[start : start + LONGEST] for start in starts])
    if min(len(text), len(other)) < SHORTEST:
        return 0.0
    text = text.astype(other.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(text, BLOCK)
    hashes = _hashes(windows)
    table = np.zeros(2**TABLE_BITS, bool)
    table[hashes >> np.uint64(64 - TABLE_BITS)] = True
    blocks, places, found = [], [], 0  # blocks of the other text that are likely in `text`
    for first in range(0, len(other), AT_ONCE):
        part = other[first : first + AT_ONCE]
        of_part = _hashes(part[: len(part) // BLOCK * BLOCK].reshape(-1, BLOCK)[::every])
        likely = np.flatnonzero(table[of_part >> np.uint64(64 - TABLE_BITS)])[: MOST - found]
        blocks.append(of_part[likely])
        places.append(first + likely * every * BLOCK)
        found += len(likely)
        cache.release_pages(other)
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
