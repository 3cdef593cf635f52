"""Batches of pairs: padded arrays, and the lines of a step, a pure function of seed and step.

Lines of similar lengths share a batch, so that little of it is padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from gpt.config import TrainConfig
from gpt.corpus import cache
from gpt.corpus.batches import EPOCH, philox
from gpt.corpus.corpus import Corpus
from gpt.corpus.pair_split import split_lines
from gpt.corpus.pairs import Integers, Pairs, check_window, pairs_of
from gpt.vocabulary import Ids

IGNORED = -100  # the target of padding: torch's cross_entropy leaves it out
POOLED = 64  # batches whose lines are sorted by length together


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs in rows, padded on the right with NEWLINE, which neither attention nor loss may read.

    source (B, S) ids; seen (B, S): True where `source` is no padding; inputs (B, T): TAB target;
    targets (B, T): target NEWLINE, then IGNORED.
    """

    source: Integers
    seen: npt.NDArray[np.bool_]
    inputs: Integers
    targets: Integers


@dataclass(frozen=True, eq=False)
class PairLines:
    """Some lines of pairs, by number: a split of them."""

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
        lengths = self.pairs.target_lengths[self.lines]
        ids = _joined(self.pairs.ids, self.pairs.tabs[self.lines] + 1, lengths)
        ids[lengths.cumsum() - 1] = self.pairs.last  # not a CR before it
        return ids

    def text(self, most: int | None = None) -> Ids:
        """The ids of the first `most` lines, or of all: source TAB target NEWLINE each."""
        lines = self.lines[:most]
        starts = self.pairs.starts[lines]
        lengths = self.pairs.ends[lines] - starts
        ids = _joined(self.pairs.ids, starts, lengths + 1)
        ids[(lengths + 1).cumsum() - 1] = self.pairs.last
        return ids


def split_pairs(
    corpus: Corpus, config: TrainConfig, block_size: int = 0
) -> tuple[PairLines, PairLines]:
    """The lines to train on and those to validate on. Raises TextError for a line that is no pair,
    an empty split and, with a block_size, a line that is longer.
    """
    pairs = pairs_of(corpus)
    if block_size:
        check_window(pairs, np.arange(len(pairs)), block_size)
    train, val = split_lines(pairs, corpus, config)
    return PairLines(pairs, train), PairLines(pairs, val)


def _joined(ids: Ids, starts: Integers, lengths: Integers) -> Ids:
    """The texts of these lengths from each start on, one after the other; a text may end one
    character after the last id.
    """
    begins = lengths.cumsum() - lengths
    places = np.repeat(starts - begins, lengths) + np.arange(lengths.sum())
    joined: Ids = ids[np.minimum(places, len(ids) - 1)]
    return joined


def padded(pairs: Pairs, lines: Integers, ignored: int = IGNORED) -> Batch:
    """These (B,) lines as a batch. S: the longest source; T: the longest target and its NEWLINE."""
    sources, seen = _rows(pairs.ids, pairs.starts[lines], pairs.source_lengths[lines], pairs.last)
    inputs, read = _rows(pairs.ids, pairs.tabs[lines], pairs.target_lengths[lines], pairs.last)
    targets = np.full_like(inputs, pairs.last)  # (B, T)
    targets[:, :-1] = inputs[:, 1:]  # after each target comes padding, which is NEWLINE
    targets[~read] = ignored
    cache.forget(pairs.ids)
    return Batch(sources, seen, inputs, targets)


def _rows(
    ids: Ids, starts: Integers, lengths: Integers, padding: int
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """(B, longest) ids from each start on, and where they are no padding."""
    places = np.arange(lengths.max(initial=0))
    real = places < lengths[:, None]  # (B, longest)
    rows = ids[np.where(real, starts[:, None] + places, 0)].astype(np.int64)  # (B, longest)
    return np.where(real, rows, padding), real


def batch_lines(pairs: Pairs, lines: Integers, seed: int, step: int, batch_size: int) -> Integers:
    """(batch_size,) the line numbers of a step's batch; pure in (seed, step).

    Each epoch has every line once, in a new random order of batches. The batch at the end of an
    epoch is filled with lines of the next one. Give the same array `lines` at each step, unchanged:
    the order of its epoch is computed once.
    """
    numbers = step * batch_size + np.arange(batch_size)
    epochs = numbers // len(lines)
    chosen = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs).tolist():
        now = epochs == epoch
        order = _epoch(pairs, _Same(lines), seed, epoch, batch_size)
        chosen[now] = order[numbers[now] % len(lines)]
    return chosen


class _Same:
    """An array as the key of a cache: equal only to the same array, so that it is not read."""

    def __init__(self, array: Integers) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


@lru_cache(maxsize=2)
def _epoch(pairs: Pairs, lines: _Same, seed: int, epoch: int, batch_size: int) -> Integers:
    """(lines,) the line numbers of an epoch in their order.

    Lines are shuffled; the first ones fill the last batch of the epoch before. The others form
    pools of POOLED batches, each sorted by length and cut into batches, which are shuffled. Target
    lengths rise; source lengths rise and fall in turn, so that neighbours differ little in both.
    """
    count = len(lines.array)
    draws = philox(seed, epoch, EPOCH).random_raw(2 * count)
    order = lines.array[draws[:count].argsort(kind="stable")]
    head = min(count, -epoch * count % batch_size)
    batches = (count - head) // batch_size
    body = order[head : head + batches * batch_size]  # order[head + …:] begins the next batch
    pools = np.arange(len(body)) // (POOLED * batch_size)
    sources, targets = pairs.source_lengths[body], pairs.target_lengths[body]
    ranks = np.lexsort((np.where(targets % 2, sources, -sources), targets, pools))
    rows = body[ranks].reshape(batches, batch_size)
    order[head : head + len(body)] = rows[draws[count:][:batches].argsort(kind="stable")].ravel()
    return order
