"""Stores encoded texts in `data`, each once: NAME.ids, and NAME.json, which verifies it.

NAME consists of the text's digest and a hash of what else determines the ids: the split and the
vocabulary. Whoever opens the ids reads them and compares their checksum; if the record is missing
or damaged, the text is encoded again.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from blake3 import blake3

from gpt.errors import CheckpointError
from gpt.storage import files
from gpt.storage.manifest import CorpusId
from gpt.storage.sealed import open_json, seal_json
from gpt.vocabulary import Ids, Vocabulary

FEW = 2**23  # bytes of a file whose pages stay in memory
LARGEST_RECORD = 2**24  # bytes, enough for a text with every character of Unicode
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Record:
    """What the record says about an encoded text.

    identity: the text, without names of sources. characters: the vocabulary. block: see
    Corpus. parts: size in bytes and checksum of each part of the ids.
    """

    identity: CorpusId
    characters: str
    block: int
    parts: tuple[tuple[int, str], ...] = ()

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.characters)


def ids_path(data: Path, identity: CorpusId, vocabulary: Vocabulary) -> Path:
    """The file with a text's ids in this vocabulary."""
    decides = repr((replace(identity, sources=()), vocabulary.characters))
    return data / f"{identity.digest[:16]}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}.ids"


def write_record(path: Path, record: Record) -> None:
    """Writes the record of the ids at `path`. Raises OSError."""
    files.replace(path.with_suffix(".json"), seal_json(record))


def read_encoding(path: Path) -> tuple[Ids, Record] | None:
    """The memory-mapped ids at `path` and their record; None if either is missing or damaged."""
    source = path.with_suffix(".json")
    with suppress(CheckpointError, OSError, ValueError):
        record = open_json(files.read(source, LARGEST_RECORD), Record, source)
        ids = np.memmap(path, dtype=record.vocabulary.dtype, mode="r")
        identity = record.identity
        if (
            DIGEST.fullmatch(identity.digest)
            and len(ids) == identity.characters
            and max(identity.boundary or 0, record.block) <= len(ids)
            and _are_whole(ids, record.parts, len(record.characters))
        ):
            return ids, record
    return None


def find_encodings(data: Path, digest: str) -> Iterator[tuple[Ids, Record]]:
    """Every encoding in `data` of the text with this digest."""
    if DIGEST.fullmatch(digest):
        for path in sorted(data.glob(f"{digest[:16]}-*.ids")):
            found = read_encoding(path)
            if found and found[1].identity.digest == digest:
                yield found


def release_pages(ids: Ids) -> None:
    """Frees the pages of a memory-mapped file until they are read again, unless they are few.
    Otherwise they count as memory of this process until the system needs them.
    """
    mapped = getattr(ids, "_mmap", None)
    if mapped is not None and len(mapped) >= FEW and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _are_whole(ids: Ids, parts: tuple[tuple[int, str], ...], most: int) -> bool:
    """Whether the bytes of the ids are parts of these sizes, with these checksums, and all ids are
    below `most`. Reads a piece at a time, so the text need not fit in memory.
    """
    data, end = ids.data.cast("B"), 0
    for size, checksum in parts:
        start, end, hashed = end, end + size, blake3()
        for first in range(start, end, FEW):
            piece = data[first : min(first + FEW, end)]
            hashed.update(piece)
            if np.frombuffer(piece, ids.dtype).max(initial=0) >= most:
                return False
            release_pages(ids)
        if hashed.hexdigest() != checksum:
            return False
    return end == len(data)
