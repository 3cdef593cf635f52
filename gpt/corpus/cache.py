"""Encoded texts in `data`, each encoded once: NAME.ids, and NAME.json, the record that verifies it.

NAME consists of the text's digest and a hash of its split, its replaced characters and, unless it
was built from this text, its vocabulary. Small files are read and compared with their checksum at
every opening. A file of 64 MiB or more counts as unchanged if its size, modification time and inode
are unchanged: a change that leaves the time as it was, as on a failing disk, is not detected.
Without NAME.json a text is encoded again.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.sources import Source
from gpt.corpus.text import TODAY
from gpt.storage import files
from gpt.storage.manifest import CorpusId
from gpt.vocabulary import Ids, Vocabulary

TRUSTED_FROM = 2**26  # bytes: a file at least this large is identified by its stamp
FRESH = 2.0  # seconds in which a second change may get the same modification time
STALE = 24 * 3600.0  # seconds after which a temporary file counts as abandoned
BLOCK = 2**20  # bytes read at a time
#: Whole names of temporary files (files.replacing) and of pipes' copies (sources.find_sources).
LEFT_BEHIND = re.compile(r"\.tmp-[0-9a-f]{32}|\.spool-[0-9a-f]{32}\.txt")

Record = dict[str, Any]


def ids_path(
    data: Path, identity: CorpusId, config: TrainConfig, vocabulary: Vocabulary | None = None
) -> Path:
    """The file of a text's ids: it depends on the order and on the replaced characters. vocabulary:
    None if it was built from this text.
    """
    folded = (config.min_count, config.replacement) if config.min_count > 1 else ()
    made: tuple[object, ...] = (identity.order, identity.boundary, folded)
    if vocabulary is not None:
        made += (vocabulary.characters,)
    name = identity.digest.rpartition(":")[2][:16]
    if made != ("", None, ()):
        name += "-" + hashlib.sha256(repr(made).encode()).hexdigest()[:8]
    return data / f"{name}.ids"


def write_record(path: Path, record: Record) -> None:
    """Writes the record of the ids at `path`. Raises OSError."""
    record = {**record, "stamp": stamp(path)}
    record["seal"] = _seal(record)
    files.replace(path.with_suffix(".json"), json.dumps(record).encode())


def read(path: Path) -> tuple[Ids, Record] | None:
    """The memory-mapped ids and their record; None if either has changed since it was written."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = _record(path)
        ids = np.memmap(path, dtype=Vocabulary(record["characters"]).dtype, mode="r")
        now = stamp(path)
        if now == record.get("stamp") and now[0] >= TRUSTED_FROM:
            return ids, record
        if "parts" in record:
            parts = record["parts"]
            whole = record["seal"] == _seal(record) and _checksums(path, parts) == parts
        else:  # written by gptx 0.2 or before
            parts = _checksums(path, [[now[0], ""]])
            begun = partial(hashlib.sha256, record["characters"].encode())
            with open(path, "rb") as file:
                whole = hashlib.file_digest(file, begun).hexdigest() == record["sha256"]
        if whole:
            if now != record.get("stamp"):  # the file was copied or moved
                with suppress(OSError):  # the folder may be read-only
                    write_record(path, {**record, "parts": parts})
            return ids, record
    return None


def _record(path: Path) -> Record:
    """The record of the ids at `path`, in the current format. Raises OSError, ValueError."""
    record: Record = json.loads(path.with_suffix(".json").read_bytes())
    if not isinstance(record, dict):
        raise ValueError("not a record")
    if "text_sha256" in record:  # gptx 0.2 or before
        record["text"] = f"sha256:{record.pop('text_sha256')}"
    return record


def forget(ids: Ids) -> None:
    """Frees the pages of a large memory-mapped file until they are read again. Otherwise they count
    as memory of this process until the system needs them.
    """
    mapped = getattr(ids, "_mmap", None)
    if mapped is not None and len(mapped) >= TRUSTED_FROM and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def stamp(path: Path) -> list[int]:
    """Size, modification time and inode of a file, which change if its content does."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _seal(record: Record) -> int:
    """A checksum of the fields of a record that describe the text and its ids."""
    names = ("text", "characters", "boundary", "order", "folded", "parts")
    return zlib.crc32(json.dumps([record.get(name) for name in names]).encode())


def _checksums(path: Path, parts: list[Any]) -> list[Any]:
    """[size, checksum] of each part of a file, in these sizes; then [] if the file is longer."""
    found: list[Any] = []
    with open(path, "rb", buffering=0) as file:
        for size, _ in parts:
            checksum, left = blake3(), size
            while left and (data := file.read(min(left, BLOCK))):
                checksum.update(data)
                left -= len(data)
            found.append([size - left, checksum.hexdigest()])
        return [*found, []] if file.read(1) else found


def fingerprint(
    sources: Sequence[Source],
    training: int,
    config: TrainConfig,
    algorithm: str = TODAY,
    grown_from: str = "",
) -> str | None:
    """A hash that identifies large texts without reading them; None if they must be read.

    Texts must be read if they are small, which takes no time, or changed within the last seconds.
    grown_from: characters of the vocabulary that gets those of the texts, too.
    """
    try:
        stamps = [stamp(source.path) for source in sources]
    except OSError:
        return None
    newest = max((changed for _, changed, _ in stamps), default=0) / 1e9
    if sum(size for size, _, _ in stamps) < TRUSTED_FROM or newest > time.time() - FRESH:
        return None
    paths = [os.path.realpath(source.path) for source in sources]
    how = (config.between, config.every, config.min_count, config.replacement)
    known_by = repr((paths, stamps, training, how, algorithm))
    known_by += repr(grown_from) * bool(grown_from)
    return hashlib.sha256(known_by.encode("utf-8", "surrogatepass")).hexdigest()


def remember(path: Path, known_by: str, notes: Sequence[str]) -> None:
    """Stores the texts' fingerprint and notes in the record of their ids, for `recall`."""
    with suppress(OSError, ValueError):
        record = _record(path)
        if record.get("known_by") != known_by:
            write_record(path, {**record, "known_by": known_by, "notes": notes})


def recall(data: Path, known_by: str) -> Iterator[Path]:
    """The paths of ids of texts with this fingerprint, which were encoded before."""
    for path in sorted(data.glob("*.json")):
        with suppress(OSError, ValueError, AttributeError):
            if _record(path).get("known_by") == known_by:
                yield path.with_suffix(".ids")


def sweep(data: Path) -> None:
    """Removes old temporary files of gptx processes that were killed; other files stay."""
    for path in data.iterdir():
        if LEFT_BEHIND.fullmatch(path.name):
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > STALE:
                    path.unlink()
