"""Joins the texts of a corpus: decodes them in chunks (encodings.py), counts and hashes them.

A text's digest is the BLAKE3 hash, in hexadecimal, of what is trained on, in UTF-8 with LF
(O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020): one text has one digest, however its file is
encoded. For a file in UTF-8 with LF and without a byte order mark, `b3sum` prints the same. This
module does not use ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus.documents import refuse_document
from gpt.corpus.encodings import (
    UTF_8,
    BadByteError,
    LineDecoder,
    choose_codec,
    refusal,
    unix_lines,
)
from gpt.corpus.sources import Source, open_source, read_head
from gpt.errors import TextError
from gpt.vocabulary import code_points
from gpt.words import first_few

CODE_POINTS = 0x110000  # of Unicode
CHUNK = 2**18  # bytes read at a time; arrays of this length fit in a processor's cache
MOST_NAMED = 3  # texts that a note names

#: A chunk: the number of its source, its UTF-8 bytes, and its (characters,) code points.
Chunk = tuple[int, bytes, npt.NDArray[np.unsignedinteger[Any]]]
Progress = Callable[[float], object]  # called with the share that is done


def no_progress(_: float) -> None:
    """Ignores progress."""


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of a source's file, at least one.

    number: the number of the source. separator: stands before this text, unless the text before
    ends with it. codec: how the bytes are decoded.
    """

    number: int
    source: Source
    start: int
    stop: int
    separator: str = ""
    codec: str = UTF_8


@dataclass(frozen=True)
class TextMeasures:
    """The result of the first reading of a text.

    digest: the text's digest. starts (sources + 1,): the position of each source's first character,
    then the number of characters. counts (2, CODE_POINTS): how often each character occurs in the
    training sources, and in the validation sources. returns: names of the sources with carriage
    returns, which become LF.
    """

    digest: str
    starts: tuple[int, ...]
    counts: npt.NDArray[np.int64]
    returns: tuple[str, ...]


def text_pieces(
    sources: Sequence[Source], separator: str, notes: list[str], encoding: str = UTF_8
) -> list[Piece]:
    """The texts that are not empty. encoding: of those that are not UTF-8 and have no byte order
    mark. Adds notes for the user to `notes`. Raises TextError.
    """
    pieces: list[Piece] = []
    foreign: dict[str, list[str]] = {}  # codec -> names of texts
    for number, source in enumerate(sources):
        with open_source(source) as file:
            refuse_document(read_head(file), source.name)
            file.seek(0)
            codec, start = choose_codec(iter(partial(file.read, CHUNK), b""), encoding)
            stop = os.fstat(file.fileno()).st_size  # 0: a device, or a file that the system makes
        if start or codec != UTF_8:
            mark = " with a byte order mark" if start else ""
            foreign.setdefault(codec.upper() + mark, []).append(source.name)
        if start < stop:
            pieces.append(Piece(number, source, start, stop, unix_lines(separator), codec))
    for codec, names in foreign.items():
        notes.append(f"{first_few(names, MOST_NAMED, ', ')}: read as {codec}")
    return pieces


def read_pieces(
    pieces: Sequence[Piece], progress: Progress = no_progress, returns: set[str] | None = None
) -> Iterator[Chunk]:
    """The text in chunks of whole characters, unchanged except for its line ends. returns: receives
    the names of sources with carriage returns. Raises TextError.
    """
    done, end, size = 0, b"", sum(piece.stop - piece.start for piece in pieces)
    for before, piece in zip((None, *pieces), pieces, strict=False):
        separator = piece.separator.encode()
        if before and not end.endswith(separator):
            yield before.number, separator, code_points(piece.separator)
        end, decoder = b"", LineDecoder(piece.codec, piece.start)
        with open_source(piece.source) as file:
            file.seek(piece.start)
            for at in range(piece.start, piece.stop, CHUNK):
                wanted = min(CHUNK, piece.stop - at)
                data = file.read(wanted)
                if len(data) < wanted:
                    raise changed_error([piece])
                try:
                    points: npt.NDArray[Any]
                    if decoder.skip_unchanged(data):
                        points = np.frombuffer(data, np.uint8)
                    else:
                        text, data = decoder.decode(data, at + wanted == piece.stop)
                        points = code_points(text)
                except BadByteError as error:
                    more = data + file.read(CHUNK)
                    raise refusal(piece.source.name, error, more) from None
                kept = max(1, len(separator))
                end = (end + data[-kept:])[-kept:]
                if data:
                    yield piece.number, data, points
                done += wanted
                progress(done / size)
        if returns is not None and decoder.has_returns:
            returns.add(piece.source.name)


def measure_text(
    pieces: Sequence[Piece],
    sources: int = 1,
    training: int = 1,
    progress: Progress = no_progress,
) -> TextMeasures:
    """Measures the text; the first `training` sources are for training. Raises TextError."""
    digest, lengths, returns = blake3(), [0] * sources, set[str]()
    counts = np.zeros((2, CODE_POINTS), np.int64)  # only pages that are written take memory
    for number, data, points in read_pieces(pieces, progress, returns):
        digest.update(data)
        lengths[number] += len(points)
        times = np.bincount(points)
        counts[int(number >= training), : len(times)] += times
    starts = tuple(accumulate(lengths, initial=0))
    return TextMeasures(digest.hexdigest(), starts, counts, tuple(sorted(returns)))


def changed_error(pieces: Sequence[Piece]) -> TextError:
    """The error for files that changed while they were read."""
    names = ", ".join(dict.fromkeys(piece.source.name for piece in pieces))
    return TextError(f"{names} was changed while it was read; try again when no program writes it")
