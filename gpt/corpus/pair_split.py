"""Chooses the lines of pairs that validate: by source, the last ones, every Nth, or a file's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.config import TrainConfig
from gpt.corpus import cache
from gpt.corpus.corpus import Corpus
from gpt.corpus.pairs import Integers, Pairs
from gpt.errors import TextError
from gpt.vocabulary import code_points

HASHED_AT_ONCE = 2**16  # lines
BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial in `_hashes`; odd

Hashes = npt.NDArray[np.uint64]


def split_lines(pairs: Pairs, corpus: Corpus, config: TrainConfig) -> tuple[Integers, Integers]:
    """The numbers of the lines to train on, and of those to validate on, both ascending.

    source: a hash of the source chooses a share val_fraction of all sources; lines with the same
    source are on one side, also in a text with other lines. last: the last lines, about a share
    val_fraction; no source or target has lines on both sides of the border next to one another.
    every:N: every Nth line. A file: its lines. Raises TextError if no line trains or validates.
    """
    count, remedy = len(pairs), "use another `split`, or more lines"
    if config.validation is not None:
        boundary = corpus.identity.boundary
        validates = pairs.starts >= (len(corpus.ids) if boundary is None else boundary)
    elif config.every:
        validates = np.arange(1, count + 1) % config.every == 0
        remedy = f"use every:{count} or less" if count > 1 else remedy
    elif config.split == "source":
        validates = _by_source(pairs, corpus, config.val_fraction)
    else:
        validates = np.arange(count) >= _border(pairs, corpus, config.val_fraction)
    for chosen, what in ((~validates, "train"), (validates, "validate")):
        if not chosen.any():
            raise TextError(
                f"`split='{config.split}'`: none of {count:,} lines would {what}; {remedy}"
            )
    return np.flatnonzero(~validates), np.flatnonzero(validates)


def _by_source(pairs: Pairs, corpus: Corpus, share: float) -> npt.NDArray[np.bool_]:
    """(N,) whether a line validates; with two sources or more, at least one is on each side."""
    hashes = _hashes(pairs.starts, pairs.source_lengths, corpus)
    validates = hashes < np.uint64(int(share * 2**64))
    if not validates.any():
        validates = hashes == hashes.min()
    return hashes != hashes.max() if validates.all() else validates


def _border(pairs: Pairs, corpus: Corpus, share: float) -> int:
    """The first of the last lines: where both source and target change, closest to `share`; N if
    they never do.
    """
    sources = _hashes(pairs.starts, pairs.source_lengths, corpus)
    targets = _hashes(pairs.tabs + 1, pairs.target_lengths - 1, corpus)
    changes = (sources[1:] != sources[:-1]) & (targets[1:] != targets[:-1])
    borders = 1 + np.flatnonzero(changes)
    if not len(borders):
        return len(pairs)
    return int(borders[np.argmin(np.abs(borders - len(pairs) * (1 - share)))])


def _hashes(starts: Integers, lengths: Integers, corpus: Corpus) -> Hashes:
    """(N,) hashes of texts that begin at `starts`; their lengths are 1 or more. They depend on the
    characters, not on the vocabulary.

    A polynomial of mixed code points modulo 2^64 (Karp & Rabin 1987), mixed again.
    """
    values = _mixed(code_points(corpus.vocabulary.characters).astype(np.uint64))
    powers = np.cumprod(np.full(lengths.max(), BASE))
    hashes = np.empty(len(starts), np.uint64)
    for first in range(0, len(starts), HASHED_AT_ONCE):
        part = slice(first, first + HASHED_AT_ONCE)
        ends = np.cumsum(lengths[part])
        begins = ends - lengths[part]
        places = np.arange(ends[-1]) - np.repeat(begins, lengths[part])  # in its own text
        ids = corpus.ids[np.repeat(starts[part], lengths[part]) + places]
        hashes[part] = np.add.reduceat(values[ids] * powers[places], begins)
        cache.forget(corpus.ids)
    return _mixed(hashes)


def _mixed(numbers: Hashes) -> Hashes:
    """Spreads 64-bit numbers evenly, one to one (SplitMix64, Steele et al. 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
