"""Text -> ids on disk -> two splits.

The ids are memory-mapped and named by a hash of the text: an edited file is another corpus, and a
run keeps its own. How a text is read, numbered and divided is encoding.py's, numbering.py's and
division.py's business; where it is kept, cache.py's; what a step sees of it, batches.py's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpt.config import TrainConfig
from gpt.corpus import cache
from gpt.corpus.encode import build_vocabulary, write_ids
from gpt.corpus.sources import Source
from gpt.corpus.split import SHORTEST_IN_CONTEXTS, divide
from gpt.corpus.text import TODAY, Progress, measured, no_progress, pieces_of
from gpt.errors import StorageError, TextError
from gpt.storage.manifest import CorpusId
from gpt.vocabulary import Ids, Vocabulary

COUNTED_AT_ONCE = 2**18  # ids


@dataclass(frozen=True)
class Corpus:
    """An encoded text. ids (characters,) is memory-mapped; notes are worth telling the user.

    The text to train on comes first: up to `boundary`, or, if that is None, up to a share that
    the run's options say. block: characters of the blocks that validate, 0 if they are no blocks.
    folded: how often each character came that another one stands for.
    """

    ids: Ids
    vocabulary: Vocabulary
    identity: CorpusId
    notes: tuple[str, ...] = ()
    boundary: int | None = None
    block: int = 0
    folded: Mapping[str, int] | None = None
    counted: tuple[int, ...] | None = None
    own: bool = False  # whether the vocabulary was made of this text

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """(vocabulary,) how often each character occurs; at least so often, if often."""
        if self.counted is not None:
            return np.array(self.counted, np.int64)
        return character_counts(self.ids, len(self.vocabulary))

    def parts(self, val_fraction: float) -> tuple[Ids, Ids]:
        """What to train on and what to validate on: the last val_fraction of the characters, or
        what was set apart when the text was encoded. Either may be too short for anything.
        """
        boundary = self.boundary
        if boundary is None:
            boundary = int(len(self.ids) * (1 - val_fraction))
        return self.ids[:boundary], self.ids[boundary:]

    def longest_context(self, val_fraction: float) -> int:
        """Characters of the largest block_size that `split` takes; 0 if there is none."""
        longest = max(0, min(map(len, self.parts(val_fraction))) - 1)
        return min(longest, self.block // SHORTEST_IN_CONTEXTS) if self.block else longest

    def split(self, val_fraction: float, block_size: int) -> tuple[Ids, Ids]:
        """As `parts`. Raises TextError when either holds less than one window of block_size + 1,
        or when blocks are hardly longer than a window.
        """
        train, val = self.parts(val_fraction)
        fits = self.longest_context(val_fraction)
        remedy = (
            f"use --block-size {fits}"
            if fits >= 1
            else "even --block-size 1 needs two characters in each split; use more text"
        )
        for name, part in (("training", train), ("validation", val)):
            if len(part) < block_size + 1:
                raise TextError(
                    f"the {name} split has {len(part)} characters, needs {block_size + 1}; {remedy}"
                )
        if block_size > fits:
            raise TextError(
                f"--split every:N: blocks of {self.block} characters are too short beside a "
                f"context of {block_size}; {remedy}, or --split last"
            )
        return train, val


def encode(
    sources: Sequence[Source],
    data: Path,
    known: Vocabulary | None = None,
    config: TrainConfig | None = None,
    validation: Sequence[Source] = (),
    progress: Progress = no_progress,
    algorithm: str = TODAY,
) -> Corpus:
    """Encodes the texts, one after the other, into `data`; or finds them there.

    By their own vocabulary, or by a known one that has all of their characters. `config` says what
    separates them, what validates and what is folded; `validation`: texts that validate;
    `algorithm`: what the text is named by.

    Raises TextError (unreadable, empty, not UTF-8) and StorageError.
    """
    config, every = config or TrainConfig(), [*sources, *validation]
    known_by = cache.fingerprint(every, len(sources), config, algorithm)
    if known_by and (found := cache.recall(data, known_by)):
        corpus = _open(cache.ids_path(data, _identity(found, 0, sources), config), sources)
        if corpus is not None and _is_by(corpus, known):
            return corpus
    notes: list[str] = []
    pieces = pieces_of(every, config.between, notes)
    if not pieces:
        raise TextError(f"corpus is empty: {', '.join(source.name for source in sources)}")
    first_half, second_half = (lambda share: progress(share / 2)), (lambda s: progress(0.5 + s / 2))
    text = measured(pieces, algorithm, len(every), len(sources), first_half)
    division = divide(text.starts, len(sources), config.every)
    record: cache.Record = {
        "text": text.digest,
        "boundary": division.boundary,
        "order": division.order,
        "block": division.block,
        "own": known is None,
    }
    path = cache.ids_path(data, _identity(record, 0, sources), config)
    there, corpus = os.path.isfile(path), _open(path, sources)
    damaged = there and corpus is None
    if corpus is None or not _serves(corpus, record, known):
        made = build_vocabulary(text.counts, known, config.min_count, config.replacement)
        record |= {
            "characters": made.vocabulary.characters,
            "counts": made.counts.tolist(),
            "folded": made.folded,
        }
        with cache.replacing(path, record) as draft:
            record["parts"] = write_ids(pieces, text, made.table, division, draft, second_half)
        corpus = _open(path, sources)
        if corpus is None:
            raise StorageError(f"{path} is not what was written; check the disk")
    progress(1.0)
    if len(corpus.vocabulary) == 1:
        notes.append("the corpus has one distinct character: there is nothing to predict")
    if known_by and known_by == cache.fingerprint(every, len(sources), config, algorithm):
        cache.remember(path, known_by, notes)
    if damaged:
        notes.append(f"{path} was damaged and has been made again")
    return replace(corpus, notes=tuple(notes))


def _serves(corpus: Corpus, record: cache.Record, known: Vocabulary | None) -> bool:
    """Whether an encoding is of this text, divided so, and by the vocabulary that is asked for."""
    its = corpus.identity
    same = (its.digest, its.boundary, its.order) == tuple(
        record[name] for name in ("text", "boundary", "order")
    )
    return same and _is_by(corpus, known)


def _is_by(corpus: Corpus, known: Vocabulary | None) -> bool:
    """Whether the ids are those of a known vocabulary, or of the text's own if there is none."""
    return corpus.own if known is None else corpus.vocabulary == known


def reopen(identity: CorpusId, data: Path, config: TrainConfig | None = None) -> Corpus | None:
    """The encoded text of an earlier run, or None if `data` no longer holds it whole."""
    corpus = _open(cache.ids_path(data, identity, config or TrainConfig()), ())
    if corpus is None or replace(corpus.identity, sources=identity.sources) != identity:
        return None
    return replace(corpus, identity=identity, notes=())


def _open(path: Path, sources: Sequence[Source]) -> Corpus | None:
    """What the cache has there, as read from these sources."""
    found = cache.read(path)
    if found is None:
        return None
    ids, record = found
    counted = record.get("counts")
    return Corpus(
        ids,
        Vocabulary(record["characters"]),
        _identity(record, len(ids), sources),
        notes=tuple(record.get("notes", ())),
        own=record.get("own", False),
        boundary=record.get("boundary"),
        block=record.get("block", 0),
        folded=record.get("folded") or {},
        counted=None if counted is None else tuple(counted),
    )


def _identity(record: cache.Record, characters: int, sources: Sequence[Source]) -> CorpusId:
    """What a record says of its text; one of an earlier release says less."""
    folded = record.get("folded") or {}
    return CorpusId(
        digest=record["text"],
        characters=characters,
        sources=tuple(source.name for source in sources),
        boundary=record.get("boundary"),
        order=record.get("order", ""),
        folded="".join(sorted(folded)),
        folded_count=sum(folded.values()),
    )


def character_counts(ids: Ids, vocab_size: int) -> npt.NDArray[np.int64]:
    """(vocab_size,) how often each character occurs."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for first in range(0, len(ids), COUNTED_AT_ONCE):
        part = ids[first : first + COUNTED_AT_ONCE]
        counts += np.bincount(part, minlength=vocab_size)
        cache.forget(ids)
    return counts
