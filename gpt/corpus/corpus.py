"""Finds the corpus of a command or a run, encodes it once, splits it, and draws the windows of a
step.

Encoding reads a text twice. The first pass counts its characters. The second pass writes their ids,
if the text is still the same. The ids are memory-mapped, so a longer text needs no more memory. The
folder `data` stores the ids in NAME.ids and their checksum in NAME.json. NAME is a hash of all that
determines the ids, so an edited text gets new files, and earlier runs still find the old ones.

The windows of a step are a pure function of seed and step, so no order has to be saved.
"""

from __future__ import annotations

import hashlib
import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.formats import SHOWN, UTF_8, find_separator, note_on_kind
from gpt.corpus.sources import (
    MOST_NAMED,
    JoinedText,
    Progress,
    Source,
    Texts,
    column_source,
    discard_spooled,
    find_same_files,
    measure_text,
    no_progress,
)
from gpt.errors import CheckpointError, TextError
from gpt.storage import files
from gpt.storage.checkpoint_files import CorpusId, Manifest, open_json, seal_json
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import first_few

BATCH, DROPOUT, EPOCH = 0, 1, 2  # purposes of random numbers, see `philox`
MOST_OPENED = 30  # most texts whose kinds are recognised for notes
LONGEST_BLOCK = 2**16  # characters; few windows cross the borders of blocks of this length
FEWEST_BLOCKS = 10  # fewest validation blocks of a single text, even if they are short
MOST_BLOCKS = 10**5  # of a single text, in both splits together
FEW = 2**23  # bytes; the pages of a smaller file stay in memory
FEWEST_CONTEXTS = 4  # in a validation block; most windows would cross borders of shorter blocks


@dataclass(frozen=True)
class Corpus:
    """An encoded text. ids (characters,): memory-mapped, the training split first, which ends at
    `identity.boundary`; if that is None, `val_fraction` decides where. notes: for the user. block:
    characters of a validation block; 0 if the end of a text or whole texts are for validation.
    """

    ids: Ids
    vocabulary: Vocabulary
    identity: CorpusId
    notes: tuple[str, ...] = ()
    block: int = 0

    def parts(self, val_fraction: float) -> tuple[Ids, Ids]:
        """Returns the training split and the validation split, which may be too short to use."""
        boundary = self.identity.boundary
        if boundary is None:
            boundary = int(len(self.ids) * (1 - val_fraction))
        return self.ids[:boundary], self.ids[boundary:]

    def longest_context(self, val_fraction: float) -> int:
        """Returns the largest block_size that `split` accepts; 0 if it accepts none."""
        longest = max(0, min(map(len, self.parts(val_fraction))) - 1)
        return min(longest, self.block // FEWEST_CONTEXTS) if self.block else longest

    def split(self, val_fraction: float, block_size: int) -> tuple[Ids, Ids]:
        """Returns `parts`. Raises TextError if a split, or a block of split='every:N', is too short
        for a context of block_size.
        """
        parts, fits = self.parts(val_fraction), self.longest_context(val_fraction)
        remedy = f"use `block_size={fits}`"
        if fits < 1:
            remedy = (
                "even `block_size=1` needs two characters in each split; use more text, or "
                "another `val_fraction`"
            )
        for name, part in zip(("training", "validation"), parts, strict=True):
            if len(part) < block_size + 1:
                raise TextError(
                    f"the {name} split has {len(part)} characters, needs {block_size + 1}; {remedy}"
                )
        if block_size > fits:
            raise TextError(
                f"`split='every:N'`: blocks of {self.block} characters are too short for a "
                f"context of {block_size}; {remedy}, or `split='last'`"
            )
        return parts

    def item_separator(self, train: TrainConfig) -> Ids | None:
        """Returns the separator's ids; None without `items`. Raises TextError if it is unknown."""
        separator = train.item_separator
        if missing := self.vocabulary.unknown(separator):
            raise TextError(
                f"`items`: the text has no separator {separator!r}, as it lacks {missing[0]!r}; "
                "set `separator` to what stands between its items"
            )
        return self.vocabulary.encode(separator) if separator else None


@dataclass(frozen=True)
class CorpusRecord:
    """The content of NAME.json: all about a corpus except its ids and the names of its sources."""

    identity: CorpusId
    characters: str
    block: int
    checksum: str


def ids_path(data: Path, identity: CorpusId, vocabulary: Vocabulary) -> Path:
    """Returns the path of a text's ids, which depend on its order and on the vocabulary."""
    facts = repr((replace(identity, sources=()), vocabulary.characters))
    return data / f"{identity.digest[:16]}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}.ids"


def open_encoded_corpus(path: Path) -> Corpus | None:
    """Opens the corpus whose ids are at a path; None if its files are missing or damaged."""
    source = path.with_suffix(".json")
    with suppress(CheckpointError, OSError, ValueError):
        record = open_json(files.read(source), CorpusRecord, source)
        vocabulary = Vocabulary(record.characters)
        ids = np.memmap(path, dtype=vocabulary.dtype, mode="r")
        if len(ids) == record.identity.characters and _checksum(ids) == record.checksum:
            return Corpus(ids, vocabulary, record.identity, block=record.block)
    return None


def find_encoded_corpora(data: Path, digest: str) -> Iterator[Corpus]:
    """Yields every encoded corpus in `data` of the text with this digest."""
    for path in sorted(data.glob(f"{digest[:16]}-*.ids")) if digest else ():
        if corpus := open_encoded_corpus(path):
            yield corpus


def release_pages(ids: Ids) -> None:
    """Frees the memory of a memory-mapped file, unless it is small. A later read loads it again."""
    mapped = getattr(ids, "_mmap", None)
    if mapped is not None and len(mapped) >= FEW and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _checksum(ids: Ids) -> str:
    """Hashes memory-mapped ids with BLAKE3, piece by piece, so they need not fit in memory."""
    data, hashed = ids.data.cast("B"), blake3()
    for first in range(0, len(data), FEW):
        hashed.update(data[first : first + FEW])
        release_pages(ids)
    return hashed.hexdigest()


@dataclass(frozen=True)
class SplitOrder:
    """The order in which the characters of a text are stored.

    boundary: the number of training characters; None: `val_fraction` decides it. block: see Corpus.
    borders: the start and the end of every piece of the text that is moved to the end, in one row.
    order: a hash of the order, "" if nothing is moved.
    """

    boundary: int | None = None
    block: int = 0
    borders: tuple[int, ...] = ()
    order: str = ""


def choose_split(starts: Sequence[int], training: int, every: int) -> SplitOrder:
    """Divides texts into a training split and a validation split. starts: the position of the first
    character of every text, then the number of characters.

    The texts after the first `training` ones are for validation. If there are none, every N-th text
    is for validation (N = every); of a single text, every N-th block. With every=0, `val_fraction`
    divides the joined texts. Empty texts do not count. Raises TextError for fewer than N texts.
    """
    characters = starts[-1]
    if training < len(starts) - 1:
        return SplitOrder(starts[training])
    if not every:
        return SplitOrder()
    starts, block = [*dict.fromkeys(starts)], 0
    if len(starts) == 2:
        block = min(LONGEST_BLOCK, characters // (FEWEST_BLOCKS * every))
        block = max(1, block, characters // MOST_BLOCKS)
        starts = [*range(0, characters, block), characters]
    texts = len(starts) - 1
    if texts < every:
        what = "blocks" if block else "texts"
        raise TextError(
            f"`split='every:{every}'`: there are {texts:,} {what}, so none is for validation; "
            f"use every:{texts} or less, or `split='last'`"
        )
    val = [*pairwise(starts)][every - 1 :: every]
    train = [  # a piece is all training texts between two validation texts
        (starts[first], starts[min(first + every - 1, texts)]) for first in range(0, texts, every)
    ]
    boundary = sum(last - first for first, last in train)
    order = hashlib.sha256(repr((*train, *val)).encode()).hexdigest()[:16]
    return SplitOrder(boundary, block, tuple(chain.from_iterable(val)), order)


def build_vocabulary(
    counts: npt.NDArray[np.int64], parent: Vocabulary | None = None
) -> tuple[Vocabulary, Ids]:
    """Returns a vocabulary, and (code points,) the id of every code point. The vocabulary has the
    characters of `parent`, then the text's other characters, sorted.

    counts (2, code points): occurrences in the training text, and in the validation text. parent:
    the vocabulary of the model whose weights a run starts with. Raises TextError if a new character
    is only in the validation text.
    """
    points = np.flatnonzero(counts.sum(axis=0))
    characters = "".join(map(chr, points.tolist()))
    vocabulary = Vocabulary(characters)
    if parent:
        vocabulary = Vocabulary(parent.characters + parent.unknown(characters))
    for character in vocabulary.characters[len(parent) if parent else 0 :]:
        if not counts[0, ord(character)]:
            raise TextError(
                f"{character!r} (U+{ord(character):04X}) is only in the validation text, so "
                "the model cannot learn it; remove it from that text"
            )
    table = np.zeros(int(points[-1]) + 1, vocabulary.dtype)
    table[points] = [vocabulary.id_of(character) for character in characters]
    return vocabulary, table


def write_ids(
    text: JoinedText,
    table: Ids,
    order: SplitOrder,
    path: Path,
    *,
    digest: str,
    progress: Progress = no_progress,
) -> None:
    """Writes the ids of a text, the training split first. digest: that of the first pass. If the
    text has changed since, or if an error occurs, no file remains. Raises OSError, TextError.
    """
    hashed, at, borders = blake3(), 0, order.borders
    ends = [0, (order.boundary or 0) * table.itemsize]  # the next bytes of both splits
    with files.replace_in_pieces(path) as write:
        for _, data, points in text.chunks(progress):
            hashed.update(data)
            # Only a changed text has characters outside the table. `clip` is faster than a check.
            ids = np.take(table, points, mode="clip")
            first, last = bisect_right(borders, at), bisect_left(borders, at + len(ids))
            pieces = np.split(ids, [border - at for border in borders[first:last]])
            at += len(ids)
            for part in (0, 1):
                if of_part := pieces[(part - first) % 2 :: 2]:
                    encoded = np.concatenate(of_part).data.cast("B")
                    write(encoded, ends[part])
                    ends[part] += len(encoded)
        if digest != hashed.hexdigest():
            names = ", ".join(dict.fromkeys(source.name for source in text.sources))
            raise TextError(
                f"{names} was changed while it was read; try again when no program writes it"
            )


def encode_corpus(
    text: JoinedText,
    data: Path,
    *,
    validation: int = 0,
    every: int = 0,
    parent: Vocabulary | None = None,
    progress: Progress = no_progress,
) -> Corpus:
    """Encodes a text into the folder `data`, unless the folder has the ids already.

    validation: how many of the last sources form the validation split (0: none). every: see
    choose_split. parent: see build_vocabulary. progress: called with the share that is done. Raises
    TextError, StorageError.
    """
    training = len(text.sources) - validation
    names = [source.name for source in text.sources[:training]]
    measures = measure_text(text, training, lambda done: progress(done / 2))
    characters = measures.starts[-1]
    if not characters:
        raise TextError(f"corpus is empty: {', '.join(names)}")
    vocabulary, table = build_vocabulary(measures.counts, parent)
    order = choose_split(measures.starts, training, every)
    identity = CorpusId(measures.digest, characters, (), order.boundary, order.order)
    path = ids_path(data, identity, vocabulary)
    corpus = open_encoded_corpus(path)
    if corpus is None:
        with files.storage_errors(f"write {data}"):
            data.mkdir(parents=True, exist_ok=True)
            write_ids(
                text,
                table,
                order,
                path,
                digest=measures.digest,
                progress=lambda done: progress(0.5 + done / 2),
            )
            ids = np.memmap(path, vocabulary.dtype, mode="r")
            record = CorpusRecord(identity, vocabulary.characters, order.block, _checksum(ids))
            files.replace(path.with_suffix(".json"), seal_json(record))
        corpus = Corpus(ids, vocabulary, identity, block=order.block)
    progress(1.0)
    names_in = dict[str, list[str]]()
    for source, (codec, _, _) in zip(text.sources, text.forms, strict=True):
        names_in.setdefault(codec.upper(), []).append(source.name)
    names_in.pop(UTF_8.upper(), None)
    notes = [
        f"{first_few(of, MOST_NAMED, ', ')}: read as {codec}" for codec, of in names_in.items()
    ]
    if len(vocabulary) == 1:
        notes.append("the corpus has one distinct character: there is nothing to predict")
    return replace(corpus, identity=replace(identity, sources=tuple(names)), notes=tuple(notes))


def reopen_corpus(identity: CorpusId, data: Path, vocabulary: Vocabulary) -> Corpus | None:
    """Opens a run's encoded text. Returns None if its files in `data` are missing or damaged."""
    corpus = open_encoded_corpus(ids_path(data, identity, vocabulary))
    return corpus and replace(corpus, identity=identity)


def read_corpus(
    texts: Texts,
    data: Path,
    config: TrainConfig,
    parent: Vocabulary | None = None,
    progress: Progress = no_progress,
) -> Corpus:
    """Finds and encodes texts and their validation text. parent: see build_vocabulary."""
    files.delete_abandoned(data)
    sources = texts.sources(data, config.encoding)
    opened, validation = [*sources], list[Source]()
    try:
        if config.validation_file is not None:
            try:
                named = replace(texts, names=[config.validation_file])
                validation = named.sources(data, config.encoding)
            except TextError as error:
                raise TextError(f"`split` takes last, every:N or a file; {error}") from None
            opened += validation
        if config.column:
            sources, validation = (
                [column_source(source, config.column, config, data) for source in tables]
                for tables in (sources, validation)
            )
            opened += [*sources, *validation]
        corpus = encode_corpus(
            JoinedText([*sources, *validation], config.text_separator, config.encoding),
            data,
            validation=len(validation),
            every=config.split_period,
            parent=parent,
            progress=progress,
        )
        corpus.item_separator(config)
        return replace(corpus, notes=(*corpus.notes, *_advice(corpus, opened, config)))
    finally:
        discard_spooled(opened)


def _advice(corpus: Corpus, sources: Sequence[Source], config: TrainConfig) -> Iterator[str]:
    """Yields notes for the user about the kinds of the files."""
    yield from dict.fromkeys(source.note for source in sources if source.note)
    if config.column:
        return
    for name, other in find_same_files(sources):
        yield f"{name} is the same text as {other}: leave one out"
    are_plain = True
    for source in sources[:MOST_OPENED]:
        if note := note_on_kind(JoinedText([source], encoding=config.encoding).head):
            are_plain = False
            yield f"{source.name} is {note}"
    separator = find_separator(corpus.vocabulary.decode(corpus.ids[:SHOWN]))
    if separator and are_plain and not config.items:
        how = "`items`" if separator == "\n" else f"`items` with `separator={separator!r}`"
        yield f"the text is a list: with {how}, windows and samples begin at items"


def find_corpus(
    texts: Texts, data: Path, manifest: Manifest, run: str = "", progress: Progress = no_progress
) -> Corpus:
    """Opens a run's encoded text in `data`, or encodes the text's files again. texts: where the
    files are now, if they were moved. run: the run's name, for errors. Raises TextError.
    """
    identity, vocabulary = manifest.corpus, manifest.vocabulary
    moved = (
        f"run {run} was trained on {', '.join(identity.sources)} ({identity.characters:,} "
        "characters); if the text is elsewhere: gptx train PATH --resume, or set `data` to a "
        "folder with its encoded copy"
    )
    if not texts.names:
        corpus = reopen_corpus(identity, data, vocabulary)
        if corpus is not None:
            return corpus
        if "-" in identity.sources:
            raise TextError(f"the corpus came through a pipe and is no longer in {data}; {moved}")
    try:
        where = texts if texts.names else Texts(identity.sources)
        corpus = read_corpus(where, data, manifest.train, vocabulary, progress)
    except TextError as error:
        raise TextError(str(error) if texts.names else f"{error}; {moved}") from None
    if corpus.identity.digest != identity.digest:
        raise TextError(
            f"corpus changed: {', '.join(corpus.identity.sources)} is not the text that run {run} "
            f"was trained on ({identity.characters:,} characters); restore that text, choose "
            "another `run`, or train a new run on the present text from this run's weights: "
            "`init_from`"
        )
    return corpus


def splits_of_run(
    name: str, manifest: Manifest | None, data: Path, purpose: str = "", advice: str = ""
) -> tuple[Ids, Ids]:
    """Returns the training split and the validation split of a run. manifest: None for a model file
    without its run. purpose, advice: the start and the end of the error if the text is missing.
    """
    try:
        if manifest is None:
            without = f"{name} is a model file without its run, so its corpus is unknown"
            raise TextError(f"{without}; give its run with `run`")
        if not manifest.corpus.digest:
            raise TextError(f"{name} was imported without its text (gptx import … --corpus FILE)")
        corpus = find_corpus(Texts(), data, manifest, name)
        return corpus.split(manifest.train.val_fraction, manifest.model.block_size)
    except TextError as error:
        begin = f"{purpose} needs the corpus: " if purpose else ""
        raise TextError(f"{begin}{error}{advice}") from None


def windows(
    ids: Ids, starts: npt.NDArray[np.int64], block_size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns (B, T) inputs, and (B, T) targets one character later, of windows at `starts`."""
    rows = ids[starts[:, None] + np.arange(block_size + 1)].astype(np.int64)  # (B, T + 1)
    release_pages(ids)
    return rows[:, :-1], rows[:, 1:]


def batch_starts(
    ids: Ids, train: TrainConfig, step: int, block_size: int, separator: Ids | None = None
) -> npt.NDArray[np.int64]:
    """Returns (B,) the starts of a batch's windows in a text. separator (n,): the ids between two
    items, if windows begin at items.

    This is a pure function of seed and step. Philox is a counter-based generator (Salmon et al.
    2011), so the batch of any step can be computed without the batches before it.

    window_order="random": every start is equally likely. "epochs": an epoch reads every window of
    block_size once, in a new random order. The start of the epoch's first window is random, too, so
    the windows of two epochs begin at different characters.
    """
    length, batch_size = len(ids), train.batch_size
    if train.window_order == "random":
        draws = philox(train.seed, step, BATCH).random_raw(batch_size)
        starts = (draws % np.uint64(length - block_size)).astype(np.int64)
    else:
        count = max(1, (length - block_size) // block_size)  # windows in an epoch
        starts = np.empty(batch_size, np.int64)
        for row, number in enumerate(range(step * batch_size, (step + 1) * batch_size)):
            first, shuffle = _epoch(length, train.seed, number // count, block_size, count)
            starts[row] = first + shuffle[number % count] * block_size
    return starts if separator is None else _begin_at_items(starts, ids, separator, block_size)


@lru_cache(maxsize=2)
def _epoch(
    length: int, seed: int, epoch: int, block_size: int, count: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """Returns the start of the first window of an epoch, and the order of its windows."""
    generator = np.random.Generator(philox(seed, epoch, EPOCH))
    spare = length - block_size - (count - 1) * block_size  # possible starts of the first window
    return int(generator.integers(spare)), generator.permutation(count)


def _begin_at_items(
    starts: npt.NDArray[np.int64], ids: Ids, separator: Ids, block_size: int
) -> npt.NDArray[np.int64]:
    """Moves every start of (B,) windows to the first separator in its window. A window without a
    separator stays, so the text of long items is read, too. A moved window begins with the
    separator, so the model learns how items begin.
    """
    near = ids[starts[:, None] + np.arange(block_size)]  # (B, T)
    width = block_size - len(separator) + 1
    if width < 1:
        return starts
    ends = np.ones((len(starts), width), bool)
    for place, token in enumerate(separator):
        ends &= near[:, place : place + width] == token
    moved = starts + ends.argmax(axis=1)
    fits = ends.any(axis=1) & (moved < len(ids) - block_size)
    return np.where(fits, moved, starts)


def philox(seed: int, step: int, purpose: int) -> np.random.Philox:
    """Returns a random generator that is independent for every seed, step and purpose."""
    key = np.array([seed, step], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, purpose], dtype=np.uint64))
