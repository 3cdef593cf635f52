"""Pairs to train on. Chooses the lines to validate on (by source, the last ones, every Nth, or a
file's), makes padded batches, and draws the lines of a step, a pure function of seed and step.

Lines of similar lengths share a batch, so that little of it is padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus import cache
from gpt.corpus.batches import EPOCH, philox
from gpt.corpus.corpus import Corpus
from gpt.corpus.pairs import Integers, Pairs, check_window, find_pairs, positions_of
from gpt.corpus.tables import SAMPLED, are_features
from gpt.errors import TextError
from gpt.vocabulary import SPACE, Ids

HASHED_AT_ONCE = 2**16  # lines
BASE = np.uint64(0x9E3779B97F4A7C15)  # base of the polynomial in `_hashes`; odd

Hashes = npt.NDArray[np.uint64]


def split_pairs(
    corpus: Corpus, config: TrainConfig, block_size: int = 0
) -> tuple[PairLines, PairLines]:
    """The lines to train on, and those to validate on, both in their order.

    source: a hash of the source chooses a share val_fraction of all sources; all lines with one
    source are on one side, whatever other lines the text has. group:1: the same for lemmas, the
    first column of a table. last: the last lines, about a share val_fraction; the lines next to the
    border share no source and no target across it. every:N: every Nth line. A file: its lines.
    Raises TextError for a line that is no pair, an empty split and, with a block_size, a line that
    is longer.
    """
    pairs = find_pairs(corpus)
    if block_size:
        check_window(pairs, block_size)
    count, remedy = len(pairs), "use another `split`, or more lines"
    if config.validation is not None:
        boundary = corpus.identity.boundary
        validates = pairs.starts >= (len(corpus.ids) if boundary is None else boundary)
    elif config.every:
        validates = np.arange(1, count + 1) % config.every == 0
        remedy = f"use every:{count} or less" if count > 1 else remedy
    elif config.split == "source":
        validates = _by_hash(pairs, pairs.source_lengths, corpus, config.val_fraction)
    elif config.split == "group:1":
        validates = _by_hash(pairs, _lemma_lengths(pairs, corpus), corpus, config.val_fraction)
    else:
        validates = np.arange(count) >= _border(pairs, corpus, config.val_fraction)
    for chosen, what in ((~validates, "train"), (validates, "validate")):
        if not chosen.any():
            raise TextError(
                f"`split='{config.split}'`: none of {count:,} lines would {what}; {remedy}"
            )
    train, val = (PairLines(pairs, np.flatnonzero(each)) for each in (~validates, validates))
    return train, val


def _by_hash(
    pairs: Pairs, lengths: Integers, corpus: Corpus, share: float
) -> npt.NDArray[np.bool_]:
    """(N,) whether a line is used for validation, by the first `lengths` characters of its source.
    If these differ, each side has at least one line.
    """
    hashes = _hashes(pairs.starts, lengths, corpus)
    validates = hashes < np.uint64(int(share * 2**64))
    if not validates.any():
        validates = hashes == hashes.min()
    return hashes != hashes.max() if validates.all() else validates


def _lemma_lengths(pairs: Pairs, corpus: Corpus) -> Integers:
    """(N,) the length of each line's first column: of its lemma, up to the last space before the
    features, if the sources end with features; else of the source.
    """
    vocabulary = corpus.vocabulary
    if "source" in vocabulary.spaced:  # the features are the last symbol
        begins = ends = pairs.tabs - 1
    else:
        spaces = np.append(-1, positions_of(corpus.ids, vocabulary.id_of(SPACE)))
        ends = spaces[np.searchsorted(spaces, pairs.tabs) - 1]  # where the lemmas end
        begins = ends + 1  # where the features begin
    joined = ends > pairs.starts
    lines = joined.nonzero()[0]
    some = lines[:: max(1, len(lines) // SAMPLED)].tolist()
    features = [vocabulary.decode(corpus.ids[begins[n] : pairs.tabs[n]]) for n in some]
    return np.where(joined & are_features(features), ends - pairs.starts, pairs.source_lengths)


def _border(pairs: Pairs, corpus: Corpus, share: float) -> int:
    """The first of the last lines, where both source and target change; N if there is none."""
    sources = _hashes(pairs.starts, pairs.source_lengths, corpus)
    targets = _hashes(pairs.tabs + 1, pairs.target_lengths - 1, corpus)
    changes = (sources[1:] != sources[:-1]) & (targets[1:] != targets[:-1])
    borders = 1 + np.flatnonzero(changes)
    if not len(borders):
        return len(pairs)
    return int(borders[np.argmin(np.abs(borders - len(pairs) * (1 - share)))])


def _hashes(starts: Integers, lengths: Integers, corpus: Corpus) -> Hashes:
    """(N,) hashes of texts that begin at `starts` and have `lengths` of 1 or more. They depend on
    the characters or symbols, not on their ids.

    A polynomial of mixed code points modulo 2^64 (Karp & Rabin 1987), mixed once more.
    """
    values = _mixed(np.array([*map(_number, corpus.vocabulary.characters)], np.uint64))
    powers = np.cumprod(np.full(lengths.max(), BASE))
    hashes = np.empty(len(starts), np.uint64)
    for first in range(0, len(starts), HASHED_AT_ONCE):
        part = slice(first, first + HASHED_AT_ONCE)
        ends = np.cumsum(lengths[part])
        begins = ends - lengths[part]
        places = np.arange(ends[-1]) - np.repeat(begins, lengths[part])  # within a text
        ids = corpus.ids[np.repeat(starts[part], lengths[part]) + places]
        hashes[part] = np.add.reduceat(values[ids] * powers[places], begins)
        cache.release_pages(corpus.ids)
    return _mixed(hashes)


def _number(symbol: str) -> int:
    """A number for a symbol: the code point of a character, else a digest."""
    if len(symbol) == 1:
        return ord(symbol)
    return int.from_bytes(blake3(symbol.encode()).digest(length=8), "little")


def _mixed(numbers: Hashes) -> Hashes:
    """Spreads 64-bit numbers evenly; a bijection (SplitMix64, Steele et al. 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


IGNORED = -100  # the target of padding: torch's cross_entropy leaves it out
POOLED = 64  # batches whose lines are sorted by length together


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs in rows, padded on the right with NEWLINE, which attention and loss must ignore.

    source (B, S) ids; seen (B, S): True where `source` is no padding; inputs (B, T): TAB target;
    targets (B, T): target NEWLINE, then IGNORED.
    """

    source: Integers
    seen: npt.NDArray[np.bool_]
    inputs: Integers
    targets: Integers


@dataclass(frozen=True, eq=False)
class PairLines:
    """Some lines of pairs, given by number: one half of a split."""

    pairs: Pairs
    lines: Integers

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def characters(self) -> int:
        """Target characters to predict, the NEWLINE of each line included."""
        return self.pairs.characters(self.lines)

    def targets(self) -> Ids:
        """(characters,) the ids of all targets, each with its NEWLINE."""
        return self._joined(self.pairs.tabs[self.lines] + 1, self.pairs.ends[self.lines])

    def text(self, most: int | None = None) -> Ids:
        """The ids of the first `most` lines, or of all lines, each as source TAB target NEWLINE."""
        lines = self.lines[:most]
        return self._joined(self.pairs.starts[lines], self.pairs.ends[lines])

    def _joined(self, starts: Integers, ends: Integers) -> Ids:
        """The texts between `starts` and `ends`, joined, each with its NEWLINE."""
        lengths = ends - starts + 1
        after = lengths.cumsum()
        places = np.repeat(ends + 1 - after, lengths) + np.arange(lengths.sum())
        ids: Ids = self.pairs.ids[np.minimum(places, len(self.pairs.ids) - 1)]
        ids[after - 1] = self.pairs.last  # in the text, it may be CR or the end
        return ids


def pad_pairs(pairs: Pairs, lines: Integers) -> Batch:
    """The (B,) lines as a batch. S: the longest source; T: the longest target and its NEWLINE."""
    sources, seen = _rows(pairs.ids, pairs.starts[lines], pairs.source_lengths[lines], pairs.last)
    inputs, read = _rows(pairs.ids, pairs.tabs[lines], pairs.target_lengths[lines], pairs.last)
    targets = np.full_like(inputs, pairs.last)  # (B, T)
    targets[:, :-1] = inputs[:, 1:]  # after each target comes padding, which is NEWLINE
    targets[~read] = IGNORED
    cache.release_pages(pairs.ids)
    return Batch(sources, seen, inputs, targets)


def _rows(
    ids: Ids, starts: Integers, lengths: Integers, padding: int
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """(B, longest) ids from each start on, and a mask that is False for padding."""
    places = np.arange(lengths.max(initial=0))
    real = places < lengths[:, None]  # (B, longest)
    rows = ids[np.where(real, starts[:, None] + places, 0)].astype(np.int64)  # (B, longest)
    return np.where(real, rows, padding), real


def batch_lines(half: PairLines, seed: int, step: int, batch_size: int) -> Integers:
    """(batch_size,) the line numbers of a step's batch; pure in (seed, step).

    Each epoch has every line once, in a new random order of batches. The batch at the end of an
    epoch is filled with lines of the next one. Give the same object `half` at each step: the order
    of its epoch is computed once.
    """
    numbers = step * batch_size + np.arange(batch_size)
    epochs = numbers // len(half)
    chosen = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs).tolist():
        now = epochs == epoch
        order = _epoch(half, seed, epoch, batch_size)
        chosen[now] = order[numbers[now] % len(half)]
    return chosen


@lru_cache(maxsize=2)
def _epoch(half: PairLines, seed: int, epoch: int, batch_size: int) -> Integers:
    """(lines,) the line numbers of an epoch in their order.

    Lines are shuffled; the first ones fill the last batch of the epoch before. The others form
    pools of POOLED batches; each pool is sorted by length and cut into batches, which are shuffled.
    Target lengths rise; source lengths rise and fall in turn, so that neighbours differ little in
    both.
    """
    pairs, count = half.pairs, len(half)
    draws = philox(seed, epoch, EPOCH).random_raw(2 * count)
    order = half.lines[draws[:count].argsort(kind="stable")]
    head = min(count, -epoch * count % batch_size)
    batches = (count - head) // batch_size
    body = order[head : head + batches * batch_size]  # order[head + …:] begins the next batch
    pools = np.arange(len(body)) // (POOLED * batch_size)
    sources, targets = pairs.source_lengths[body], pairs.target_lengths[body]
    ranks = np.lexsort((np.where(targets % 2, sources, -sources), targets, pools))
    rows = body[ranks].reshape(batches, batch_size)
    order[head : head + len(body)] = rows[draws[count:][:batches].argsort(kind="stable")].ravel()
    return order
