"""The corpus of a command or a run: finds it, encodes it once and splits it.

Its ids are memory-mapped and named by a hash of the text: an edited file is another corpus, and a
run still uses the corpus it started with. sources.py finds the texts, text.py reads them, encode.py
makes their ids, split.py chooses the validation split, cache.py stores the result, and batches.py
draws a step's windows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from gpt.config import TrainConfig
from gpt.corpus import cache
from gpt.corpus.encode import build_vocabulary, write_ids
from gpt.corpus.sources import Source, discard_spooled, find_sources
from gpt.corpus.split import SHORTEST_IN_CONTEXTS, divide, options_to_read
from gpt.corpus.text import Progress, measured, no_progress, pieces_of
from gpt.errors import StorageError, TextError
from gpt.storage import files
from gpt.storage.manifest import CorpusId, Manifest
from gpt.vocabulary import Ids, Vocabulary

COUNTED_AT_ONCE = 2**18  # ids


@dataclass(frozen=True)
class Corpus:
    """An encoded text. ids (characters,) is memory-mapped; notes are for the user.

    The training split comes first: up to `identity.boundary` or, if that is None, up to a share set
    by the run's options. block: characters of each validation block, 0 if whole texts validate.
    """

    ids: Ids
    vocabulary: Vocabulary
    identity: CorpusId
    notes: tuple[str, ...] = ()
    block: int = 0

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """(vocabulary,) how often each character occurs."""
        return character_counts(self.ids, len(self.vocabulary))

    def parts(self, val_fraction: float) -> tuple[Ids, Ids]:
        """The ids to train on and those to validate on: the last val_fraction of the characters, or
        those that the encoding has put last. Either may be too short for any window.
        """
        boundary = self.identity.boundary
        if boundary is None:
            boundary = int(len(self.ids) * (1 - val_fraction))
        return self.ids[:boundary], self.ids[boundary:]

    def longest_context(self, val_fraction: float) -> int:
        """Characters of the largest block_size that `split` takes; 0 if there is none."""
        longest = max(0, min(map(len, self.parts(val_fraction))) - 1)
        return min(longest, self.block // SHORTEST_IN_CONTEXTS) if self.block else longest

    def split(self, val_fraction: float, block_size: int) -> tuple[Ids, Ids]:
        """As `parts`. Raises TextError if either holds less than one window of block_size + 1, or
        if blocks are too short for such a context.
        """
        train, val = self.parts(val_fraction)
        fits = self.longest_context(val_fraction)
        remedy = (
            f"use `block_size={fits}`"
            if fits >= 1
            else "even `block_size=1` needs two characters in each split; use more text"
        )
        for name, part in (("training", train), ("validation", val)):
            if len(part) < block_size + 1:
                raise TextError(
                    f"the {name} split has {len(part)} characters, needs {block_size + 1}; {remedy}"
                )
        if block_size > fits:
            raise TextError(
                f"`split='every:N'`: blocks of {self.block} characters are too short beside a "
                f"context of {block_size}; {remedy}, or `split='last'`"
            )
        return train, val


def character_counts(ids: Ids, vocab_size: int) -> npt.NDArray[np.int64]:
    """(vocab_size,) how often each character occurs."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for first in range(0, len(ids), COUNTED_AT_ONCE):
        counts += np.bincount(ids[first : first + COUNTED_AT_ONCE], minlength=vocab_size)
        cache.forget(ids)
    return counts


def encode(
    sources: Sequence[Source],
    data: Path,
    known: Vocabulary | None = None,
    config: TrainConfig | None = None,
    validation: Sequence[Source] = (),
    progress: Progress = no_progress,
    grows: bool = False,
) -> Corpus:
    """Encodes the texts, one after the other, into `data`, unless they are encoded there already.

    The vocabulary is built from the texts, or is a known one that has all of their characters, or
    that grows: then their new characters come after the known ones. `config` sets the separator,
    the split and which rare characters are replaced; `validation`: texts that validate; `progress`
    receives the share that is done.

    Raises TextError (unreadable, empty, not UTF-8) and StorageError.
    """
    config, every = config or TrainConfig(), [*sources, *validation]
    names = tuple(source.name for source in sources)
    notes: list[str] = []
    pieces = pieces_of(every, config.between, notes)
    if not pieces:
        piped = "; pipe the text to standard input" * ("-" in names)
        raise TextError(f"corpus is empty: {', '.join(names)}{piped}")
    text = measured(pieces, len(every), len(sources), lambda it: progress(it / 2))
    made = build_vocabulary(text.counts, known, config.min_count, grows)
    division = divide(text.starts, len(sources), config.every)
    identity = CorpusId(
        text.digest,
        text.starts[-1],
        (),
        division.boundary,
        division.order,
        "".join(sorted(made.folded)),
        sum(made.folded.values()),
    )
    characters = made.vocabulary.characters
    record = cache.Record(identity, characters, division.block)
    path = cache.ids_path(data, identity, characters)
    there, stored = os.path.lexists(path), cache.read(path)
    damaged = there and stored is None
    if stored is None or replace(stored[1], parts=()) != record:
        with files.storage_errors(f"write {data}"), files.writing(data):
            parts = write_ids(
                pieces, text.digest, made.table, division, path, lambda it: progress(0.5 + it / 2)
            )
            cache.write_record(path, replace(record, parts=parts))
        stored = cache.read(path)
        if stored is None:
            raise StorageError(f"{path} is not what was written; check the disk")
    progress(1.0)
    if len(characters) == 1:
        notes.append("the corpus has one distinct character: there is nothing to predict")
    if damaged:
        notes.append(f"{path} was damaged and has been made again")
    return replace(_corpus(*stored, names), notes=tuple(notes))


def reopen(identity: CorpusId, data: Path, vocabulary: Vocabulary) -> Corpus | None:
    """The text of an earlier run, encoded with its vocabulary, or None if `data` no longer has all
    of it.
    """
    found = cache.read(cache.ids_path(data, identity, vocabulary.characters))
    if found is None:
        return None
    corpus = _corpus(*found, identity.sources)
    return corpus if (corpus.identity, corpus.vocabulary) == (identity, vocabulary) else None


def _corpus(ids: Ids, record: cache.Record, names: tuple[str, ...]) -> Corpus:
    identity = replace(record.identity, sources=names)
    return Corpus(ids, Vocabulary(record.characters), identity, block=record.block)


def read_corpus(
    names: Sequence[str],
    data: Path,
    stdin: BinaryIO,
    known: Vocabulary | None = None,
    config: TrainConfig | None = None,
    progress: Progress = no_progress,
    pairs: bool = False,
    grows: bool = False,
) -> Corpus:
    """Finds and encodes the texts, and the validation text if `config` names one; see `encode`.

    pairs: for `pairs_of`. Raises TextError, StorageError.
    """
    config = options_to_read(config or TrainConfig(), pairs)
    files.sweep(data)
    sources = find_sources(names, data, stdin)
    validation: list[Source] = []
    try:
        if config.validation is not None:
            try:
                validation = find_sources([config.validation], data, stdin)
            except TextError as error:
                kinds = "last, every:N or a file" + ", of pairs also source" * pairs
                raise TextError(f"`split` takes {kinds}; {error}") from None
        corpus = encode(sources, data, known, config, validation, progress, grows)
        of_folders = (source.note for source in [*sources, *validation] if source.note)
        of_lines = () if pairs else _line_notes(corpus)
        notes = (*corpus.notes, *of_folders, *_twice(sources, validation), *of_lines)
        return replace(corpus, notes=notes)
    finally:
        discard_spooled([*sources, *validation])


def _twice(sources: Sequence[Source], validation: Sequence[Source]) -> Iterator[str]:
    """Notes for the user on files that are given more than once."""
    seen: set[Path] = set()
    for source in sources:
        if (place := source.path.resolve()) in seen and not source.spooled:
            yield f"{source.name} is read twice"
        seen.add(place)
    for source in validation:
        if source.path.resolve() in seen:
            yield f"{source.name} trains and validates: its loss says nothing of new texts"


def _line_notes(corpus: Corpus) -> Iterator[str]:
    """Notes for the user on a text whose lines end with CR LF, or are pairs."""
    ids, counts = corpus.ids, corpus.counts
    tab, newline, cr = (corpus.vocabulary.characters.find(sign) for sign in "\t\n\r")
    if cr >= 0 and counts[cr]:
        yield (
            f"the text has {counts[cr]:,} carriage returns, as in files of Windows, and samples "
            "will have them, too; remove them: tr -d '\\r' < FILE > NEW"
        )
    if min(tab, newline) < 0 or counts[tab] < 2 or abs(counts[tab] - counts[newline]) > 1:
        return
    last = newline
    for first in range(0, len(ids), COUNTED_AT_ONCE):
        part = ids[first : first + COUNTED_AT_ONCE]
        signs = np.concatenate(([last], part[(part == tab) | (part == newline)]))
        if (signs[1:] == signs[:-1]).any():
            return
        last = signs[-1]
    yield "each line has one TAB; to train on pairs, SOURCE TAB TARGET, rename the file to *.tsv"


def find_corpus(
    manifest: Manifest,
    names: Sequence[str],
    data: Path,
    stdin: BinaryIO,
    progress: Progress = no_progress,
    remedy: str = "",
    pairs: bool = False,
) -> Corpus:
    """The text that a run was trained on: its encoding in `data`, or read again from its sources.

    remedy: the end of the error for a changed text. pairs: for `pairs_of`. Raises TextError if it
    has changed or cannot be found.
    """
    identity, known, config = manifest.corpus, Vocabulary(manifest.characters), manifest.train
    if not names:
        corpus = reopen(identity, data, known)
        if corpus is not None:
            return corpus
        if "-" in identity.sources:
            raise TextError(f"the corpus came through a pipe and is no longer in {data}")
    names = names or identity.sources
    corpus = read_corpus(names, data, stdin, known, config, progress, pairs)
    if corpus.identity.digest != identity.digest:
        raise TextError(
            f"corpus changed: {', '.join(corpus.identity.sources)} is not the text that this run "
            f"was trained on{remedy}"
        )
    return corpus
