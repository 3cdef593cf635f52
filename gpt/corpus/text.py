"""Joins the texts of a corpus: decodes them in chunks (encodings.py), counts and hashes them.

A text's digest is the BLAKE3 hash, in hexadecimal, of what is trained on, in UTF-8 with LF
(O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020): one text has one digest, however its file is
encoded. For a file in UTF-8 with LF and without a byte order mark, `b3sum` prints the same. This
module does not use ids.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import accumulate
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus import encodings
from gpt.corpus.encodings import HEAD, NAMES, UTF_8, WINDOWS, decode, unix_lines
from gpt.corpus.sources import Source, open_source, read_head
from gpt.errors import TextError
from gpt.vocabulary import code_points

CODE_POINTS = 0x110000  # of Unicode
CHUNK = 2**18  # bytes read at a time, at least 4; arrays of this length fit in a processor's cache

#: A chunk: the number of its source, its UTF-8 bytes, and its (characters,) code points.
Chunk = tuple[int, bytes, npt.NDArray[np.unsignedinteger[Any]]]
Progress = Callable[[float], object]  # called with the share that is done


def no_progress(_: float) -> None:
    """Ignores progress."""


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of a source's file, or of `data` if `data` is not empty.

    number: the number of the source. codec: how its bytes are decoded. A piece has at least one
    byte.
    """

    number: int
    source: Source
    start: int
    stop: int
    data: bytes = b""
    codec: str = UTF_8


@dataclass(frozen=True)
class TextMeasures:
    """The result of the first reading of a text.

    digest: the text's digest. starts (sources + 1,): the position of each source's first character,
    then the number of characters. counts (2, CODE_POINTS): how often each character occurs in the
    training sources, and in the validation sources. returns: number of a source -> its carriage
    returns, which become LF.
    """

    digest: str
    starts: tuple[int, ...]
    counts: npt.NDArray[np.int64]
    returns: Counter[int]


def text_pieces(
    sources: Sequence[Source], separator: str, notes: list[str], checks_utf8: bool = False
) -> list[Piece]:
    """The texts; each gets the separator, unless it ends with it or no other text follows.

    Adds notes for the user to `notes`. checks_utf8: reads each text once more to find out whether
    it is UTF-8; otherwise all texts that are not UTF-16 count as UTF-8. Raises TextError.
    """
    found: list[Piece] = []
    foreign: dict[str, dict[str, str]] = {}  # codec -> name -> excerpt
    ends, end = True, unix_lines(separator)
    for number, source in enumerate(sources):
        with open_source(source) as file:
            head = read_head(file)
            encodings.require_text(head, source.name)
            codec, start = encodings.detect_codec(head[:HEAD], source.name)
            if start and codec == UTF_8:
                notes.append(f"left out the byte order mark of {source.name}")
            if codec != UTF_8:
                sample = decode(head[start : len(head) // 2 * 2], codec, False)[0]
                foreign.setdefault(NAMES[codec], {})[source.name] = encodings.excerpt(sample)
            elif checks_utf8 and (line := _excerpt_of_windows(file, source.name)):
                codec = WINDOWS
                foreign.setdefault(NAMES[codec], {})[source.name] = line
            stop = os.fstat(file.fileno()).st_size  # 0: a device, or a file that the system makes
            if start >= stop:
                continue
            if not ends:
                last = found[-1]
                data = end.encode()
                found.append(Piece(last.number, last.source, 0, len(data), data))
            found.append(Piece(number, source, start, stop, codec=codec))
            # The last bytes, enough for the separator in every encoding, with CR LF.
            file.seek(max(start, stop - 8 * len(end)))
            ends = unix_lines(file.read().decode(codec, "replace")).endswith(end)
    notes += [encodings.note_on_codec(name, read) for name, read in foreign.items()]
    return found


def _excerpt_of_windows(file: BinaryIO, name: str) -> str:
    """An excerpt of a text in Windows-1252; "" for UTF-8. Raises TextError for other ones."""
    file.seek(0)
    at, rest = 0, b""
    while chunk := file.read(CHUNK):
        try:
            data = rest + chunk
            used = decode(data, UTF_8, False)[1]
        except UnicodeDecodeError as error:
            byte = at + error.start
            break
        at, rest = at + used, data[used:]
    else:
        return ""
    file.seek(0)
    sample = encodings.sample_lines(iter(partial(file.read, CHUNK), b""))
    encodings.require_windows(sample, name, byte)
    return encodings.excerpt(sample.decode(WINDOWS))


def read_pieces(
    pieces: Sequence[Piece],
    progress: Progress = no_progress,
    returns: Counter[int] | None = None,
) -> Iterator[Chunk]:
    """The text in chunks of whole characters, unchanged except for its line ends. returns: counts
    the carriage returns of each source. Raises TextError, or NotUtf8Error, which is one, for a text
    that counts as UTF-8 but is not.
    """
    done, size = 0, sum(piece.stop - piece.start for piece in pieces)
    for piece in pieces:
        at, name, codec = piece.start, piece.source.name, piece.codec
        with BytesIO(piece.data) if piece.data else open_source(piece.source) as file:
            while at < piece.stop:
                file.seek(at)
                wanted = min(CHUNK, piece.stop - at)
                data = file.read(wanted)
                if len(data) < wanted:
                    raise changed_error([piece])
                if codec == UTF_8 and data.isascii() and b"\r" not in data:
                    points: npt.NDArray[Any] = np.frombuffer(data, np.uint8)
                    used = wanted
                else:
                    try:
                        last = at + wanted == piece.stop
                        text, used, ends = decode(data, codec, last)
                    except UnicodeDecodeError as error:
                        raise encodings.decoding_error(name, at + error.start, codec) from None
                    if returns is not None:
                        returns[piece.number] += ends
                    data = text.encode() if ends or codec != UTF_8 else data[:used]
                    points = code_points(text)
                yield piece.number, data, points
                at += used
                done += used
                progress(done / size)


def measure_text(
    pieces: Sequence[Piece],
    sources: int = 1,
    training: int = 1,
    progress: Progress = no_progress,
) -> TextMeasures:
    """Measures the text; the first `training` sources are for training. Raises TextError."""
    digest, lengths, returns = blake3(), [0] * sources, Counter[int]()
    counts = np.zeros((2, CODE_POINTS), np.int64)  # only pages that are written take memory
    for number, data, points in read_pieces(pieces, progress, returns):
        digest.update(data)
        lengths[number] += len(points)
        times = np.bincount(points)
        counts[int(number >= training), : len(times)] += times
    starts = tuple(accumulate(lengths, initial=0))
    return TextMeasures(digest.hexdigest(), starts, counts, returns)


def changed_error(pieces: Sequence[Piece]) -> TextError:
    """The error for files that changed while they were read."""
    names = ", ".join(dict.fromkeys(piece.source.name for piece in pieces))
    return TextError(f"{names} was changed while it was read; try again when no program writes it")
