"""Decodes the bytes of a text as UTF-8, UTF-16 or Windows-1252, and makes every line end LF.

The first bytes of a file show what it is; to accept a text as Windows-1252, we look for evidence in
it. Knows bytes, and names for errors, but no files. Imports no numpy.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gpt.errors import TextError
from gpt.words import first_few

UTF_8, WINDOWS = "utf-8", "cp1252"
#: Codec -> its name for the user.
NAMES = {UTF_8: "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", WINDOWS: "Windows-1252"}
BOMS = {codecs.BOM_UTF8: UTF_8, codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

HEAD = 4096  # bytes at the start of a file that show its kind
TAIL = 2**16  # bytes at the end of a zip archive that list its files
SAMPLE = 2**16  # bytes of lines that are not ASCII: enough evidence
LEAST_ZEROS = 8  # zero bytes, as evidence of UTF-16 without a byte order mark
LEAST = 40  # characters outside ASCII; fewer are too little evidence of a language
MOST_CHAOS = 5.0  # per cent of "chaos" (charset-normalizer) by which another reading may be lower
MOST_FOREIGN = 0.02  # share of these letters that the text's language may lack
MOST_NAMED = 3  # files that a note names
QUOTED = 60  # characters of a line that a note quotes

PANDOC = "pandoc {file} -t plain --wrap=none -o {new}"
#: First bytes of a file -> what the file is, and a command that makes a text of it.
DOCUMENTS = {
    b"%PDF": ("a PDF", "pdftotext -layout {file} {new}"),
    b"{\\rtf": ("RTF", PANDOC),
    b"\xd0\xcf\x11\xe0": ("an old Word document", "libreoffice --headless --convert-to txt {file}"),
    b"\x1f\x8b": ("gzip", "gzip -dc < {file} > {new}"),
    b"\xff\xfe\0\0": ("UTF-32", "iconv -f UTF-32 -t UTF-8 {file} > {new}"),
    b"\x89PNG": ("a PNG picture", ""),
    b"\xff\xd8\xff": ("a JPEG picture", ""),
}
ZIP = b"PK\x03\x04"
#: The kinds of zip archives, recognised by names of files or by the type that is stored first.
ARCHIVES = {
    b"word/": ("a Word document", PANDOC),
    b"application/vnd.oasis.opendocument.text": ("an OpenDocument text", PANDOC),
    b"application/epub+zip": ("an EPUB", PANDOC),
}
#: Letters outside ASCII of languages that Windows-1252 was made for.
ALPHABETS = {
    "French": "àâæçèéêëîïôœùûüÿ",
    "German": "äöüßé",
    "Spanish, Catalan": "áàéèíïóòúüñçª",
    "Portuguese": "áâãàçéêíóôõúªº",
    "Italian": "àèéìíîòóùú",
    "Dutch, Afrikaans": "áäèéêëíîïóôöúûü",
    "Swedish, Finnish, Danish, Norwegian": "åäöæøéàüèô",
    "Icelandic, Faroese": "áðéíóúýþæöø",
    "Estonian": "äöõüšž",
}
_CONTROL = re.compile("[\0-\x08\x0e-\x1f\x7f]")


def decode(data: bytes, codec: str, last: bool) -> tuple[str, int, int]:
    """Decodes the whole characters at the start of `data`; returns the text, the number of bytes
    used, and the number of carriage returns: CR LF, and CR alone, become LF.

    last: no bytes follow; otherwise a CR at the end is left for the next call, as LF may follow.
    Raises UnicodeDecodeError.
    """
    text, used = _DECODERS[codec](data, "strict", last)
    if "\r" not in text:
        return text, used, 0
    width = len("\r".encode(codec))
    if text[-1] == "\r" and len(data) - used < width and not last:
        text, used = text[:-1], used - width
    return unix_lines(text), used, text.count("\r")


_DECODERS: dict[str, Callable[[bytes, str, bool], tuple[str, int]]] = {
    WINDOWS: lambda data, errors, _: (data.decode(WINDOWS, errors), len(data)),
    UTF_8: codecs.utf_8_decode,
    "utf-16-le": codecs.utf_16_le_decode,
    "utf-16-be": codecs.utf_16_be_decode,
}


def unix_lines(text: str) -> str:
    """The text with LF in place of CR LF and CR, as Python reads text files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def require_text(head: bytes, name: str) -> None:
    """Raises TextError, which says what to do, if the first bytes are not those of a text.

    head: the first bytes of the file; for a zip archive, also its end, where it lists its files.
    """
    is_zip = head.startswith(ZIP)
    for mark, (what, command) in (ARCHIVES if is_zip else DOCUMENTS).items():
        if mark in head if is_zip else head.startswith(mark):
            new = "NEW.txt" if name == "-" else shlex.quote(f"{name}.txt")
            advice = "; convert it: " + command.format(file=_file(name), new=new) if command else ""
            raise TextError(f"{name} is {what}, not plain text{advice}")
    if is_zip:
        raise TextError(f"{name} is a zip archive, not plain text; unpack it: unzip {_file(name)}")


def _file(name: str) -> str:
    return "FILE" if name == "-" else shlex.quote(name)


def detect_codec(head: bytes, name: str) -> tuple[str, int]:
    """The codec that a text's first bytes show, and the bytes of its byte order mark. A text that
    is not UTF-16 counts as UTF-8 here.

    UTF-16 without a mark: every second byte is often 0, the others never. Raises TextError if zeros
    or control characters show that the file is not a text.
    """
    whole = head[: len(head) // 2 * 2]
    for mark, codec in BOMS.items():
        if head.startswith(mark):
            if codec != UTF_8 and not _is_plain(whole, codec):
                break
            return codec, len(mark)
    else:
        zeros = whole[::2].count(0), whole[1::2].count(0)
        if max(zeros) < max(LEAST_ZEROS, len(whole) / 16):
            return UTF_8, 0
        codec = "utf-16-be" if zeros[0] else "utf-16-le"
        if not min(zeros) and _is_plain(whole, codec):
            return codec, 0
        if len(head) < 64 or sum(zeros) * 4 <= len(whole):
            return UTF_8, 0
    raise TextError(f"{name} looks like binary data, not text")


def check_start(part: bytes, name: str) -> None:
    """Raises TextError if the start of a text is not one, or has an unknown encoding."""
    require_text(part, name)
    codec, _ = detect_codec(part[:HEAD], name)
    try:
        decode(part, codec, False)
    except UnicodeDecodeError as error:
        if codec != UTF_8:
            raise decoding_error(name, error.start, codec) from None
        require_windows(sample_lines([part]), name, error.start)


def _is_plain(data: bytes, codec: str) -> bool:
    """Whether the start of a text decodes without errors and has no control characters."""
    try:
        return not _CONTROL.search(decode(data, codec, False)[0])
    except UnicodeDecodeError:
        return False


def sample_lines(chunks: Iterable[bytes]) -> bytes:
    """The first lines with bytes outside ASCII, about SAMPLE bytes."""
    found, size = list[bytes](), 0
    for chunk in chunks:
        for line in () if chunk.isascii() else chunk.splitlines(keepends=True):
            if not line.isascii():
                found.append(line)
                size += len(line)
        if size >= SAMPLE:
            break
    return b"".join(found)[:SAMPLE]


def require_windows(sample: bytes, name: str, byte: int) -> None:
    """Raises TextError, with a command that converts the text, unless there is good evidence that a
    text that is not UTF-8 is Windows-1252.

    sample: see `sample_lines`. byte: the position at which the text is not UTF-8. Evidence:
    charset-normalizer finds no much cleaner reading, and the letters belong to one western
    language. A text whose other characters are UTF-8 is damaged.
    """
    from charset_normalizer import from_bytes

    readable = sample.decode("utf-8", "replace")
    wrong = readable.count("\ufffd")
    if sum(each > "\x7f" for each in readable) - wrong > wrong:
        raise not_utf8_error(name, byte, "its other characters are UTF-8, so it is damaged there")
    guesses = from_bytes(sample)
    best, western = guesses.best(), _is_western(sample)
    if best is not None and western and wrong >= LEAST:
        clean = [each for each in guesses if each.percent_chaos - best.percent_chaos < MOST_CHAOS]
        if any(WINDOWS in each.could_be_from_charset for each in clean):
            return
    # CP1252 has all letters of Latin 1, and quotes and dashes where Latin 1 has controls.
    likely = WINDOWS if western or best is None else best.encoding
    raise not_utf8_error(name, byte, codec="utf_16_le" if b"\0" in sample else likely)


def _is_western(sample: bytes) -> bool:
    """Whether a sample, read as Windows-1252, is text of one of ALPHABETS."""
    try:
        text = sample.decode(WINDOWS)
    except UnicodeDecodeError:
        return False
    letters = [each for each in text.lower() if each > "\x7f" and each.isalnum()]
    fewest = min(sum(each not in known for each in letters) for known in ALPHABETS.values())
    return fewest <= MOST_FOREIGN * len(letters) and not _CONTROL.search(text)


class NotUtf8Error(TextError):
    """The text is not UTF-8."""


def not_utf8_error(name: str, byte: int, why: str = "", codec: str = WINDOWS) -> NotUtf8Error:
    """The error for a text that is not UTF-8, with a command that converts it from the codec. why:
    a reason that replaces the command.
    """
    new = "NEW" if name == "-" else shlex.quote(f"{name}.utf8{Path(name).suffix}")
    source = codec.upper().replace("_", "-").replace("UTF-16-", "UTF-16")
    source = "MACINTOSH" if source.startswith("MAC-") else source
    command = f"convert it, for example: iconv -f {source} -t UTF-8 {_file(name)} > {new}"
    return NotUtf8Error(f"{name}: invalid UTF-8 at byte {byte}; {why or command}")


def decoding_error(name: str, byte: int, codec: str) -> TextError:
    """The error for a text that its codec cannot decode."""
    if codec == UTF_8:
        return not_utf8_error(name, byte)
    return TextError(f"{name} is read as {NAMES[codec]}, but has no character at byte {byte}")


def excerpt(text: str) -> str:
    """The first line with a character outside ASCII, cut around it; or the first line of all."""
    lines = text.strip().splitlines() or [""]
    line = next((each for each in lines if not each.isascii()), lines[0]).strip()
    at = next((n for n, each in enumerate(line) if each > "\x7f"), 0)
    start = max(0, min(at - QUOTED // 2, len(line) - QUOTED))
    return "…" * (start > 0) + line[start : start + QUOTED] + "…" * (start + QUOTED < len(line))


def note_on_codec(encoding: str, read: Mapping[str, str]) -> str:
    """A note for the user on texts in one of NAMES. read: a text's name -> an excerpt."""
    these = first_few([*read], MOST_NAMED, ", ")
    return f"{these}: read as {encoding}, for example: {next(iter(read.values()))}"


def note_on_lines(returns: int, names: Sequence[str]) -> str:
    """A note for the user on carriage returns in texts."""
    return f"{first_few(names, MOST_NAMED, ', ')}: {returns:,} line ends CR LF or CR are read as LF"
