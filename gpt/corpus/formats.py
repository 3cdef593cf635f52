"""Decodes the bytes of a file, and recognises the kind of its text. Opens no files, imports no
numpy.

gptx reads UTF-8, texts with a byte order mark, and the encoding that the user names. It refuses
other bytes with an error that shows a line of the text in its likeliest encodings. It also refuses
documents, archives and pictures, and names a command that makes a text of them. It recognises
tables, JSON, notebooks, web pages and lists by their content, and reads one column of a table.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shlex
import unicodedata
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from gpt.errors import TextError
from gpt.words import first_few

UTF_8 = "utf-8"
BOMS = {  # UTF-32 comes first, because its marks begin like those of UTF-16
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
SEVEN_BITS = ("iso2022", "hz", "utf-7")  # encodings whose bytes are all ASCII
SAMPLE = 2**13  # most bytes around an error that are decoded to find the likeliest encodings
QUOTED = 40  # most characters of a line that an error shows
USUAL = (
    "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 cp874 cp437 cp850 cp852 cp855 cp857 "
    "cp862 cp866 cp737 cp775 koi8-r iso8859-2 iso8859-5 iso8859-6 iso8859-7 iso8859-15 mac-roman "
    "mac-cyrillic mac-latin2 cp932 euc-jp gb18030 big5 cp949 johab"
).split()
JAPANESE = re.compile(rb"\x1b(\$[@B]|\(J)")  # ISO-2022-JP switches to Japanese and back
CONTROL = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
#: Signs that do not stand between letters in any text („ ” ‡ ¢ ³): all signs except ASCII,
#: apostrophes, dashes, combining marks and Asian punctuation.
BETWEEN_LETTERS = re.compile(
    r"(?<=[^\W\d_])([^\w\s\0-\x7f’‘·–—…\xad\u0300-\u036f\u3000-\u303f\uff00-\uffef]|[¹²³¼½¾])+"
    r"(?=[^\W\d_])"
)

HEAD = 4096  # bytes at the start of a file that show its kind
TAIL = 2**16  # bytes at the end of a zip archive that list its files
PANDOC = "pandoc {file} -t plain --wrap=none -o {new}"
ZIP = b"PK\x03\x04"
#: First bytes of a file -> the kind of the file, and a command that makes a text of it.
DOCUMENTS = {
    b"%PDF": ("a PDF", "pdftotext -layout {file} {new}"),
    b"{\\rtf": ("RTF", PANDOC),
    b"\xd0\xcf\x11\xe0": ("an old Word document", "libreoffice --headless --convert-to txt {file}"),
    b"\x1f\x8b": ("gzip", "gzip -dc < {file} > {new}"),
    b"\x89PNG": ("a PNG picture", ""),
    b"\xff\xd8\xff": ("a JPEG picture", ""),
    b"\x80\x04\x95": ("a pickle", ""),
}
#: Bytes in a zip archive (the name of a file or a type) -> the archive's kind, and a command.
ARCHIVES = {
    b"word/": ("a Word document", PANDOC),
    b"application/vnd.oasis.opendocument.text": ("an OpenDocument text", PANDOC),
    b"application/epub+zip": ("an EPUB", PANDOC),
    ZIP: ("a zip archive", "unzip {file}"),
}

SHOWN = 2**14  # characters at the start of a text that show its kind
FEWEST_ROWS = 3  # fewest rows of a table, without its header
ALIKE = 0.9  # smallest share of a table's rows that have as many fields as its header
DELIMITERS = ",\t;|"
LONGEST_FIELD = 2**24  # characters; the default of Python's csv is 131,072
COLUMN = re.compile(r"[^\W\d]\w*([ ./()%-]+\w+){0,2}\)?")  # a column's name: up to three words
MOST_COLUMNS = 12  # most columns that a message names
#: Pattern of the start of a text -> its kind, and what a model would learn of it besides words.
BEGINNINGS = {
    r'\{\s*"(cells|nbformat|metadata)"': ("a notebook", "cell types, outputs and \\n"),
    r'\{\s*"|\[\s*([\[{]\s*["\d]|"[^"]*"\s*,|-?\d[\d.]*\s*,)': (
        "JSON",
        "braces, quotes and \\u2014",
    ),
    r"(?i)<(!doctype html|html|head|body)\b": ("HTML", "tags and &amp;"),
}

FEWEST = 50  # fewest items of a list
LONGEST = 60  # most characters of an item, if every line is an item; 1 in 20 may be longer
MOST_WORDS = 4  # most words of such an item; half of the items may have more
DISTINCT = 0.02  # smallest share of distinct items; a list may repeat itself
#: A line that separates items: only signs, or a mark such as <|endoftext|>.
SEPARATOR = re.compile(r"[%~*=+.@&$|-]{1,20}|<\|\w+\|>|(\* ?){3,}")


class BadByteError(Exception):
    """A byte that no text has. byte: its position in the file. what: what is wrong with it."""

    def __init__(self, byte: int, what: str) -> None:
        super().__init__(f"byte {byte:,} {what}")
        self.byte = byte


def decode(chunks: Iterable[bytes], codec: str, at: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yields, for every chunk of bytes, the characters that it completes, and their UTF-8. CR LF
    and CR become LF. at: the position of the first byte in its file. Raises BadByteError.
    """
    characters = codecs.getincrementaldecoder(codec)()
    lines = io.IncrementalNewlineDecoder(characters, translate=True)
    for chunk in chain(chunks, (b"",)):
        held, ends = lines.getstate()  # bytes of an incomplete character; 0 unless CR was last
        try:
            if codec == UTF_8 and not ends and b"\r" not in chunk:  # faster, same result
                text = characters.decode(chunk, final=not chunk)
                encoded = (held + chunk).removesuffix(characters.getstate()[0])
            else:
                text = lines.decode(chunk, final=not chunk)
                encoded = text.encode()  # fails for a lone surrogate, which some codecs accept
        except UnicodeError as error:
            place = at - len(held) + error.start if isinstance(error, UnicodeDecodeError) else at
            raise BadByteError(place, f"is not {codec.upper()}") from None
        if b"\0" in encoded:
            place = at + max(0, chunk.find("\0".encode(codec)))
            raise BadByteError(place, "is a NUL character, which no text has")
        is_plain = codec == UTF_8 and text.isascii()
        if is_plain and b"\x1b" in chunk and (escape := JAPANESE.search(chunk)):
            raise BadByteError(at + escape.start(), "begins an escape sequence of ISO-2022-JP")
        at += len(chunk)
        yield text, encoded


def choose_codec(chunks: Iterable[bytes], encoding: str) -> tuple[str, int]:
    """Returns the codec of a text and the length of its byte order mark. The codec is `encoding` if
    the text has no such mark and is not UTF-8.
    """
    chunks, named = iter(chunks), codecs.lookup(encoding).name
    head = next(chunks, b"")
    for mark, codec in BOMS.items():
        if head.startswith(mark):
            return codec, len(mark)
    if named == UTF_8 or named.startswith(SEVEN_BITS):
        return named, 0
    try:
        deque(decode(chain((head,), chunks), UTF_8), maxlen=0)
    except BadByteError:
        return named, 0
    return UTF_8, 0


def decode_text(data: bytes, name: str, encoding: str) -> tuple[str, str]:
    """Decodes a file; returns its text and its codec. Raises TextError."""
    codec, start = choose_codec([data], encoding)
    try:
        return "".join(text for text, _ in decode([data[start:]], codec, start)), codec
    except BadByteError as error:
        raise not_text_error(name, error, data) from None


def check_start(head: bytes, name: str, encoding: str) -> None:
    """Raises TextError if a file with this start is no text. With another encoding than UTF-8, it
    refuses only documents, because the encoding of a text depends on all of its bytes.
    """
    refuse_document(head, name)
    codec, start = choose_codec([head], UTF_8)
    if encoding == UTF_8:
        try:
            next(decode([head[start:]], codec, start))
        except BadByteError as error:
            raise not_text_error(name, error, head) from None


def refuse_document(head: bytes, name: str) -> None:
    """Raises TextError, which says what to do, if a file is a document. head: its first bytes and,
    of a zip archive, also its last bytes.
    """
    is_zip = head.startswith(ZIP)
    for mark, (what, command) in (ARCHIVES if is_zip else DOCUMENTS).items():
        if mark in head if is_zip else head.startswith(mark):
            file = "FILE" if name == "-" else shlex.quote(name)
            new = "NEW.txt" if name == "-" else shlex.quote(f"{name}.txt")
            advice = f"; convert it: {command.format(file=file, new=new)}" if command else ""
            raise TextError(f"{name} is {what}, not plain text{advice}")


def not_text_error(name: str, error: BadByteError, data: bytes) -> TextError:
    """Returns an error with a line in its likeliest encodings. data: the bytes around the error."""
    lines = data.splitlines(keepends=True)
    foreign = [line for line in lines if b"\x1b" in line or not line.isascii()]
    sample = (data if b"\0" in data else b"".join(foreign))[:SAMPLE]
    decoded = sample.decode(UTF_8, "replace")
    wrong = decoded.count("\ufffd")
    if b"\0" not in data and sum(sign > "\x7f" for sign in decoded) > 2 * wrong > 0:
        return TextError(f"{name}: {error}, but the bytes around it are; the text is damaged there")
    readings = _readings(sample)
    if not readings:
        return TextError(f"{name}: {error}; it looks like binary data, not text")
    rows = [[*map(_excerpt, row)] for row in zip(*map(str.splitlines, readings), strict=False)]
    row = next((row for row in rows if len({*row}) == len(row)), rows[0])
    options = [
        f"“{line}” with `encoding='{codec}'`"
        for line, codec in zip(row, readings.values(), strict=True)
    ]
    return TextError(f"{name}: {error}; one of its lines is {' or '.join(options)}")


def _readings(sample: bytes) -> dict[str, str]:
    """Decodes a sample in its three likeliest encodings: text -> encoding, likeliest first."""
    if sample.count(0) * 4 > len(sample):
        ranked = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
    elif sample.isascii():
        ranked = ["iso2022-jp", "iso2022-jp-ext"]
    else:
        from charset_normalizer import from_bytes

        ranked = [match.encoding for match in from_bytes(sample)]
        ranked += USUAL  # charset_normalizer may leave out the right encoding
    usual = {_decoded(sample, codec): codec for codec in reversed(USUAL)}
    readings: dict[str, str] = {}
    for codec in ranked:
        if text := _decoded(sample, codec):
            readings.setdefault(text, usual.get(text, codec))
    texts = sorted(readings, key=lambda text: text not in usual)
    likely = [text for text in texts if not _is_strange(text)] or texts
    return {text: readings[text] for text in likely[:3]}


def _is_strange(text: str) -> bool:
    """Whether many of the characters beyond ASCII stand at odd places: signs between letters,
    capitals after small letters, letters of another script after Latin ones.
    """
    foreign = sum(sign > "\x7f" for sign in text)
    strange = len(BETWEEN_LETTERS.findall(text))
    for before, letter in pairwise(text):
        if letter > "\x7f" and letter.isalpha() and before.isascii() and before.isalpha():
            is_latin = unicodedata.name(letter, "").startswith("LATIN")
            strange += not is_latin or (before.islower() and letter.isupper())
    return 20 * strange > foreign


def _decoded(sample: bytes, codec: str) -> str:
    """Decodes a sample; returns "" if the result is no text."""
    with suppress(UnicodeError):
        text = codecs.getincrementaldecoder(codec)().decode(sample)
        return "" if CONTROL.search(text) else text
    return ""


def _excerpt(line: str) -> str:
    """Cuts a line around its first character that is not ASCII."""
    at = next((place for place, sign in enumerate(line) if sign > "\x7f"), 0)
    start = max(0, min(at - QUOTED // 2, len(line) - QUOTED))
    end = start + QUOTED
    before, after = "…" if start else "", "…" if end < len(line) else ""
    return before + line[start:end].replace("`", "'") + after


@dataclass(frozen=True)
class Table:
    """The columns and the form of a table. delimiter: "" for JSON lines."""

    columns: tuple[str, ...]
    delimiter: str = ""

    @property
    def kind(self) -> str:
        return {"": "JSON lines", "\t": "TSV"}.get(self.delimiter, "CSV")


def recognise_table(head: str) -> Table | None:
    """Recognises a table by the first characters of a text; None if the text is no table."""
    whole = head if len(head) < SHOWN else head[: head.rfind("\n") + 1]
    lines = [line for line in whole.split("\n") if line.strip()]
    with suppress(ValueError, RecursionError):
        records = [json.loads(line) for line in lines]
        if len(records) > 1 and all(isinstance(record, dict) for record in records):
            return Table(tuple(dict.fromkeys(name for record in records for name in record)))
    for delimiter in DELIMITERS:
        with suppress(csv.Error):
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
            header = [name.strip() for name in rows[0]] if rows else []
            are_names = len({*header}) == len(header) > 1 and all(map(COLUMN.fullmatch, header))
            alike = sum(len(row) == len(header) for row in rows[1:])
            if are_names and alike >= max(FEWEST_ROWS, ALIKE * (len(rows) - 1)):
                return Table(tuple(header), delimiter)
    return None


def note_on_kind(head: str) -> str:
    """Says what a model would learn besides words, and how to avoid this; "" for plain text."""
    head = head[:SHOWN]
    if table := recognise_table(head):
        learned = "all columns" if table.delimiter else "names, braces, quotes and \\u2014"
        names = first_few(table.columns, MOST_COLUMNS, ", ")
        would = f"{table.kind}: {learned} would be learned"
        return f"{would}; to learn from one column, use `column`: {names}"
    for pattern, (kind, learned) in BEGINNINGS.items():
        if re.match(pattern, head.lstrip()):
            return f"{kind}: {learned} would be learned, too; to avoid this, extract its text first"
    return ""


def read_column(lines: Iterable[str], table: Table | None, column: str, name: str) -> Iterator[str]:
    """Yields the items of a column, except empty ones. Raises TextError."""
    if table is None:
        raise TextError(f"{name} has no columns: `column` reads CSV, TSV and JSON lines")
    if column not in table.columns:
        names = first_few(table.columns, MOST_COLUMNS, ", ")
        raise TextError(f"{name} has no column {column!r}; its columns are {names}")
    read = _csv_items if table.delimiter else _json_items
    items = filter(str.strip, read(lines, table, column, name))
    for first in items:
        return chain((first,), items)
    raise TextError(f"{name}: the column {column!r} is empty")


def _csv_items(lines: Iterable[str], table: Table, column: str, name: str) -> Iterator[str]:
    csv.field_size_limit(LONGEST_FIELD)  # for the whole process; a reader has no such argument
    reader = csv.reader(lines, delimiter=table.delimiter, strict=True)
    place = table.columns.index(column)
    try:
        for number, row in enumerate(filter(None, reader)):
            if len(row) != len(table.columns):
                raise csv.Error(f"{len(row)} fields in place of {len(table.columns)}")
            if number:  # the first row has the names
                yield row[place]
    except csv.Error as error:
        raise TextError(f"{name}, line {reader.line_num:,}: broken {table.kind}: {error}") from None


def _json_items(lines: Iterable[str], _: Table, column: str, name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record: Any = json.loads(line)
                item = record.get(column) if isinstance(record, dict) else record
                str(item).encode()  # fails for a lone surrogate, which is no character
            except (ValueError, RecursionError) as error:
                raise TextError(f"{name}, line {number:,}: broken JSON: {error}") from None
            if not isinstance(item, str | None):
                raise TextError(f"{name}, line {number:,}: {column!r} is no text: {item!r:.40}")
            yield item or ""


def find_separator(text: str) -> str:
    """Finds what separates the items of a list: a line break, or a line such as "%". Returns "" if
    the text is no list. text: the start of a text, whose last line is ignored, as it may be cut.
    """
    lines = text.split("\n")[:-1]
    count = len(lines)
    if count < FEWEST:
        return ""
    ruled = Counter(line for line in lines if SEPARATOR.fullmatch(line))
    for line, times in ruled.most_common(1):
        if times >= FEWEST and times >= sum(ruled.values()) / 2:
            return f"\n{line}\n"
    continued = sum(line[:1].isspace() or line[-1:] in ",;:({[" for line in lines)
    is_list = (
        all(lines)
        and sorted(map(len, lines))[int(0.95 * count)] <= LONGEST
        and sorted(len(line.split()) for line in lines)[count // 2] <= MOST_WORDS
        and len({*lines}) >= DISTINCT * count
        and continued < 0.02 * count
    )
    return "\n" if is_list else ""
