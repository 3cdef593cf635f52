"""Finds the texts of a corpus by their names (files, folders, a pipe, a known text, the default),
joins them, and reads them in chunks of characters.

The digest of a text is the hexadecimal BLAKE3 hash of its characters in UTF-8 with LF (O'Connor,
Aumasson, Neves and Wilcox-O'Hearn, 2020), so it does not depend on the encoding of the file. For a
file in UTF-8 with LF and without a byte order mark, `b3sum` prints the same digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import string
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from http.client import HTTPException
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.formats import (
    HEAD,
    TAIL,
    UTF_8,
    ZIP,
    BadByteError,
    check_start,
    choose_codec,
    decode,
    not_text_error,
    read_column,
    recognise_table,
    refuse_document,
)
from gpt.errors import CheckpointError, TextError
from gpt.storage import files
from gpt.vocabulary import code_points, unix_lines
from gpt.words import first_few, pluralize, printable

EMBEDDED = "python-reference"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
MOST_NAMED = 3  # most files that a note names

#: The known text "repeats" repeats words of random letters. To predict them, a model must find the
#: letter that followed the same letter before, so within a minute it learns a previous-character
#: head and an induction head (Olsson et al. 2022). If all words had one length, a head that looks
#: back a fixed distance would suffice. Half of the lines have no spaces, because with a
#: space before every word models learn to count letters from the space (benchmarks/LOG.md).
REPEATS_SEED = 1
LINES = 10_000
LENGTHS = range(3, 17)  # letters in a word
TIMES = 4  # occurrences of a word in its line
#: Training options for "repeats", which override the default preset. They include all options that
#: the heads depend on, so new defaults cannot change the result (benchmarks/repeats.py).
RECIPE: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 64,
    "block_size": 64,
    "position": "rotary",
    "dropout": 0.0,
    "previous_heads": 0,
    "counting": 0,
    "batch_size": 32,
    "steps": 800,
    "learning_rate": 2e-3,
    "matrix_lr": 0.0,
    "weight_decay": 0.1,
    "precision": "float32",
    "embedding_lr": 1e-2,
    "warmup_steps": 20,
}

CODE_POINTS = 0x110000  # the number of code points in Unicode
CHUNK = 2**18  # bytes to read at a time; arrays of this length fit in a processor's cache

#: A piece of a text: the number of its source, its UTF-8, and its (characters,) code points.
Chunk = tuple[int, bytes, npt.NDArray[np.unsignedinteger[Any]]]
Progress = Callable[[float], object]  # called with the share that is done


def make_repeats() -> bytes:
    """Makes the text "repeats" from raw draws of Philox, equal in every version of numpy."""
    alphabet = string.ascii_lowercase
    draws = np.random.Philox(key=REPEATS_SEED).random_raw(LINES * (max(LENGTHS) + 2))
    draws = draws.reshape(LINES, -1)
    lengths, spaced = draws[:, -2] % len(LENGTHS), draws[:, -1] % 2
    lines = []
    for letters, length, space in zip(draws % len(alphabet), lengths, spaced.tolist(), strict=True):
        word = "".join(alphabet[n] for n in letters[: LENGTHS[length]])
        lines.append((" " if space else "").join([word] * TIMES) + "\n")
    return "".join(lines).encode()


def python_reference() -> bytes:
    """Returns the Python language reference, which is part of every CPython."""
    from pydoc_data import topics

    text = "\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)) + "\n"
    return text.encode()


@dataclass(frozen=True)
class Download:
    url: str
    sha256: str


LARGEST_DOWNLOAD = 2**24  # bytes
#: Known name -> where its text comes from.
KNOWN: dict[str, Download | Callable[[], bytes]] = {
    EMBEDDED: python_reference,
    "shakespeare": Download(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "repeats": make_repeats,
}


@dataclass(frozen=True)
class Source:
    """A file to read. name, note: for the user; the note is about the file or its folder."""

    path: Path
    name: str
    spooled: BinaryIO | None = None  # a copy of a pipe, in a file without a name
    note: str = ""


@dataclass(frozen=True)
class Texts:
    """Names of the texts of a corpus: files, folders, known names, or "-" for `pipe`. Without
    names, the corpus is the Python language reference. pipe_stem: the `stem` of a pipe.
    """

    names: Sequence[str] = ()
    pipe: BinaryIO = field(default_factory=BytesIO)
    pipe_stem: str = "stdin"

    @property
    def stem(self) -> str:
        """How the names of runs on these texts start."""
        if not self.names:
            return EMBEDDED
        return self.pipe_stem if self.names[0] == "-" else Path(self.names[0]).resolve().stem

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The training options of the known text "repeats"; none for another text."""
        return RECIPE if [*self.names] == ["repeats"] and not os.path.exists("repeats") else {}

    def sources(self, data: Path, encoding: str = UTF_8) -> list[Source]:
        """Finds the files to read, in the order of the names; the files of a folder are sorted.
        Known texts and pipes become files in `data`. Raises TextError, StorageError.
        """
        names = self.names or (EMBEDDED,)
        return [source for name in names for source in self._named(name, data, encoding)]

    def _named(self, name: str, data: Path, encoding: str) -> list[Source]:
        if name == "-":
            return [_piped(self.pipe, name, data, encoding)]
        try:
            mode = os.stat(name).st_mode
        except (FileNotFoundError, NotADirectoryError):
            if name in KNOWN:
                return [_known(name, data)]
            raise _unreadable(name, _advice_on_absent(name)) from None
        except (OSError, ValueError) as error:  # ValueError: the name has a NUL character
            raise _unreadable(name, getattr(error, "strerror", None) or str(error)) from None
        if stat.S_ISFIFO(mode):
            with open_source(Source(Path(name), name)) as stream:
                return [_piped(stream, name, data, encoding)]
        return _folder(Path(name)) if stat.S_ISDIR(mode) else [Source(Path(name), printable(name))]


def _advice_on_absent(name: str) -> str:
    """Explains why no file has this name, and says what to type."""
    if re.match("https?://", name):
        return f"it is an address; download it first: curl -L {shlex.quote(name)} | gptx train -"
    if re.search(r"[*?\[]", name):
        folder = shlex.quote(str(Path(name).parent))
        return (
            "no such file, and the shell has found no names that match; to train on all texts of "
            f"the folder: gptx train {folder}"
        )
    return f"no such file or folder (known names: {', '.join(KNOWN)})"


def _unreadable(name: str, why: str) -> TextError:
    return TextError(f"cannot read corpus {name!r}: {why}")


@contextmanager
def open_source(source: Source) -> Iterator[BinaryIO]:
    """Opens a source to read its bytes. Raises TextError."""
    try:
        if source.spooled:
            source.spooled.seek(0)
            yield source.spooled
        else:
            with open(source.path, "rb") as file:
                yield file
    except OSError as error:
        raise TextError(f"cannot read corpus {source.name}: {error.strerror or error}") from error


def _folder(folder: Path) -> list[Source]:
    """Finds the texts in a folder and its subfolders, except hidden ones. Raises TextError."""

    def stop(error: OSError) -> None:
        raise _unreadable(str(error.filename), error.strerror or str(error))

    paths, others = list[Path](), list[Path]()
    for root, folders, names in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(root, name) for name in names if not name.startswith(".")):
            (paths if path.suffix.lower() in TEXT_SUFFIXES else others).append(path)
    # Reading a pipe or a device in a folder might never end.
    paths = sorted(path for path in paths if os.path.isfile(path) or not os.path.exists(path))
    patterns = ", ".join("*" + suffix for suffix in TEXT_SUFFIXES)
    tables = sorted(path for path in others if path.suffix.lower() in TABLE_SUFFIXES)
    advice = ""
    if tables:
        place = f"{shlex.quote(str(tables[0].parent))}/*{tables[0].suffix}"
        advice = f"; to read one column of them: gptx train {place} --column NAME"
    if not paths:
        raise TextError(
            f"cannot read corpus {folder}: no text in this folder (looked for {patterns}){advice}"
        )
    sources = [Source(path, printable(path)) for path in paths]
    if others:
        names = sorted(printable(path.relative_to(folder)) for path in others)
        unread = f"{pluralize(len(others), 'file')} not read (in folders, gptx reads {patterns})"
        note = f"{printable(folder)}: {unread}: {first_few(names, MOST_NAMED, ', ')}{advice}"
        sources[0] = replace(sources[0], note=note)
    return sources


def read_head(file: BinaryIO) -> bytes:
    """Reads the bytes for `refuse_document`: the head of a file and, of a zip archive, its end."""
    head = file.read(HEAD)
    if head.startswith(ZIP):
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        head += file.read(TAIL)
    return head


def _piped(pipe: BinaryIO, name: str, data: Path, encoding: str) -> Source:
    """Copies a pipe into a file. Checks its start first, because a pipe may never end."""

    def parts() -> Iterator[bytes]:
        head = pipe.read(CHUNK)
        check_start(head, name, encoding)
        yield head
        yield from _parts(pipe)

    return Source(Path("-"), "-", _temporary(parts(), data))


def _temporary(parts: Iterable[bytes], data: Path) -> BinaryIO:
    """Writes bytes into a file in `data`, which the system deletes when it is closed."""
    with files.storage_errors(f"write {data}"):
        data.mkdir(parents=True, exist_ok=True)
        copy = tempfile.TemporaryFile(dir=data)  # noqa: SIM115
        try:
            copy.writelines(parts)
            copy.flush()
        except BaseException:
            copy.close()
            raise
    return copy


def find_same_files(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Yields the names of two equal files, for every repeated file. Raises TextError."""
    first_with = dict[bytes, Source]()
    for source in sources if len(sources) > 1 else ():
        with open_source(source) as file:
            digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
        first = first_with.setdefault(digest, source)
        if first is not source:
            yield source.name, first.name


def discard_spooled(sources: Sequence[Source]) -> None:
    """Deletes the copies of pipes, after their text is encoded."""
    for source in sources:
        if source.spooled:
            source.spooled.close()


def _known(name: str, data: Path) -> Source:
    """Makes the file of a known text in `data`: generates its text, or downloads it if needed."""
    origin, path, old = KNOWN[name], data / f"{name}.txt", b""
    with suppress(CheckpointError):
        old = files.read(path)
    with files.storage_errors(f"write {path}"):
        data.mkdir(parents=True, exist_ok=True)
        text = _fetched(name, origin, old) if isinstance(origin, Download) else origin()
        if text != old:
            files.replace(path, text)
    return Source(path, name)


def _fetched(name: str, origin: Download, old: bytes) -> bytes:
    """Downloads a known text, unless `old` is this text already. Raises TextError."""
    if hashlib.sha256(old).hexdigest() == origin.sha256:
        return old
    import urllib.request

    try:
        with urllib.request.urlopen(origin.url, timeout=60) as answer:
            text: bytes = answer.read(LARGEST_DOWNLOAD)
        if hashlib.sha256(text).hexdigest() != origin.sha256:
            raise OSError("the address has another text")
    except (OSError, HTTPException) as error:  # URLError is an OSError
        raise TextError(
            f"cannot fetch {name!r} ({error}). Offline? Download {origin.url} elsewhere and pass "
            "the file, or run: gptx train (the embedded corpus needs no network)"
        ) from error
    return text


def no_progress(_: float) -> None:
    """Ignores progress."""


@dataclass(frozen=True)
class JoinedText:
    """The texts of several sources as one text. separator: stands between two texts, unless the
    first one already ends with it. encoding: that of texts that are not UTF-8 and have no byte
    order mark.
    """

    sources: Sequence[Source]
    separator: str = ""
    encoding: str = UTF_8

    @cached_property
    def forms(self) -> list[tuple[str, int, int]]:
        """For every source: its codec, the length of its byte order mark, and its size in bytes."""
        forms = []
        for source in self.sources:
            with open_source(source) as file:
                refuse_document(read_head(file), source.name)
                file.seek(0)
                codec, start = choose_codec(_parts(file), self.encoding)
                forms.append((codec, start, os.fstat(file.fileno()).st_size))
        return forms

    @property
    def head(self) -> str:
        """The first characters. Raises TextError."""
        return next((encoded.decode() for _, encoded, _ in self.chunks()), "")

    def chunks(self, progress: Progress = no_progress) -> Iterator[Chunk]:
        """Yields chunks. A separator belongs to the source before it. Raises TextError."""
        separator, before, end = unix_lines(self.separator), -1, ""
        # So many last characters of a text show whether the separator ends it.
        longest = max(1, len(separator))
        done, total = 0, max(1, sum(size for _, _, size in self.forms))
        for number, (codec, start, size) in enumerate(self.forms):
            source = self.sources[number]
            with open_source(source) as file:
                file.seek(start)
                try:
                    for text, encoded in decode(_parts(file), codec, start):
                        if text and before != number:
                            if before >= 0 and not end.endswith(separator):
                                yield before, separator.encode(), code_points(separator)
                            before, end = number, ""
                        if text:
                            points = np.frombuffer(encoded, np.uint8)
                            yield number, encoded, points if text.isascii() else code_points(text)
                            end = (end + text[-longest:])[-longest:]
                        progress(min(1.0, (done + file.tell()) / total))
                except BadByteError as error:
                    file.seek(error.byte // CHUNK * CHUNK)
                    raise not_text_error(source.name, error, file.read(2 * CHUNK)) from None
            done += size


def _parts(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, CHUNK), b"")


class TextMeasures(NamedTuple):
    """The result of the first reading of a text.

    starts (sources + 1,): the position of the first character of each source, then the number of
    characters. counts (2, CODE_POINTS): how often each character occurs in the training sources,
    and in the validation sources.
    """

    digest: str
    starts: tuple[int, ...]
    counts: npt.NDArray[np.int64]


def measure_text(
    text: JoinedText, training: int = 1, progress: Progress = no_progress
) -> TextMeasures:
    """Reads and measures a text. training: the number of training sources. Raises TextError."""
    digest, lengths = blake3(), [0] * len(text.sources)
    counts = np.zeros((2, CODE_POINTS), np.int64)  # only pages that are written take memory
    for number, data, points in text.chunks(progress):
        digest.update(data)
        lengths[number] += len(points)
        times = np.bincount(points)
        counts[int(number >= training), : len(times)] += times
    return TextMeasures(digest.hexdigest(), tuple(accumulate(lengths, initial=0)), counts)


def column_source(source: Source, column: str, config: TrainConfig, data: Path) -> Source:
    """Returns a source with the items of a column of a table. Raises TextError, StorageError."""
    text = JoinedText([source], encoding=config.encoding)
    items = read_column(_lines(text), recognise_table(text.head), column, source.name)
    separator, contain_it = config.text_separator, False

    def parts() -> Iterator[bytes]:
        nonlocal contain_it
        for number, item in enumerate(items):
            contain_it = contain_it or separator in item
            yield f"{separator if number else ''}{item}".encode()

    copy = _temporary(parts(), data)
    note = f"{source.name}: some items contain the separator; choose another: `separator`"
    return Source(source.path, source.name, copy, note if contain_it else source.note)


def _lines(text: JoinedText) -> Iterator[str]:
    """Yields the lines of a text with their line breaks."""
    rest = ""
    for _, encoded, _ in text.chunks():
        *lines, rest = (rest + encoded.decode()).split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest:
        yield rest
