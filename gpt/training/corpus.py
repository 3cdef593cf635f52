"""Text -> ids on disk -> two splits -> batches.

A text is read twice in chunks, first for its characters and its hash, then to encode it; so memory
stays bounded at any size. The ids are memory-mapped and named by the text's SHA-256: an edited
file is another corpus, and a run keeps its own. Batch order is a pure function of seed and step.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import files
from gpt.config import Windows
from gpt.errors import TextError
from gpt.manifest import CorpusId
from gpt.training.sources import Source
from gpt.vocabulary import Ids, Vocabulary, code_points

CHUNK = 2**22  # bytes
BATCH, DROPOUT, EPOCH = 0, 1, 2  # the purposes of random streams
LISTED = 2**20  # most windows of an epoch whose order is a list, as it was from the beginning
ROUNDS = 4  # that mix a longer epoch's windows
SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"\x89PNG": "a PNG picture",
    b"PK\x03\x04": "a zip archive",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True)
class Corpus:
    """An encoded text. ids (characters,) is memory-mapped; notes are worth telling the user."""

    ids: Ids
    vocabulary: Vocabulary
    identity: CorpusId
    notes: tuple[str, ...] = ()

    def split(self, val_fraction: float, block_size: int) -> tuple[Ids, Ids]:
        """The first int((1 − val_fraction)·n) characters to train on, the rest to validate.

        Raises TextError when either holds less than one window of block_size + 1.
        """
        boundary = int(len(self.ids) * (1 - val_fraction))
        train, val = self.ids[:boundary], self.ids[boundary:]
        for name, part in (("training", train), ("validation", val)):
            if len(part) < block_size + 1:
                fits = min(len(train), len(val)) - 1
                remedy = (
                    f"use --block-size {fits}"
                    if fits >= 1
                    else "even --block-size 1 needs two characters in each split; use more text"
                )
                raise TextError(
                    f"the {name} split has {len(part)} characters, needs {block_size + 1}; {remedy}"
                )
        return train, val


def encode(sources: Sequence[Source], data: Path, known: Vocabulary | None = None) -> Corpus:
    """Encodes the texts, one after the other, into `data`; or finds them there.

    By their own vocabulary, or by a known one that has all of their characters.

    Raises TextError (unreadable, empty, not UTF-8) and StorageError.
    """
    notes: list[str] = []
    seen = np.zeros(0x110000, dtype=bool)
    digest, characters = hashlib.sha256(), 0
    for text in _read(sources, notes):
        digest.update(text.encode())
        seen[code_points(text)] = True
        characters += len(text)
    if not characters:
        names = ", ".join(source.name for source in sources)
        raise TextError(f"corpus is empty: {names}")
    vocabulary = Vocabulary("".join(map(chr, np.flatnonzero(seen).tolist())))
    if known is not None and not known.unknown(vocabulary.characters):
        vocabulary = known
    if len(vocabulary) == 1:
        notes.append("the corpus has one distinct character: there is nothing to predict")
    identity = CorpusId(digest.hexdigest(), characters, tuple(source.name for source in sources))
    stored = _open_ids(identity, data, notes)
    if stored is None or stored.vocabulary != vocabulary:
        _write_ids(sources, vocabulary, identity, data)
        stored = _open_ids(identity, data, notes)
        if stored is None:
            raise TextError("the corpus changed while it was being read; run it again")
    return Corpus(stored.ids, vocabulary, identity, tuple(notes))


def reopen(identity: CorpusId, data: Path) -> Corpus | None:
    """The encoded text of an earlier run, or None if `data` no longer holds it whole."""
    return _open_ids(identity, data, [])


def _read(sources: Sequence[Source], notes: list[str]) -> Iterator[str]:
    """The texts in chunks; a newline between two files where the first lacks one."""
    last = "\n"
    for source in sources:
        between = "" if last == "\n" else "\n"
        for text in _decode(source, notes):
            yield between + text
            between, last = "", text[-1]


def _decode(source: Source, notes: list[str]) -> Iterator[str]:
    """A file's text in chunks, exactly: no newline is translated, nothing normalised."""
    try:
        with open(source.path, "rb") as file:
            head = file.read(4096)
            for signature, what in SIGNATURES.items():
                if head.startswith(signature):
                    raise TextError(f"{source.name} looks like {what}, not UTF-8 text")
            if len(head) >= 64 and head.count(0) > len(head) // 4:
                raise TextError(f"{source.name} looks like UTF-16 or binary, not UTF-8 text")
            start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
            if start and f"left out the byte order mark of {source.name}" not in notes:
                notes.append(f"left out the byte order mark of {source.name}")
            file.seek(start)
            pending, offset = b"", start  # offset: where `pending` begins
            while chunk := file.read(CHUNK):
                data = pending + chunk
                text, used = codecs.utf_8_decode(data, "strict", False)
                pending, offset = data[used:], offset + used
                if text:
                    yield text
            codecs.utf_8_decode(pending, "strict", True)
    except UnicodeDecodeError as error:
        position = offset + error.start
        raise TextError(
            f"{source.name}: invalid UTF-8 at byte {position}; convert it, for example: "
            f"iconv -f LATIN1 -t UTF-8 FILE"
        ) from None
    except OSError as error:
        raise TextError(f"cannot read corpus {source.name}: {error.strerror or error}") from error


def _write_ids(
    sources: Sequence[Source], vocabulary: Vocabulary, identity: CorpusId, data: Path
) -> None:
    """Second pass: NAME.ids, then NAME.json, which vouches for both. Raises TextError."""
    path = data / f"{identity.sha256[:16]}.ids"
    # One hash over vocabulary and ids: either alone would say nothing about the text.
    read, written = hashlib.sha256(), hashlib.sha256(vocabulary.characters.encode())
    with files.storage_errors(f"write {path}"):
        data.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as append:
            for text in _read(sources, []):
                read.update(text.encode())
                encoded = vocabulary.encode(text, unknown="skip").tobytes()
                written.update(encoded)
                append(encoded)
            if read.hexdigest() != identity.sha256:
                raise TextError("the corpus changed while it was being read; run it again")
        record = {
            "text_sha256": identity.sha256,
            "sha256": written.hexdigest(),
            "characters": vocabulary.characters,
        }
        files.replace(path.with_suffix(".json"), json.dumps(record).encode())


def _open_ids(identity: CorpusId, data: Path, notes: list[str]) -> Corpus | None:
    path = data / f"{identity.sha256[:16]}.ids"
    if not path.is_file():
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        record: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
        vocabulary = Vocabulary(record["characters"])
        ids = np.memmap(path, dtype=vocabulary.dtype, mode="r")
        whole = len(ids) == identity.characters and record["text_sha256"] == identity.sha256
        if whole and _sha256(vocabulary, path) == record["sha256"]:
            return Corpus(ids, vocabulary, identity)
    notes.append(f"{path} was damaged and has been made again")
    return None


def _sha256(vocabulary: Vocabulary, path: Path) -> str:
    digest = hashlib.sha256(vocabulary.characters.encode())
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def character_counts(ids: Ids, vocab_size: int) -> npt.NDArray[np.int64]:
    """(vocab_size,) how often each character occurs."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for first in range(0, len(ids), CHUNK):
        counts += np.bincount(ids[first : first + CHUNK], minlength=vocab_size)
    return counts


def batch(
    ids: Ids,
    seed: int,
    step: int,
    batch_size: int,
    block_size: int,
    windows: Windows = "random",
    part: slice = slice(None),
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(B, T) inputs and (B, T) targets, one character later; or only some of the B rows.

    Pure in (seed, step): Philox is a counter-based generator (Salmon et al. 2011), so any step's
    batch can be had without those before it.
    """
    starts = STARTS[windows](len(ids), seed, step, batch_size, block_size)[part]
    rows = ids[starts[:, None] + np.arange(block_size + 1)].astype(np.int64)  # (B, T + 1)
    return rows[:, :-1], rows[:, 1:]


def _random_starts(
    length: int, seed: int, step: int, batch_size: int, block_size: int
) -> npt.NDArray[np.int64]:
    """(B,) offsets, each as likely as any other."""
    draws = philox(seed, step, BATCH).random_raw(batch_size)
    starts: npt.NDArray[np.int64] = (draws % np.uint64(length - block_size)).astype(np.int64)
    return starts


def _epoch_starts(
    length: int, seed: int, step: int, batch_size: int, block_size: int
) -> npt.NDArray[np.int64]:
    """(B,) offsets: an epoch has each window of block_size once, in an order of its own.

    Where the first window begins is drawn for each epoch, so that borders move.
    """
    count = max(1, (length - block_size) // block_size)  # windows in an epoch
    numbers = step * batch_size + np.arange(batch_size)
    starts = np.empty(batch_size, np.int64)
    for epoch in np.unique(numbers // count).tolist():
        now = numbers // count == epoch
        if count <= LISTED:
            first, order = _epoch(length, seed, epoch, block_size, count)
            windows = order[numbers[now] % count]
        else:
            first, *keys = philox(seed, epoch, EPOCH).random_raw(1 + ROUNDS).tolist()
            first, windows = first % block_size, shuffled(numbers[now] % count, count, keys)
        starts[now] = first + windows * block_size
    return starts


@lru_cache(maxsize=2)
def _epoch(
    length: int, seed: int, epoch: int, block_size: int, count: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """Where an epoch's first window begins, and the order of its windows."""
    generator = np.random.Generator(philox(seed, epoch, EPOCH))
    spare = length - block_size - (count - 1) * block_size  # offsets that the first may have
    return int(generator.integers(spare)), generator.permutation(count)


def shuffled(
    numbers: npt.NDArray[np.int64], count: int, keys: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Where a permutation of 0 … count − 1 takes these numbers; no list of all is needed.

    A Feistel network (Luby & Rackoff 1988), a round a key, over the next power of four; what falls
    outside walks on (Black & Rogaway 2002).
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    places = numbers.astype(np.uint64)
    outside = np.ones(len(places), np.bool_)
    while outside.any():
        left, right = places[outside] >> half, places[outside] & low
        for key in keys:
            mixed = (right + np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & low)
        places[outside] = (left << half) | right
        outside = places >= count
    return places.astype(np.int64)


STARTS = {"random": _random_starts, "epochs": _epoch_starts}


def philox(seed: int, step: int, purpose: int) -> np.random.Philox:
    """Independent random streams for each seed, step and purpose."""
    key = np.array([seed, step], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, purpose], dtype=np.uint64))
