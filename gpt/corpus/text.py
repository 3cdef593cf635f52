"""Joins the texts of a corpus: reads them in chunks, checks that they are UTF-8, counts, hashes.

A text's digest is the BLAKE3 hash of its UTF-8 in hexadecimal (O'Connor, Aumasson, Neves and
Wilcox-O'Hearn, 2020). `b3sum` prints the same for a file without a byte order mark. This module
does not use ids.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus.sources import HEAD, Source, check_is_text, not_utf8, opened
from gpt.errors import TextError
from gpt.vocabulary import code_points

CHUNK = 2**18  # bytes read at a time, at least 4; arrays made from them fit in a processor's cache

#: Number of the source, UTF-8 bytes, (characters,) their code points.
Chunk = tuple[int, bytes, npt.NDArray[np.unsignedinteger[Any]]]
Progress = Callable[[float], object]  # called with the share that is done


def no_progress(_: float) -> None:
    """Ignores progress."""


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of a source's file, or of `data` if `data` is not empty.

    number: of the source. A piece has at least one byte.
    """

    number: int
    source: Source
    start: int
    stop: int
    data: bytes = b""


@dataclass(frozen=True)
class Measured:
    """The result of reading a text once.

    digest: of the text. starts (sources + 1,): the position of each source's first character,
    then the number of characters. counts (2, code points): how often each character occurs in the
    sources that train, and in those that validate.
    """

    digest: str
    starts: tuple[int, ...]
    counts: npt.NDArray[np.int64]


def pieces_of(sources: Sequence[Source], separator: str, notes: list[str]) -> list[Piece]:
    """The texts, one after the other, with the separator after each that does not end with it.

    A separator belongs to the text before it, and comes only if another text follows. Notes for
    the user are added to `notes`. Raises TextError.
    """
    found: list[Piece] = []
    ends, end = True, separator.encode()
    for number, source in enumerate(sources):
        with opened(source) as file:
            head = file.read(HEAD) or b""  # None: a device that would wait
            check_is_text(head, source.name)
            start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
            if start:
                notes.append(f"left out the byte order mark of {source.name}")
            stop = os.fstat(file.fileno()).st_size  # 0: a device, or a file of the system itself
            if start >= stop:
                continue
            if not ends:
                last = found[-1]
                found.append(Piece(last.number, last.source, 0, len(end), end))
            found.append(Piece(number, source, start, stop))
            file.seek(max(start, stop - len(end)))
            ends = file.read(len(end)) == end
    return found


def read(pieces: Sequence[Piece], progress: Progress = no_progress) -> Iterator[Chunk]:
    """The text in chunks of whole characters, exactly: no newline is translated, nothing is
    normalised. Raises TextError.
    """
    done, size = 0, sum(piece.stop - piece.start for piece in pieces)
    for piece in pieces:
        at, name = piece.start, piece.source.name
        with BytesIO(piece.data) if piece.data else opened(piece.source) as file:
            while at < piece.stop:
                file.seek(at)
                wanted = min(CHUNK, piece.stop - at)
                data = file.read(wanted)
                if len(data) < wanted:
                    raise changed([piece])
                if data.isascii():
                    points: npt.NDArray[Any] = np.frombuffer(data, np.uint8)
                else:
                    try:
                        last = at + wanted == piece.stop
                        text, used = codecs.utf_8_decode(data, "strict", last)
                    except UnicodeDecodeError as error:
                        raise not_utf8(name, at + error.start) from None
                    data, points = data[:used], code_points(text)
                yield piece.number, data, points
                at += len(data)
                done += len(data)
                progress(done / size)


def measured(
    pieces: Sequence[Piece],
    sources: int = 1,
    training: int = 1,
    progress: Progress = no_progress,
) -> Measured:
    """Reads the text; the first `training` sources are for training. Raises TextError."""
    digest, lengths = blake3(), [0] * sources
    counts = np.zeros((2, 0x110000), np.int64)  # only pages that are written take memory
    for number, data, points in read(pieces, progress):
        digest.update(data)
        lengths[number] += len(points)
        times = np.bincount(points)
        counts[int(number >= training), : len(times)] += times
    starts = tuple(accumulate(lengths, initial=0))
    return Measured(digest.hexdigest(), starts, counts)


def changed(pieces: Sequence[Piece]) -> TextError:
    """The error for files that changed while they were read."""
    names = ", ".join(dict.fromkeys(piece.source.name for piece in pieces))
    return TextError(f"{names} was changed while it was read; try again when no program writes it")
