"""The texts of a corpus as one, cut into spans of whole characters that are read on their own.

Says at which byte a file stops being UTF-8, and what a file that is no text looks like. Knows
nothing of ids.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO

import numpy as np

from gpt.corpus.digests import Digest
from gpt.corpus.sources import Source
from gpt.errors import TextError

CHUNK = 2**16  # bytes: what follows from them still fits a processor's cache
SPAN = 2**23  # bytes of a span, or more where there would be too many
MOST_SPANS = 2**10
HEAD = 4096  # bytes that tell what a file looks like
MOST_MADE_UP = 2**24  # bytes of a file that has no size
LONGEST = 4  # bytes of a character
SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"\x89PNG": "a PNG picture",
    b"PK\x03\x04": "a zip archive",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `stop` of a file, never none; or a short text that is in no file."""

    source: int
    name: str
    path: str
    start: int
    stop: int
    text: str = ""

    @property
    def size(self) -> int:
        return self.stop - self.start

    def read(self) -> Iterator[bytes]:
        """The UTF-8, some bytes at a time: characters may be cut. Raises TextError."""
        if self.text:
            yield self.text.encode()
            return
        left = self.size
        with opened(self.path, self.name) as file:
            file.seek(self.start)
            while left:
                data = file.read(min(left, CHUNK))
                if not data:
                    raise changed(self.name)
                yield data
                left -= len(data)

    def chunks(self) -> Iterator[str | bytes]:
        """The text, exactly: no newline is translated, nothing normalised. Raises TextError.

        A chunk that is ASCII stays bytes: nothing can be learnt by decoding it.
        """
        at, pending = self.start, b""
        for data in self.read():
            data = pending + data
            if data.isascii():
                yield data
                at, pending = at + len(data), b""
                continue
            try:
                last = at + len(data) == self.stop
                text, used = codecs.utf_8_decode(data, "strict", last)
            except UnicodeDecodeError as error:
                raise _no_utf8(self.name, at + error.start) from None
            if text:
                yield text
            at, pending = at + used, data[used:]


@dataclass(frozen=True)
class Text:
    """Spans, how many characters each has if it is UTF-8, and what all of them are named by."""

    spans: tuple[Span, ...]
    counts: tuple[int, ...]
    digest: str

    @property
    def characters(self) -> int:
        return sum(self.counts)

    def starts(self, sources: int) -> list[int]:
        """The character with which each of the sources begins, then how many there are."""
        starts: list[int] = []
        position = 0
        for span, count in zip(self.spans, self.counts, strict=True):
            starts += [position] * (span.source + 1 - len(starts))
            position += count
        return starts + [position] * (sources + 1 - len(starts))


def changed(name: str) -> TextError:
    """What to raise when a file is not what it was a moment ago."""
    return TextError(f"{name} was changed while it was read; try again when nobody writes it")


def _no_utf8(name: str, position: int) -> TextError:
    return TextError(
        f"{name}: invalid UTF-8 at byte {position}; convert it, for example: "
        f"iconv -f LATIN1 -t UTF-8 FILE"
    )


@contextmanager
def opened(path: str | os.PathLike[str], name: str) -> Iterator[FileIO]:
    """A file to read bytes from; what the system refuses is a TextError."""
    try:
        with open(path, "rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise TextError(f"cannot read corpus {name}: {error.strerror or error}") from error


def spans(sources: Sequence[Source], separator: str, notes: list[str]) -> list[Span]:
    """The texts, one after the other; the separator where a text does not end with it.

    It belongs to the text that it ends, and comes only if another one follows. What is worth
    telling the user is added to `notes`. Raises TextError.
    """
    found: list[Span] = []
    ends, end = True, separator.encode()
    size = span_size(total_bytes(sources))
    for number, source in enumerate(sources):
        with opened(source.path, source.name) as file:
            head = file.read(HEAD)
            _refuse_what_is_no_text(head, source.name)
            start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
            if start:
                notes.append(f"left out the byte order mark of {source.name}")
            stop, text = os.fstat(file.fileno()).st_size, ""
            if stop < len(head) or len(head) < min(stop, HEAD):
                # The system makes it up while it is read, and its size tells nothing.
                data = head
                while len(data) <= MOST_MADE_UP and (more := file.read(CHUNK)):
                    data += more
                text, stop = _all_of(data, source.name)[bool(start) :], 0
                if len(data) > MOST_MADE_UP:
                    raise TextError(f"{source.name} has no size; save it to a file first")
            if not text and start >= stop:
                continue
            if not ends:
                last = found[-1].source
                found.append(Span(last, sources[last].name, "", 0, len(end), separator))
            if text:
                found.append(Span(number, source.name, "", 0, len(text.encode()), text))
                ends = text.endswith(separator)
                continue
            place = str(source.path)
            for first, last in _cuts(file, start, stop, size):
                found.append(Span(number, source.name, place, first, last))
            file.seek(max(start, stop - len(end)))
            ends = file.read(len(end)) == end
    return found


def span_size(total: int) -> int:
    """Bytes of a span of a text of so many."""
    return max(SPAN, -(-total // MOST_SPANS))


def total_bytes(sources: Sequence[Source]) -> int:
    """How much there is to read, as far as it can be told."""
    total = 0
    for source in sources:
        with suppress(OSError):
            total += os.stat(source.path).st_size
    return total


def measured(
    spans: Sequence[Span], algorithm: str, told: Callable[[int], object] = lambda _: None
) -> Text:
    """`told` is called with how many bytes are done. Raises TextError."""
    digest, counts, size = Digest(algorithm), [], 0
    with ThreadPoolExecutor(1) as beside:  # neither holds the interpreter while it works
        for span in spans:
            if span.size > CHUNK:
                count = beside.submit(_characters, span.read())
                for data in span.read():
                    digest.update(data)
                counts.append(count.result())
            else:
                whole = list(span.read())
                digest.update(b"".join(whole))
                counts.append(_characters(whole))
            size += span.size
            told(size)
    return Text(tuple(spans), tuple(counts), digest.name())


def _characters(read: Iterable[bytes]) -> int:
    """How many characters begin here: bytes that do not go on with one."""
    found = (np.frombuffer(data, np.int8) >= -0x40 for data in read)
    return sum(int(np.count_nonzero(each)) for each in found)


def _cuts(file: FileIO, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Parts of a file of about so many bytes, between two characters."""
    while start < stop:
        cut = min(start + max(size, LONGEST), stop)
        if cut < stop:
            file.seek(cut)
            for byte in file.read(min(LONGEST - 1, stop - cut)):
                if byte & 0xC0 != 0x80:
                    break
                cut += 1
        yield start, cut
        start = cut


def _all_of(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _no_utf8(name, error.start) from None


def _refuse_what_is_no_text(head: bytes, name: str) -> None:
    """Raises TextError."""
    for signature, what in SIGNATURES.items():
        if head.startswith(signature):
            raise TextError(f"{name} looks like {what}, not UTF-8 text")
    if len(head) >= 64 and head.count(0) > len(head) // 4:
        raise TextError(f"{name} looks like UTF-16 or binary, not UTF-8 text")
