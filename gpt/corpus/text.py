"""Joins the texts of a corpus: decodes them in chunks (encodings.py), counts and hashes them.

A text's digest is the BLAKE3 hash, in hexadecimal, of what is trained on, in UTF-8 with LF
(O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020): one text has one digest, however its file is
encoded. For a file in UTF-8 with LF and without a byte order mark, `b3sum` prints the same. This
module does not use ids.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.encodings import (
    UTF_8,
    BadByteError,
    choose_codec,
    decode,
    refusal,
    refuse_document,
    unix_lines,
)
from gpt.corpus.formats import read_column, table_of
from gpt.corpus.sources import Source, open_source, read_head
from gpt.storage.files import storage_errors
from gpt.vocabulary import code_points

CODE_POINTS = 0x110000  # of Unicode
CHUNK = 2**18  # bytes read at a time; arrays of this length fit in a processor's cache

#: A chunk: the number of its source, its UTF-8 bytes, and its (characters,) code points.
Chunk = tuple[int, bytes, npt.NDArray[np.unsignedinteger[Any]]]
Progress = Callable[[float], object]  # called with the share that is done


def no_progress(_: float) -> None:
    """Ignores progress."""


class Form(NamedTuple):
    """How a text is stored: its codec, and the bytes of its byte order mark and of its file."""

    codec: str
    start: int
    size: int


@dataclass(frozen=True)
class JoinedText:
    """The texts of these sources, one after the other.

    separator: stands between two texts, unless the first ends with it. encoding: of the texts that
    are not UTF-8 and have no byte order mark.
    """

    sources: Sequence[Source]
    separator: str = ""
    encoding: str = UTF_8

    @cached_property
    def forms(self) -> list[Form]:
        """How each text is stored. Raises TextError."""
        forms = []
        for source in self.sources:
            with open_source(source) as file:
                refuse_document(read_head(file), source.name)
                file.seek(0)
                codec, start = choose_codec(_parts(file), self.encoding)
                forms.append(Form(codec, start, os.fstat(file.fileno()).st_size))
        return forms

    @property
    def head(self) -> str:
        """The first characters. Raises TextError."""
        for _, encoded, _ in self.chunks():
            return encoded.decode()
        return ""

    def chunks(self, progress: Progress = no_progress) -> Iterator[Chunk]:
        """The text in chunks of whole characters, unchanged except for its line ends; a separator
        belongs to the text before it. Raises TextError.
        """
        separator, before, end = unix_lines(self.separator), -1, ""
        done, total = 0, max(1, sum(form.size for form in self.forms))
        for number, (source, form) in enumerate(zip(self.sources, self.forms, strict=True)):
            with open_source(source) as file:
                file.seek(form.start)
                try:
                    for text, encoded in decode(_parts(file), form.codec, form.start):
                        if text and before != number:
                            if before >= 0 and not end.endswith(separator):
                                yield before, separator.encode(), code_points(separator)
                            before, end = number, ""
                        if text:
                            points = np.frombuffer(encoded, np.uint8)
                            yield number, encoded, points if text.isascii() else code_points(text)
                            end = (end + text[-len(separator) :])[-len(separator) :]
                        progress(min(1.0, (done + file.tell()) / total))
                except BadByteError as error:
                    file.seek(error.byte // CHUNK * CHUNK)
                    raise refusal(source.name, error, file.read(2 * CHUNK)) from None
            done += form.size


def _parts(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(CHUNK):
        yield part


class TextMeasures(NamedTuple):
    """The result of the first reading of a text.

    digest: the text's digest. starts (sources + 1,): the position of each source's first character,
    then the number of characters. counts (2, CODE_POINTS): how often each character occurs in the
    training sources, and in the validation sources.
    """

    digest: str
    starts: tuple[int, ...]
    counts: npt.NDArray[np.int64]


def measure_text(
    text: JoinedText, training: int = 1, progress: Progress = no_progress
) -> TextMeasures:
    """Measures the text; the first `training` sources are for training. Raises TextError."""
    digest, lengths = blake3(), [0] * len(text.sources)
    counts = np.zeros((2, CODE_POINTS), np.int64)  # only pages that are written take memory
    for number, data, points in text.chunks(progress):
        digest.update(data)
        lengths[number] += len(points)
        times = np.bincount(points)
        counts[int(number >= training), : len(times)] += times
    return TextMeasures(digest.hexdigest(), tuple(accumulate(lengths, initial=0)), counts)


def column_source(source: Source, column: str, config: TrainConfig, data: Path) -> Source:
    """A file with the items of one column of a table, which the system deletes when it is closed.
    Raises TextError, StorageError.
    """
    text = JoinedText([source], encoding=config.encoding)
    separator, has_separator, is_first = config.text_separator, False, True
    items = read_column(_lines(text), table_of(text.head), column, source.name)
    with storage_errors(f"write {data}"):
        data.mkdir(parents=True, exist_ok=True)
        copy = tempfile.TemporaryFile(dir=data)  # noqa: SIM115
        try:
            for item in items:
                has_separator = has_separator or separator in item
                copy.write(f"{'' if is_first else separator}{item}".encode())
                is_first = False
            copy.flush()
        except BaseException:
            copy.close()
            raise
    note = f"{source.name}: some items contain the separator; give one that none has: `separator`"
    return Source(source.path, source.name, copy, note if has_separator else source.note)


def _lines(text: JoinedText) -> Iterator[str]:
    """The lines of a text with their ends."""
    rest = ""
    for _, encoded, _ in text.chunks():
        *lines, rest = (rest + encoded.decode()).split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest:
        yield rest
