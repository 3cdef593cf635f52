"""The texts of a corpus as one: read in chunks, refused where they are not UTF-8, counted, named.

A text's name is a hash of its UTF-8, written ALGORITHM:HEX: BLAKE3 (O'Connor, Aumasson, Neves and
Wilcox-O'Hearn, 2020), or SHA-256 in runs of gptx 0.2 and before. `b3sum` and `sha256sum` print the
same numbers for a file without a byte order mark. Knows nothing of ids.
"""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus.sources import Source
from gpt.errors import TextError
from gpt.vocabulary import code_points

TODAY = "blake3"
ALGORITHMS: dict[str, Callable[[], Any]] = {TODAY: blake3, "sha256": hashlib.sha256}
CHUNK = 2**18  # bytes: what is made of them still fits a processor's cache
SHORT = 2**14  # bytes of a chunk for which a thread is not worth while
HEAD = 4096  # bytes that tell what a file looks like
MOST_MADE_UP = 2**24  # bytes of a file that has no size
SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"\x89PNG": "a PNG picture",
    b"PK\x03\x04": "a zip archive",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}

Progress = Callable[[float], object]  # takes the share that is done


def no_progress(_: float) -> None:
    """Ignores progress."""


class Chunk(NamedTuple):
    """Bytes of a source as they were read, and the characters that end in them.

    The characters stay bytes if all are ASCII: decoding would only take time.
    """

    source: int
    raw: bytes
    text: str | bytes

    @property
    def points(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """(characters,) their code points."""
        text = self.text
        return np.frombuffer(text, np.uint8) if isinstance(text, bytes) else code_points(text)

    @property
    def counts(self) -> tuple[npt.NDArray[np.unsignedinteger[Any]] | slice, npt.NDArray[np.int64]]:
        """Which code points come, and how often each; of a long text none is left out."""
        points = self.points
        if len(points) < SHORT:
            return np.unique(points, return_counts=True)
        if points.itemsize > 1:
            counts = np.bincount(points)
            return slice(len(counts)), counts
        paired = len(points) // 2 * 2  # pairs of ASCII are counted in half of the time
        pairs = np.bincount(points[:paired].view(np.uint16), minlength=2**16).reshape(256, 256)
        rest = np.bincount(points[paired:], minlength=256)
        return slice(256), pairs.sum(axis=0) + pairs.sum(axis=1) + rest


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop`, never none, of a source's file; or of `data`, if that has any."""

    source: int
    name: str
    path: Path
    start: int
    stop: int
    data: bytes = b""

    @property
    def size(self) -> int:
        return self.stop - self.start

    def chunks(self) -> Iterator[Chunk]:
        """The text, exactly: no newline is translated, nothing is normalised. Raises TextError."""
        at, pending = self.start, b""
        for raw in self._read():
            data = pending + raw
            text: str | bytes = data
            used = len(data)
            if not data.isascii():
                try:
                    text, used = codecs.utf_8_decode(data, "strict", at + used == self.stop)
                except UnicodeDecodeError as error:
                    raise TextError(
                        f"{self.name}: invalid UTF-8 at byte {at + error.start}; convert it, for "
                        "example: iconv -f LATIN1 -t UTF-8 FILE"
                    ) from None
            yield Chunk(self.source, raw, text)
            at, pending = at + used, data[used:]

    def _read(self) -> Iterator[bytes]:
        """The bytes; characters may be cut. Raises TextError."""
        if self.data:
            yield self.data[self.start : self.stop]
            return
        left = self.size
        with opened(self.path, self.name) as file:
            file.seek(self.start)
            while left:
                data = file.read(min(left, CHUNK))
                if not data:
                    raise changed([self.name])
                yield data
                left -= len(data)


@dataclass(frozen=True)
class Measured:
    """The result of reading a text once.

    digest: ALGORITHM:HEX. starts (sources + 1,): the character with which each source begins,
    then how many there are. counts (2, code points): how often each character comes in the sources
    that train, and in those that validate.
    """

    digest: str
    starts: tuple[int, ...]
    counts: npt.NDArray[np.int64]


def measured(
    pieces: Sequence[Piece],
    algorithm: str = TODAY,
    sources: int = 1,
    training: int = 1,
    progress: Progress = no_progress,
) -> Measured:
    """Reads the text; of so many sources, the first `training` train. Raises TextError."""
    lengths = [0] * sources
    counts = np.zeros((2, 0x110000), np.int64)  # the system gives memory only where some is used

    def count(chunk: Chunk) -> None:
        lengths[chunk.source] += len(chunk.text)
        points, times = chunk.counts
        counts[int(chunk.source >= training), points] += times

    digest = read_through(pieces, algorithm, count, progress)
    return Measured(digest, tuple(accumulate(lengths, initial=0)), counts)


def read_through(
    pieces: Sequence[Piece], algorithm: str, work: Callable[[Chunk], None], progress: Progress
) -> str:
    """Reads, names and decodes a chunk while a thread works on the one before.

    Returns what the text is named by. Raises TextError, and what `work` raises.
    """
    digest, done, size = ALGORITHMS[algorithm](), 0, sum(piece.size for piece in pieces)
    working: Future[None] | None = None
    with ThreadPoolExecutor(1) as beside:
        for chunk in chain.from_iterable(piece.chunks() for piece in pieces):
            digest.update(chunk.raw)
            if working is not None:
                working.result()
            progress(done / size)
            working, done = None, done + len(chunk.raw)
            if len(chunk.raw) < SHORT:
                work(chunk)
            else:
                working = beside.submit(work, chunk)
        if working is not None:
            working.result()
    progress(1.0)
    return f"{algorithm}:{digest.hexdigest()}"


def pieces_of(sources: Sequence[Source], separator: str, notes: list[str]) -> list[Piece]:
    """The texts, one after the other; the separator where a text does not end with it.

    It belongs to the text that it ends, and comes only if another one follows. What is worth
    telling the user is added to `notes`. Raises TextError.
    """
    found: list[Piece] = []
    ends, end = True, separator.encode()
    for number, source in enumerate(sources):
        with opened(source.path, source.name) as file:
            head = file.read(HEAD)
            _refuse_what_is_no_text(head, source.name)
            start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
            if start:
                notes.append(f"left out the byte order mark of {source.name}")
            stop, data = os.fstat(file.fileno()).st_size, b""
            if stop < len(head) or len(head) < min(stop, HEAD):
                # The system makes it up while it is read, and its size tells nothing.
                data = head
                while len(data) <= MOST_MADE_UP and (more := file.read(CHUNK)):
                    data += more
                stop = len(data)
                if stop > MOST_MADE_UP:
                    raise TextError(f"{source.name} has no size; save it to a file first")
            if start >= stop:
                continue
            if not ends:
                last = found[-1]
                found.append(Piece(last.source, last.name, last.path, 0, len(end), end))
            found.append(Piece(number, source.name, source.path, start, stop, data))
            file.seek(max(start, stop - len(end)))
            ends = (data or file.read(len(end))).endswith(end)
    return found


def changed(names: Sequence[str]) -> TextError:
    """The error for files that changed while they were read."""
    files = ", ".join(names)
    return TextError(f"{files} was changed while it was read; try again when no program writes it")


@contextmanager
def opened(path: Path, name: str) -> Iterator[FileIO]:
    """A file to read bytes from. Raises TextError for what the system refuses."""
    try:
        with open(path, "rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise TextError(f"cannot read corpus {name}: {error.strerror or error}") from error


def _refuse_what_is_no_text(head: bytes, name: str) -> None:
    """Raises TextError."""
    for signature, what in SIGNATURES.items():
        if head.startswith(signature):
            raise TextError(f"{name} looks like {what}, not UTF-8 text")
    if len(head) >= 64 and head.count(0) > len(head) // 4:
        raise TextError(f"{name} looks like UTF-16 or binary, not UTF-8 text")


def algorithm_of(digest: str) -> str:
    """How a text was named: today's way if that is not known."""
    algorithm = digest.partition(":")[0]
    return algorithm if algorithm in ALGORITHMS else TODAY


def short(digest: str) -> str:
    """Enough of a digest to tell texts apart in the name of a file."""
    return digest.rpartition(":")[2][:16]
