"""Encoded texts in `data`, each encoded once: NAME.ids, and NAME.json, the record that verifies it.

NAME consists of the text's digest and a hash of its split, its replaced characters and, unless it
was built from this text, its vocabulary. Small files are read and compared with their checksum at
every opening. A file of 64 MiB or more counts as unchanged if its size, modification time and inode
are unchanged: a change that leaves the time as it was, as on a failing disk, is not detected. The
record of such a text is stored a second time, under a name that is found without reading the text.
Without a whole record a text is encoded again. Only files with these names are opened, no links.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.sources import Source
from gpt.errors import CheckpointError
from gpt.storage import files
from gpt.storage.json_values import is_sealed, parsed, read_json_object, sealed
from gpt.storage.manifest import CorpusId
from gpt.vocabulary import Ids, Vocabulary

FEW = 2**23  # bytes of a file whose pages stay in memory
TRUSTED_FROM = 2**26  # bytes: a file at least this large is identified by its stamp
FRESH = 2.0  # seconds in which a second change may get the same modification time
BLOCK = 2**20  # bytes read at a time
LARGEST_RECORD = 2**25  # bytes: of a text with every character of Unicode, and with notes
MOST_VALUES = 2**16  # commas in a record, which bound the memory that its values take
IDS_NAME = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{8})?\.ids")
DIGEST = re.compile(r"[0-9a-f]{64}")

Parts = Sequence[tuple[int, str]]


@dataclass(frozen=True)
class Record:
    """What is stored of an encoded text.

    identity: without names of sources. ids: name of the file with the ids. block, own, notes: as in
    Corpus. counts: how often each character occurs, as hexadecimal unsigned integers of equal size,
    the lowest byte first. parts: size in bytes and checksum of each part of the ids. stamp: of the
    ids.
    """

    identity: CorpusId
    ids: str
    characters: str
    block: int
    own: bool
    counts: str
    parts: tuple[tuple[int, str], ...] = ()
    stamp: str = ""
    notes: tuple[str, ...] = ()

    def counted(self) -> npt.NDArray[np.int64]:
        """(vocabulary,) how often each character occurs. Raises ValueError, TypeError."""
        data = bytes.fromhex(self.counts)
        return np.frombuffer(data, f"<u{len(data) // len(self.characters)}").astype(np.int64)

    def check(self, ids: Ids) -> None:
        """Raises ValueError or TypeError for values that contradict one another or the ids."""
        counts, identity = self.counted(), self.identity
        if not (
            DIGEST.fullmatch(identity.digest)
            and len(counts) == len(self.characters)
            and counts.min() >= 0
            and counts.sum() == len(ids) == identity.characters
            and max(identity.boundary or 0, self.block) <= len(ids)
        ):
            raise ValueError("not a record of these ids")


def packed(counts: npt.NDArray[np.int64]) -> str:
    """Counts as `Record.counts`."""
    return counts.astype(f"<u{np.min_scalar_type(int(counts.max())).itemsize}").tobytes().hex()


def ids_path(
    data: Path, identity: CorpusId, config: TrainConfig, vocabulary: Vocabulary | None = None
) -> Path:
    """The file of a text's ids: it depends on the order and on the replaced characters. vocabulary:
    None if it was built from this text.
    """
    folded = (config.min_count,) if config.min_count > 1 else ()
    made: tuple[object, ...] = (identity.order, identity.boundary, folded)
    if vocabulary is not None:
        made += (vocabulary.characters,)
    name = identity.digest[:16]
    if made != ("", None, ()):
        name += "-" + hashlib.sha256(repr(made).encode()).hexdigest()[:8]
    return data / f"{name}.ids"


def write_record(path: Path, record: Record) -> None:
    """Writes the record of ids in the same folder at `path`. Raises OSError."""
    values = asdict(replace(record, stamp=f"{stamp(path.with_name(record.ids))}"))
    files.replace(path, sealed(json.dumps(values, ensure_ascii=False, indent=1).encode()))


def read(path: Path) -> tuple[Ids, Record] | None:
    """The memory-mapped ids and the record at `path`; None if either is damaged or has changed
    since it was written.
    """
    with suppress(CheckpointError, OSError, ValueError, TypeError):
        data = files.read(path, LARGEST_RECORD)
        if not is_sealed(data) or data.count(b",") > MOST_VALUES:
            return None
        values = read_json_object(data, path)
        del values["digest"]
        record: Record = parsed(Record, values, "record")
        if not IDS_NAME.fullmatch(record.ids):
            return None
        where = path.with_name(record.ids)
        files.check_plain(where)
        ids = np.memmap(where, dtype=Vocabulary(record.characters).dtype, mode="r")
        record.check(ids)
        now = stamp(where)
        unchanged = record.stamp == f"{now}"
        if unchanged and now[0] >= TRUSTED_FROM:
            return ids, record
        largest = ids.max()
        forget(ids)
        if _checksums(where, record.parts) == record.parts and largest < len(record.characters):
            if not unchanged:  # the file was copied or moved
                with suppress(OSError):  # the folder may be read-only
                    write_record(path, record)
            return ids, record
    return None


def of_digest(data: Path, digest: str) -> Iterator[tuple[Ids, Record]]:
    """Every encoding of the text with this digest that `data` has."""
    if DIGEST.fullmatch(digest):
        for path in sorted(data.glob(f"{digest[:16]}*.json")):
            found = read(path)
            if found and found[1].identity.digest == digest:
                yield found


def forget(ids: Ids) -> None:
    """Frees the pages of a memory-mapped file until they are read again, unless they are few.
    Otherwise they count as memory of this process until the system needs them.
    """
    mapped = getattr(ids, "_mmap", None)
    if mapped is not None and len(mapped) >= FEW and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def stamp(path: Path) -> list[int]:
    """Size, modification time and inode of a file, which change if its content does."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _checksums(path: Path, parts: Parts) -> Parts:
    """(size, checksum) of each part of a file, in these sizes; then one more if the file is
    longer.
    """
    found = []
    with open(path, "rb", buffering=0) as file:
        for size, _ in parts:
            checksum, left = blake3(), size
            while left and (data := file.read(min(left, BLOCK))):
                checksum.update(data)
                left -= len(data)
            found.append((size - left, checksum.hexdigest()))
        return (*found, *[(1, "")] * len(file.read(1)))


def fingerprint(sources: Sequence[Source], training: int, config: TrainConfig) -> str | None:
    """A hash that identifies large texts without reading them; None if they must be read.

    Texts must be read if they come from a pipe, are small, which takes no time, or changed within
    the last seconds.
    """
    if any(source.spooled for source in sources):
        return None
    try:
        stamps = [stamp(source.path) for source in sources]
    except OSError:
        return None
    newest = max((changed for _, changed, _ in stamps), default=0) / 1e9
    if sum(size for size, _, _ in stamps) < TRUSTED_FROM or newest > time.time() - FRESH:
        return None
    paths = [os.path.realpath(source.path) for source in sources]
    how = (config.between, config.every, config.min_count)
    known_by = repr((paths, stamps, training, how))
    return hashlib.sha256(known_by.encode("utf-8", "surrogatepass")).hexdigest()


def recall_path(data: Path, known_by: str, characters: str, grows: bool) -> Path:
    """The second record of the texts with this fingerprint, encoded with these characters, or with
    a vocabulary that begins with them and grows. characters: "" if all were built from the texts.
    """
    name = hashlib.sha256(f"{known_by} {grows} {characters}".encode()).hexdigest()[:32]
    return data / f"{name}.json"
