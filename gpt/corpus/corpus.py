"""The corpus of a command or a run: finds it, encodes it once, splits it, and draws the windows of
a step.

A text is read twice: the first pass counts its characters, the second writes their ids, if the text
is still the same. The ids are memory-mapped, so the memory needed does not grow with the text, and
stored in `data` as NAME.ids and NAME.json, which has their checksum. NAME is a hash of all that
determines the ids: an edited file is another corpus, and a run keeps the one it started with.

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
from gpt.corpus.formats import SHOWN, UTF_8, note_of, separator_of
from gpt.corpus.sources import (
    JoinedText,
    Progress,
    Source,
    Texts,
    column_source,
    discard_spooled,
    measure_text,
    no_progress,
    same_files,
)
from gpt.errors import CheckpointError, TextError
from gpt.storage import files
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.model_file import open_json, seal_json
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import first_few

BATCH, DROPOUT, EPOCH = 0, 1, 2  # the purposes of random streams
MOST_NAMED = 3  # texts that a note names
MOST_OPENED = 30  # texts whose kinds are noted
LONGEST_BLOCK = 2**16  # characters: hundreds of contexts, so that few windows cross a border
FEWEST_BLOCKS = 10  # fewest validation blocks of a single text, however short they become
MOST_BLOCKS = 10**5
FEW = 2**23  # bytes of a file whose pages stay in memory
SHORTEST_IN_CONTEXTS = 4  # shortest block, in contexts; in shorter ones most windows cross a border


@dataclass(frozen=True)
class Corpus:
    """An encoded text. ids (characters,): memory-mapped, the training split first, up to
    `identity.boundary` or, if that is None, to a share that the run's options set. notes: for the
    user. block: characters of each validation block, 0 if whole texts validate.
    """

    ids: Ids
    vocabulary: Vocabulary
    identity: CorpusId
    notes: tuple[str, ...] = ()
    block: int = 0

    def parts(self, val_fraction: float) -> tuple[Ids, Ids]:
        """The ids to train on and those to validate on; either may be too short for a window."""
        boundary = self.identity.boundary
        if boundary is None:
            boundary = int(len(self.ids) * (1 - val_fraction))
        return self.ids[:boundary], self.ids[boundary:]

    def longest_context(self, val_fraction: float) -> int:
        """The largest block_size, in characters, that `split` accepts; 0 if there is none."""
        longest = max(0, min(map(len, self.parts(val_fraction))) - 1)
        return min(longest, self.block // SHORTEST_IN_CONTEXTS) if self.block else longest

    def split(self, val_fraction: float, block_size: int) -> tuple[Ids, Ids]:
        """`parts`. Raises TextError if these, or the blocks of split='every:N', are too short for a
        context of block_size.
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
                f"`split='every:N'`: blocks of {self.block} characters are too short beside a "
                f"context of {block_size}; {remedy}, or `split='last'`"
            )
        return parts

    def item_separator(self, train: TrainConfig) -> Ids | None:
        """The ids between two items if the text is a list. Raises TextError if it has none."""
        separator = train.item_separator
        if missing := self.vocabulary.unknown(separator):
            raise TextError(
                f"`items`: the text has no separator {separator!r}, as it has no {missing[0]!r}; "
                "give the one that it has: `separator`"
            )
        return self.vocabulary.encode(separator) if separator else None


@dataclass(frozen=True)
class Record:
    """NAME.json: a corpus, except its ids and its sources' names; a checksum of the ids."""

    identity: CorpusId
    characters: str
    block: int
    checksum: str


def ids_path(data: Path, identity: CorpusId, vocabulary: Vocabulary) -> Path:
    """The file with a text's ids in this vocabulary."""
    decides = repr((replace(identity, sources=()), vocabulary.characters))
    return data / f"{identity.digest[:16]}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}.ids"


def read_encoding(path: Path) -> Corpus | None:
    """The corpus at `path`; None if its ids or its record are missing or damaged."""
    source = path.with_suffix(".json")
    with suppress(CheckpointError, OSError, ValueError):
        record = open_json(files.read(source), Record, source)
        vocabulary = Vocabulary(record.characters)
        ids = np.memmap(path, dtype=vocabulary.dtype, mode="r")
        if len(ids) == record.identity.characters and _checksum(ids) == record.checksum:
            return Corpus(ids, vocabulary, record.identity, block=record.block)
    return None


def find_encodings(data: Path, digest: str) -> Iterator[Corpus]:
    """Every encoding in `data` of the text with this digest."""
    for path in sorted(data.glob(f"{digest[:16]}-*.ids")) if digest else ():
        if corpus := read_encoding(path):
            yield corpus


def release_pages(ids: Ids) -> None:
    """Frees the pages of a memory-mapped file until they are read again, unless they are few."""
    mapped = getattr(ids, "_mmap", None)
    if mapped is not None and len(mapped) >= FEW and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _checksum(ids: Ids) -> str:
    """The BLAKE3 of memory-mapped ids. Reads a piece at a time, so they need not fit in memory."""
    data, hashed = ids.data.cast("B"), blake3()
    for first in range(0, len(data), FEW):
        hashed.update(data[first : first + FEW])
        release_pages(ids)
    return hashed.hexdigest()


@dataclass(frozen=True)
class SplitOrder:
    """The order in which the characters of a text are stored.

    boundary: number of training characters, None if a share of the text decides it. block: see
    Corpus. borders: where the pieces that are moved to the end begin and end in the text, in turn.
    order: a name of the order, empty if nothing is moved.
    """

    boundary: int | None = None
    block: int = 0
    borders: tuple[int, ...] = ()
    order: str = ""


def choose_split(starts: Sequence[int], training: int, every: int) -> SplitOrder:
    """Divides texts that begin at `starts`, whose last item is the end of the last text.

    The first `training` texts are for training, others for validation. If all are for training,
    every `every`-th text is for validation; if there is a single text, every `every`-th block of
    it. every = 0: no text is for validation. Empty texts do not count. Raises TextError.
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
            f"`split='every:{every}'`: there are {texts:,} {what}, so none would validate; use "
            f"every:{texts} or less, or `split='last'`"
        )
    val = [*pairwise(starts)][every - 1 :: every]
    train = [  # each piece: all training texts between two validation texts
        (starts[first], starts[min(first + every - 1, texts)]) for first in range(0, texts, every)
    ]
    boundary = sum(last - first for first, last in train)
    order = hashlib.sha256(repr((*train, *val)).encode()).hexdigest()[:16]
    return SplitOrder(boundary, block, tuple(chain.from_iterable(val)), order)


def build_vocabulary(
    counts: npt.NDArray[np.int64], known: Vocabulary | None = None
) -> tuple[Vocabulary, Ids]:
    """The sorted characters of the text as a vocabulary, after those of a known one; and (code
    points,) the id of each code point.

    counts (2, code points): occurrences in the training text, and in the validation text. Raises
    TextError if a new character is only in the validation text.
    """
    points = np.flatnonzero(counts.sum(axis=0))
    characters = "".join(map(chr, points.tolist()))
    vocabulary = Vocabulary(characters)
    if known:  # its characters keep their ids
        vocabulary = Vocabulary(known.characters + known.unknown(characters))
    for character in vocabulary.characters[len(known) if known else 0 :]:
        if not counts[0, ord(character)]:
            raise TextError(
                f"{character!r} (U+{ord(character):04X}) is only in the text that validates, "
                "so training cannot teach it; leave it out there"
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
    """Writes all ids of the text with this digest, the training split first; or leaves no file.
    Raises OSError, and TextError, also if the text has changed since it was measured.
    """
    hashed, at, borders = blake3(), 0, order.borders
    ends = [0, (order.boundary or 0) * table.itemsize]  # of what stays, and of what was moved
    with files.replace_in_pieces(path) as write:
        for _, data, points in text.chunks(progress):
            hashed.update(data)
            # Only a changed text has characters outside the table; `clip` is faster than a check.
            ids = np.take(table, points, mode="clip")
            first, last = bisect_right(borders, at), bisect_left(borders, at + len(ids))
            pieces = np.split(ids, [border - at for border in borders[first:last]])
            at += len(ids)
            for part in (0, 1):
                if mine := pieces[(part - first) % 2 :: 2]:
                    encoded = np.concatenate(mine).data.cast("B")
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
    known: Vocabulary | None = None,
    progress: Progress = no_progress,
) -> Corpus:
    """Encodes the text into `data`, unless it has the encoding already.

    validation: how many of the sources, the last ones, validate. every: see choose_split. known:
    see build_vocabulary. progress: receives the share that is done. Raises TextError, StorageError.
    """
    training = len(text.sources) - validation
    names = [source.name for source in text.sources[:training]]
    measures = measure_text(text, training, lambda done: progress(done / 2))
    characters = measures.starts[-1]
    if not characters:
        raise TextError(f"corpus is empty: {', '.join(names)}")
    vocabulary, table = build_vocabulary(measures.counts, known)
    order = choose_split(measures.starts, training, every)
    identity = CorpusId(measures.digest, characters, (), order.boundary, order.order)
    path = ids_path(data, identity, vocabulary)
    corpus = read_encoding(path)
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
            record = Record(identity, vocabulary.characters, order.block, _checksum(ids))
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
    """An earlier run's text in its vocabulary; None if `data` no longer has all of it."""
    corpus = read_encoding(ids_path(data, identity, vocabulary))
    return corpus and replace(corpus, identity=identity)


def read_corpus(
    texts: Texts,
    data: Path,
    config: TrainConfig,
    known: Vocabulary | None = None,
    progress: Progress = no_progress,
) -> Corpus:
    """Finds and encodes the texts, and the validation text that `config` names."""
    files.delete_abandoned(data)
    sources = texts.sources(data, config.encoding)
    opened, validation = [*sources], list[Source]()
    try:
        if config.validation is not None:
            try:
                named = replace(texts, names=[config.validation])
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
            every=config.every,
            known=known,
            progress=progress,
        )
        corpus.item_separator(config)
        return replace(corpus, notes=(*corpus.notes, *_advice(corpus, opened, config)))
    finally:
        discard_spooled(opened)


def _advice(corpus: Corpus, sources: Sequence[Source], config: TrainConfig) -> Iterator[str]:
    """Notes for the user on what these files are."""
    yield from dict.fromkeys(source.note for source in sources if source.note)
    if config.column:
        return
    for name, other in same_files(sources):
        yield f"{name} is the same text as {other}: leave one out"
    are_plain = True
    for source in sources[:MOST_OPENED]:
        if note := note_of(JoinedText([source], encoding=config.encoding).head):
            are_plain = False
            yield f"{source.name} is {note}"
    separator = separator_of(corpus.vocabulary.decode(corpus.ids[:SHOWN]))
    if separator and are_plain and not config.items:
        how = "`items`" if separator == "\n" else f"`items` with `separator={separator!r}`"
        yield f"a list of items: {how} begins windows and samples at items"


def find_corpus(
    texts: Texts, data: Path, manifest: Manifest, run: str = "", progress: Progress = no_progress
) -> Corpus:
    """The text that a run was trained on: its encoding in `data`, or its texts read again. texts:
    where they are now, if they were moved. run: its name, for errors.
    """
    identity, known = manifest.corpus, manifest.vocabulary
    trained_on = f"trained on {', '.join(identity.sources)} ({identity.characters:,} characters)"
    of_run = f"run {run} was {trained_on}"
    moved = "gptx train PATH --resume, or `data`, a folder with its encoded copy"
    if not texts.names:
        corpus = reopen_corpus(identity, data, known)
        if corpus is not None:
            return corpus
        if "-" in identity.sources:
            through = f"the corpus came through a pipe and is no longer in {data}"
            raise TextError(f"{through}; {of_run}; {moved}")
    try:
        where = texts if texts.names else Texts(identity.sources)
        corpus = read_corpus(where, data, manifest.train, known, progress)
    except TextError as error:
        raise TextError(str(error) if texts.names else f"{error}; {of_run}; {moved}") from None
    if corpus.identity.digest != identity.digest:
        raise TextError(
            f"corpus changed: {', '.join(corpus.identity.sources)} is not the text that run {run} "
            f"was trained on ({identity.characters:,} characters); restore it, choose another "
            "`run`, or train a new run on it from this one's weights: `init_from`"
        )
    return corpus


def splits_of_run(
    name: str, manifest: Manifest | None, data: Path, purpose: str = "", advice: str = ""
) -> tuple[Ids, Ids]:
    """The ids that this run was trained on, and those that validated. manifest: None for a model
    file without its run. purpose, advice: the begin and the end of the error if there is no text.
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
    """(B, T) inputs, and (B, T) targets one character later, of windows that begin at `starts`."""
    rows = ids[starts[:, None] + np.arange(block_size + 1)].astype(np.int64)  # (B, T + 1)
    release_pages(ids)
    return rows[:, :-1], rows[:, 1:]


def batch_starts(
    ids: Ids, train: TrainConfig, step: int, block_size: int, separator: Ids | None = None
) -> npt.NDArray[np.int64]:
    """(B,) where a batch's windows begin in a text. separator (n,): the ids between two items, if
    windows are to begin with it.

    A pure function of (seed, step): Philox is a counter-based generator (Salmon et al. 2011), so
    any step's batch can be computed without the batches before it.

    random: every start is equally likely. epochs: each epoch reads every window of block_size once,
    in a new random order; the start of the first window is random, too, so that the borders between
    windows move.
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
    """The start of an epoch's first window, and the order of its windows."""
    generator = np.random.Generator(philox(seed, epoch, EPOCH))
    spare = length - block_size - (count - 1) * block_size  # possible offsets of the first window
    return int(generator.integers(spare)), generator.permutation(count)


def _begin_at_items(
    starts: npt.NDArray[np.int64], ids: Ids, separator: Ids, block_size: int
) -> npt.NDArray[np.int64]:
    """(B,) starts of windows, each moved to the next separator, if one begins within a window's
    length: long items are read as a whole. With the separator in the window, the model learns how
    items begin.
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
    """Independent random streams for each seed, step and purpose."""
    key = np.array([seed, step], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, purpose], dtype=np.uint64))
