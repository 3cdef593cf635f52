"""Decodes texts: UTF-8, texts with a byte order mark, and the encoding that the user names.

Other bytes are refused, with a line of the text in its likeliest encodings; nothing is guessed.
Knows bytes, and names for errors, but no files. Imports no numpy.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain

from gpt.errors import TextError

UTF_8 = "utf-8"
BOMS = {  # those of UTF-32 first, as they begin like those of UTF-16
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
SAMPLE = 2**13  # bytes of lines that show an encoding
QUOTED = 40  # characters of such a line that an error shows
USUAL = (
    "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 cp874 cp437 cp850 cp852 cp855 cp857 "
    "cp862 cp866 cp737 cp775 koi8-r iso8859-2 iso8859-5 iso8859-6 iso8859-7 iso8859-15 mac-roman "
    "mac-cyrillic mac-latin2 cp932 euc-jp gb18030 big5 cp949 johab"
).split()
JAPANESE = re.compile(rb"\x1b(\$[@B]|\(J)")  # ISO-2022-JP switches to Japanese and back
CONTROL = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
#: What no text has between letters („ ” ‡ ¢): all but ASCII, apostrophes, dashes, combining marks
#: and Asian punctuation.
BETWEEN_LETTERS = re.compile(
    r"(?<=[^\W\d_])[^\w\s\0-\x7f’‘·–—…\xad\u0300-\u036f\u3000-\u303f\uff00-\uffef]+(?=[^\W\d_])"
)


class BadByteError(Exception):
    """Bytes are no text from this one on."""

    def __init__(self, byte: int, what: str) -> None:
        super().__init__(f"byte {byte:,} {what}")


class LineDecoder:
    """Decodes a text that begins at byte `at`, in pieces; CR LF and CR become LF."""

    def __init__(self, codec: str, at: int = 0) -> None:
        self.codec, self.at = codec, at
        self.characters = codecs.getincrementaldecoder(codec)()
        self.lines = io.IncrementalNewlineDecoder(self.characters, translate=True)

    @property
    def has_returns(self) -> bool:
        """Whether the text has had carriage returns so far."""
        return any("\r" in end for end in self.lines.newlines or ())

    def skip_unchanged(self, data: bytes) -> bool:
        """Skips the next bytes if they are ASCII that decoding would not change."""
        special = b"\r" in data or b"\0" in data or b"\x1b" in data or any(self.lines.getstate())
        if self.codec != UTF_8 or special or not data.isascii():
            return False
        self.at += len(data)
        return True

    def decode(self, data: bytes, last: bool) -> tuple[str, bytes]:
        """The next characters, and their UTF-8. last: no bytes follow. Raises BadByteError."""
        held, ends = self.lines.getstate()  # bytes of a character; not 0: after CR, LF may follow
        if self.codec == UTF_8 and data.isascii() and (escape := JAPANESE.search(data)):
            raise BadByteError(self.at + escape.start(), "begins an escape sequence of ISO-2022-JP")
        try:
            if self.codec == UTF_8 and not ends and b"\r" not in data:  # the same, but faster
                text = self.characters.decode(data, last)
                encoded = (held + data).removesuffix(self.characters.getstate()[0])
            else:
                text = self.lines.decode(data, last)
                encoded = text.encode()  # fails for lone surrogates, which some codecs know
        except UnicodeError as error:
            start = error.start if isinstance(error, UnicodeDecodeError) else len(held)
            raise BadByteError(
                self.at - len(held) + start, f"is not {self.codec.upper()}"
            ) from None
        if b"\0" in encoded:
            place = max(0, data.find("\0".encode(self.codec)))
            raise BadByteError(self.at + place, "is a NUL character, which no text has")
        self.at += len(data)
        return text, encoded


def choose_codec(chunks: Iterable[bytes], encoding: str) -> tuple[str, int]:
    """The codec of a text, and the bytes of its byte order mark. encoding: of a text that has no
    such mark and is not UTF-8. It is that of a text in ASCII, too, which may be ISO-2022-JP.
    """
    chunks, named = iter(chunks), codecs.lookup(encoding).name
    head = next(chunks, b"")
    for mark, codec in BOMS.items():
        if head.startswith(mark):
            return codec, len(mark)
    if named != UTF_8:
        decoder = codecs.getincrementaldecoder(UTF_8)()
        is_text, is_ascii = True, not named.startswith(("utf-16", "utf-32"))
        with suppress(UnicodeDecodeError):
            for chunk in chain((head,), chunks):
                is_text, is_ascii = is_text and b"\0" not in chunk, is_ascii and chunk.isascii()
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
            return (UTF_8 if is_text and not is_ascii else named), 0
    return named, 0


def unix_lines(text: str) -> str:
    """The text with LF in place of CR LF and CR, as Python reads text files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode_text(data: bytes, name: str, encoding: str, last: bool = True) -> tuple[str, str]:
    """A text, or its start if it is not the `last` of it, and its codec. Raises TextError."""
    codec, start = choose_codec([data], encoding)
    try:
        return LineDecoder(codec, start).decode(data[start:], last)[0], codec
    except BadByteError as error:
        raise refusal(name, error, data) from None


def refusal(name: str, error: BadByteError, data: bytes) -> TextError:
    """The error for a text that is not in this codec: a line of it in the likeliest encodings, each
    with the option that reads it. data: the bytes where the error is, and more.
    """
    lines = data.splitlines(keepends=True)
    foreign = [line for line in lines if b"\x1b" in line or not line.isascii()]
    sample = (data if b"\0" in data else b"".join(foreign))[:SAMPLE]
    decoded = sample.decode(UTF_8, "replace")
    wrong = decoded.count("\ufffd")
    if b"\0" not in data and sum(each > "\x7f" for each in decoded) > 2 * wrong > 0:
        return TextError(f"{name}: {error}, but what is around it is; the text is damaged there")
    readings = _readings(sample)
    if not readings:
        return TextError(f"{name}: {error}; it looks like binary data, not text")
    rows = [[*map(_excerpt, row)] for row in zip(*map(str.splitlines, readings), strict=False)]
    row = next((row for row in rows if len({*row}) == len(row)), rows[0])
    options = (
        f"“{line}” with `encoding='{reading}'`"
        for line, reading in zip(row, readings.values(), strict=True)
    )
    return TextError(f"{name}: {error}; one of its lines is {' or '.join(options)}")


def _readings(sample: bytes) -> dict[str, str]:
    """The sample in each of its three likeliest encodings -> the encoding, the likeliest first."""
    if sample.count(0) * 4 > len(sample):
        names = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
    elif sample.isascii():
        names = ["iso2022-jp", "iso2022-jp-ext"]
    else:
        from charset_normalizer import from_bytes

        names = [match.encoding for match in from_bytes(sample)] or USUAL
    usual = {_decoded(sample, name): name for name in reversed(USUAL)}
    readings: dict[str, str] = {}
    for name in names:
        if text := _decoded(sample, name):
            readings.setdefault(text, usual.get(text, name))

    texts = sorted(readings, key=lambda text: text not in usual)
    likely = [text for text in texts if not _is_strange(text)] or texts
    return {text: readings[text] for text in likely[:3]}


def _is_strange(text: str) -> bool:
    """Whether many signs that are not ASCII stand between letters."""
    foreign = sum(each > "\x7f" for each in text)
    return 20 * len(BETWEEN_LETTERS.findall(text)) > foreign


def _decoded(sample: bytes, codec: str) -> str:
    """The sample in this codec; "" if it is not a text."""
    with suppress(UnicodeError):
        text = codecs.getincrementaldecoder(codec)().decode(sample)
        return "" if CONTROL.search(text) else text
    return ""


def _excerpt(line: str) -> str:
    """A line, cut around its first character that is not ASCII."""
    at = next((place for place, each in enumerate(line) if each > "\x7f"), 0)
    start = max(0, min(at - QUOTED // 2, len(line) - QUOTED))
    end = start + QUOTED
    return "…" * (start > 0) + line[start:end].replace("`", "'") + "…" * (end < len(line))
