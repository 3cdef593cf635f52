"""The texts of a corpus as one stream: whole characters, checked, in chunks.

Says at which byte a file stops being UTF-8, and what a file that is no text looks like. Knows
nothing of ids.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpt.errors import TextError
from gpt.training.sources import Source

CHUNK = 2**19  # bytes: what follows from a chunk still fits a processor's cache
HEAD = 4096  # bytes that tell what a file looks like
SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"\x89PNG": "a PNG picture",
    b"PK\x03\x04": "a zip archive",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True)
class Piece:
    """Some characters of a source, never none: as text, and the same as UTF-8."""

    source: int
    text: str
    data: bytes


def pieces(sources: Sequence[Source], separator: str, notes: list[str]) -> Iterator[Piece]:
    """The texts, one after the other; the separator where a text does not end with it.

    It belongs to the text that it ends, and comes only if another one follows. What is worth
    telling the user is added to `notes`. Raises TextError.
    """
    last, end, size = -1, "", max(1, len(separator))  # the source that came last, and how it ends
    for number, source in enumerate(sources):
        for text, data in _decoded(source, notes):
            if last not in (-1, number) and not end.endswith(separator):
                yield Piece(last, separator, separator.encode())
            end = ((end if last == number else "") + text[-size:])[-size:]
            last = number
            yield Piece(number, text, data)


def total_bytes(sources: Sequence[Source]) -> int:
    """How much there is to read, as far as it can be told."""
    total = 0
    for source in sources:
        with suppress(OSError):
            total += os.stat(source.path).st_size
    return total


def _decoded(source: Source, notes: list[str]) -> Iterator[tuple[str, bytes]]:
    """A file's text in chunks, exactly: no newline is translated, nothing normalised."""
    try:
        with open(source.path, "rb", buffering=0) as file:
            head = file.read(HEAD)
            _refuse_what_is_no_text(head, source.name)
            start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
            if start:
                notes.append(f"left out the byte order mark of {source.name}")
            file.seek(start)
            pending, offset = b"", start  # offset: where `pending` begins
            while chunk := file.read(CHUNK):
                data = pending + chunk
                text, used = codecs.utf_8_decode(data, "strict", False)
                pending, offset = data[used:], offset + used
                if text:
                    yield text, data[:used]
            codecs.utf_8_decode(pending, "strict", True)
    except UnicodeDecodeError as error:
        position = offset + error.start
        raise TextError(
            f"{source.name}: invalid UTF-8 at byte {position}; convert it, for example: "
            f"iconv -f LATIN1 -t UTF-8 FILE"
        ) from None
    except OSError as error:
        raise TextError(f"cannot read corpus {source.name}: {error.strerror or error}") from error


def _refuse_what_is_no_text(head: bytes, name: str) -> None:
    """Raises TextError."""
    for signature, what in SIGNATURES.items():
        if head.startswith(signature):
            raise TextError(f"{name} looks like {what}, not UTF-8 text")
    if len(head) >= 64 and head.count(0) > len(head) // 4:
        raise TextError(f"{name} looks like UTF-16 or binary, not UTF-8 text")
