"""Stores encoded texts in `data`, each once: NAME.ids, and NAME.json, which verifies it.

NAME consists of the text's digest and a hash of what else determines the ids: the split and the
vocabulary. Whoever opens the ids reads them and compares their checksum; if the record is missing
or damaged, the text is encoded again.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from blake3 import blake3

from gpt.errors import CheckpointError
from gpt.storage import files
from gpt.storage.manifest import CorpusId
from gpt.storage.sealed import open_json
from gpt.vocabulary import Ids, Vocabulary

FEW = 2**23  # bytes of a file whose pages stay in memory


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


def read_encoding(path: Path) -> tuple[Ids, Record] | None:
    """The memory-mapped ids at `path` and their record; None if either is missing or damaged."""
    source = path.with_suffix(".json")
    with suppress(CheckpointError, OSError, ValueError):
        record = open_json(files.read(source), Record, source)
        ids = np.memmap(path, dtype=record.vocabulary.dtype, mode="r")
        if len(ids) == record.identity.characters and _are_whole(ids, record.parts):
            return ids, record
    return None


def find_encodings(data: Path, digest: str) -> Iterator[tuple[Ids, Record]]:
    """Every encoding in `data` of the text with this digest."""
    for path in sorted(data.glob(f"{digest[:16]}-*.ids")) if digest else ():
        stored = read_encoding(path)
        if stored and stored[1].identity.digest == digest:
            yield stored


def release_pages(ids: Ids) -> None:
    """Frees the pages of a memory-mapped file until they are read again, unless they are few.
    Otherwise they count as memory of this process until the system needs them.
    """
    mapped = getattr(ids, "_mmap", None)
    if mapped is not None and len(mapped) >= FEW and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _are_whole(ids: Ids, parts: tuple[tuple[int, str], ...]) -> bool:
    """Whether the bytes of the ids are parts of these sizes, with these checksums. Reads a piece at
    a time, so the text need not fit in memory.
    """
    data, end = ids.data.cast("B"), 0
    for size, checksum in parts:
        start, end, hashed = end, end + size, blake3()
        for first in range(start, end, FEW):
            hashed.update(data[first : min(first + FEW, end)])
            release_pages(ids)
        if hashed.hexdigest() != checksum:
            return False
    return end == len(data)
