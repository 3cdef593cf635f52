"""Text -> ids in one reading, although the vocabulary is known only at its end.

While a text is read, threads beside hash it, count its characters and write it down in provisional
ids: ASCII stands for itself, every other character gets the next number when it first comes. What
follows is a lookup, from provisional ids to those of the sorted vocabulary. Memory does not grow
with the text. Knows no files but the draft's own, which has no name and so leaves nothing behind.
"""

from __future__ import annotations

import io
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gpt import files
from gpt.training.digests import TODAY, Digest
from gpt.training.texts import Piece
from gpt.vocabulary import Ids, code_points

ASCII = 128
IN_MEMORY = 2**24  # bytes of a draft that need no file
AT_ONCE = 2**19  # ids that are looked up together
PAIRS_FROM = 2**16  # bytes from which it pays to count them by twos
WAITING = 8  # chunks that the thread beside may lag behind

Progress = Callable[[float], object]  # takes the share that is done


def no_progress(_: float) -> None:
    """For those whom nobody watches."""


def bytes_of(ids: Ids) -> memoryview:
    """The bytes of an array that lie together, not copied."""
    return np.ascontiguousarray(ids).data.cast("B")


class Beside:
    """Does work in a thread, in order, a few pieces behind. An error comes out at the next one."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[Future[Any]] = deque()

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def do(self, work: Callable[[Any], Any], data: Any) -> None:
        """Waits only where the thread lags too far."""
        self._pending.append(self._pool.submit(work, data))
        self.wait(WAITING)

    def wait(self, left: int = 0) -> None:
        """Until no more than so many pieces are left."""
        while len(self._pending) > left:
            self._pending.popleft().result()


@dataclass(frozen=True)
class Draft:
    """A text in provisional ids, and what was learnt by reading it.

    points (ids,): the code point that each provisional id stands for; counts (ids,): how often it
    came; in_training (ids,): the same, without the sources that only validate. starts: the
    character with which each source begins, then how many characters there are.
    """

    digest: str
    points: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int64]
    in_training: npt.NDArray[np.int64]
    starts: tuple[int, ...]
    numbers: Numbers

    @property
    def characters(self) -> int:
        return self.starts[-1]

    def looked_up(self, table: Ids, spans: Sequence[tuple[int, int]]) -> Iterator[Ids]:
        """What the table has for each provisional id, span after span of characters."""
        narrow = table.tobytes().ljust(256) if table.itemsize == 1 else b""
        for first, last in spans:
            for start in range(first, last, AT_ONCE):
                data, dtype = self.numbers.read(start, min(AT_ONCE, last - start))
                if narrow and dtype.itemsize == 1:
                    # The same as table[ids], and twice as fast.
                    yield np.frombuffer(data.translate(narrow), np.uint8)
                else:
                    yield table[np.frombuffer(data, dtype)]

    def close(self) -> None:
        """The draft is gone; what was learnt stays."""
        self.numbers.close()


def draft(
    texts: Iterable[Piece],
    sources: int,
    training: int,
    folder: Path,
    algorithm: str = TODAY,
    progress: Progress = no_progress,
) -> Draft:
    """Reads the pieces of so many sources, of which the first `training` are to train on.

    A long draft lies in `folder`, which is then made. `progress` is told how many bytes have been
    read. Raises StorageError, and what reading the pieces raises.
    """
    digest, numbers = Digest(algorithm), Numbers(folder)
    starts, characters, size = [0], 0, 0
    in_training: npt.NDArray[np.int64] | None = None
    try:
        # Three cores at work: what decodes the pieces is here, between two of them.
        with Beside() as hashing, Beside() as numbering:
            for piece in texts:
                if piece.source >= training and in_training is None:
                    numbering.wait()
                    in_training = numbers.counts()
                starts += [characters] * (piece.source + 1 - len(starts))
                hashing.do(digest.update, piece.data)
                numbering.do(numbers.append, piece)
                characters += len(piece.text)
                size += len(piece.data)
                progress(size)
            numbering.wait()
            hashing.wait()
        starts += [characters] * (sources + 1 - len(starts))
        counts = numbers.counts()
        in_training = counts if in_training is None else in_training
        in_training = np.pad(in_training, (0, len(counts) - len(in_training)))
        return Draft(digest.name(), numbers.points(), counts, in_training, tuple(starts), numbers)
    except BaseException:
        numbers.close()
        raise


class Numbers:
    """Characters as provisional ids, written down and counted. Raises StorageError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._others: list[int] = []  # code points beyond ASCII, as they came
        self._store = Store(folder)
        self._counted = np.zeros(0, np.int64)  # what was counted before ids grew wider
        self._use(np.dtype(np.uint8))

    def _use(self, dtype: np.dtype[Any]) -> None:
        """Ids of this type from now on; its largest number means none."""
        self._dtype, self._none = dtype, int(np.iinfo(dtype).max)
        self._table = np.full(0x110000, self._none, dtype)  # code point -> provisional id
        self._table[:ASCII] = np.arange(ASCII)
        self._table[self._others] = np.arange(ASCII, self._kinds)
        self._counts = self._counted.copy()
        self._pairs = np.zeros(2**16 if dtype.itemsize == 1 else 0, np.int64)

    @property
    def _kinds(self) -> int:
        return ASCII + len(self._others)

    def points(self) -> npt.NDArray[np.uint32]:
        """(ids,) the code point that each id stands for."""
        return np.array([*range(ASCII), *self._others], np.uint32)

    def append(self, piece: Piece) -> None:
        """A piece's characters, after those before it."""
        if piece.text.isascii():
            ids: Ids = np.frombuffer(piece.data, np.uint8).astype(self._dtype, copy=False)
        else:
            points = code_points(piece.text)
            ids = self._table[points]
            missing = ids == self._none
            if missing.any():
                self._meet(np.unique(points[missing]).tolist())
                ids = self._table[points]
        self._count(ids)
        self._store.append(bytes_of(ids))

    def _meet(self, points: list[int]) -> None:
        """Gives new characters their ids; wider ones to all, if they are too many."""
        first = self._kinds
        self._others += points
        if self._kinds > self._none:
            self._widen(np.dtype(np.uint16 if self._kinds <= 0xFFFF else np.uint32))
        else:
            self._table[points] = np.arange(first, self._kinds)

    def _widen(self, dtype: np.dtype[Any]) -> None:
        self._counted = self.counts()
        narrow, wide = self._store, Store(self._folder)
        try:
            for start in range(0, narrow.size, AT_ONCE):
                part = np.frombuffer(narrow.read(start, AT_ONCE), self._dtype)
                wide.append(bytes_of(part.astype(dtype)))
        finally:
            self._store = wide
            narrow.close()
        self._use(dtype)

    def _count(self, ids: Ids) -> None:
        if len(self._pairs) and len(ids) >= PAIRS_FROM:
            even = len(ids) & ~1
            pairs: Ids = ids[:even].view(np.uint16)
            self._pairs += np.bincount(pairs, minlength=2**16)
            ids = ids[even:]
        self._add(np.bincount(ids))

    def _add(self, counts: npt.NDArray[np.int64]) -> None:
        if len(counts) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(counts) - len(self._counts)))
        self._counts[: len(counts)] += counts

    def counts(self) -> npt.NDArray[np.int64]:
        """(ids,) how often each came so far."""
        if len(self._pairs):
            square = self._pairs.reshape(256, 256)
            self._add(square.sum(axis=0) + square.sum(axis=1))
            self._pairs[:] = 0
        counts = np.zeros(self._kinds, np.int64)
        found = self._counts[: self._kinds]
        counts[: len(found)] = found
        return counts

    def read(self, start: int, count: int) -> tuple[bytes, np.dtype[Any]]:
        """So many provisional ids from one on, as they are stored, and their type."""
        size = self._dtype.itemsize
        return self._store.read(start * size, count * size), self._dtype

    def close(self) -> None:
        self._store.close()


class Store:
    """Bytes that are written once and read anywhere: in memory, when they are many in a file.

    The file has no name where the system allows that, so nothing is left of it whatever happens.
    Raises StorageError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] = io.BytesIO()
        self.size = 0

    def append(self, data: bytes | memoryview) -> None:
        with files.storage_errors(f"write {self._folder}"):
            if self.size <= IN_MEMORY < self.size + len(data):
                self._spill()
            self._file.seek(self.size)
            self._write(data)
        self.size += len(data)

    def _spill(self) -> None:
        memory, self._file = self._file, self._to_disk()
        memory.seek(0)
        self._write(memory.read())

    def _write(self, data: bytes | memoryview) -> None:
        """Every byte, although the system may take fewer at a time."""
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]

    def _to_disk(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Read and written in large pieces: a buffer would only copy them once more.
        return tempfile.TemporaryFile(dir=self._folder, prefix=".tmp-", buffering=0)

    def read(self, start: int, size: int) -> bytes:
        """So many bytes from one on, or those that there are."""
        parts, left = [], min(size, self.size - start)
        with files.storage_errors(f"read what was written in {self._folder}"):
            self._file.seek(start)
            while left > 0 and (part := self._file.read(left)):
                parts.append(part)
                left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()
