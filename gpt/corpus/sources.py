"""Finds the texts of a corpus by their names: files, folders, a pipe, a known text, the default.

Finds the files to read, and their names for the user; text.py reads them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

from gpt.corpus import repeats
from gpt.corpus.encodings import HEAD, TAIL, UTF_8, ZIP, check_start, refuse_document
from gpt.errors import CheckpointError, TextError
from gpt.storage import files
from gpt.words import counted, first_few, printable

EMBEDDED = "python-reference"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
MOST_NAMED = 3  # files of a folder that a note names as not read
MOST_OPENED = 30  # files among these that are opened, to find one that can be converted
SHOWN = 60  # characters of a name that an error shows
PASTED = (
    "this is a text, not the name of a file; save it in a file, or pipe it: "
    "printf '%s' 'TEXT' | gptx train -"
)


def python_reference() -> bytes:
    """The Python language reference, which is part of every CPython."""
    from pydoc_data import topics

    text = "\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)) + "\n"
    return text.encode()


@dataclass(frozen=True)
class Download:
    """A text that is downloaded once."""

    url: str
    sha256: str


LARGEST_DOWNLOAD = 2**24  # bytes; also limits a generated text
#: Known names, and where their texts come from.
KNOWN: dict[str, Download | Callable[[], bytes]] = {
    EMBEDDED: python_reference,
    "shakespeare": Download(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "repeats": repeats.repeats,
}


@dataclass(frozen=True)
class Source:
    """A file to read, and its name for the user. note: a note for the user on the file's folder."""

    path: Path
    name: str
    spooled: BinaryIO | None = None  # a copy of a pipe in a file that the system deletes
    note: str = ""


def find_sources(
    names: Sequence[str], data: Path, pipe: BinaryIO, encoding: str = UTF_8
) -> list[Source]:
    """The files with these names, in their order; those of a folder sorted by path. The start of
    the pipe is checked if its encoding is UTF-8.

    Raises TextError if a file cannot be found, StorageError when `data` cannot be written.
    """
    if [*names].count("-") > 1:
        raise TextError("cannot read corpus '-' twice; give standard input once")
    sources: list[Source] = []
    try:
        for name in names or (EMBEDDED,):
            sources += _named(name, data, pipe, encoding)
    except BaseException:
        discard_spooled(sources)
        raise
    return sources


def _named(name: str, data: Path, pipe: BinaryIO, encoding: str) -> list[Source]:
    """The files with one name. Raises TextError, StorageError."""
    if name == "-":
        return [_spool(pipe, data, encoding)]
    mode = _mode(name)
    if stat.S_ISFIFO(mode):
        with open_source(Source(Path(name), name), waits=True) as stream:
            return [_spool(stream, data, encoding)]
    if stat.S_ISDIR(mode):
        return _folder(Path(name))
    if mode:
        return [Source(Path(name), printable(name))]
    if name in KNOWN:
        return [_known(name, data)]
    raise _unreadable(name, _advice_on_absent(name))


def _mode(name: str) -> int:
    """The st_mode of the file with this name; 0 if there is none. Raises TextError."""
    if not name:
        why = "the name is empty; to train on all texts of this folder, give ."
        raise _unreadable(name, why)
    try:
        return os.stat(name).st_mode
    except (OSError, ValueError) as error:  # ValueError: "embedded null byte"
        number = error.errno if isinstance(error, OSError) else None
        absent = number in (errno.ENOENT, errno.ENOTDIR)
        looks_pasted = "\n" in name or (len(name.split()) > 2 and not Path(name).suffix)
        if number == errno.ENAMETOOLONG or (absent and looks_pasted):
            raise _unreadable(name, PASTED) from None
        if absent:
            return 0
        why = "the name has a NUL character" if number is None else os.strerror(number)
        raise _unreadable(name, why) from None


def _advice_on_absent(name: str) -> str:
    """Why there is no file with this name, and what to type."""
    if re.match("https?://", name):
        return f"it is an address; download it first: curl -L {shlex.quote(name)} | gptx train -"
    if re.search(r"[*?\[]", name):
        folder = shlex.quote(str(Path(name).parent))
        return (
            "no such file, and the shell has not put names in its place; to train on all texts of "
            f"the folder: gptx train {folder}"
        )
    return f"no such file or folder (known names: {', '.join(KNOWN)})"


def _unreadable(name: str, why: str) -> TextError:
    shown = name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."
    return TextError(f"cannot read corpus {shown!r}: {why}")


def known_recipe(names: Sequence[str]) -> Mapping[str, Any]:
    """The training options that override the default preset for the known text "repeats"; none for
    other texts, or if a file has that name.
    """
    is_repeats = [*names] == ["repeats"] and not os.path.exists("repeats")
    return repeats.RECIPE if is_repeats else {}


def corpus_name(names: Sequence[str]) -> str:
    """The name of a run on the texts with these names."""
    if not names:
        return EMBEDDED
    return "stdin" if names[0] == "-" else Path(names[0]).resolve().stem


@contextmanager
def open_source(source: Source, waits: bool = False) -> Iterator[BinaryIO]:
    """A source, opened to read bytes. waits: whether to wait for a pipe's writer; a device is read
    as it is.

    Raises TextError if the system refuses to open or read it.
    """
    more = 0 if waits else getattr(os, "O_NONBLOCK", 0)
    try:
        if source.spooled:
            source.spooled.seek(0)
            yield source.spooled
        else:
            with open(source.path, "rb", opener=lambda *it: os.open(it[0], it[1] | more)) as file:
                yield file
    except OSError as error:
        raise TextError(f"cannot read corpus {source.name}: {error.strerror or error}") from error


def _folder(folder: Path) -> list[Source]:
    """The texts of a folder that are not hidden. Raises TextError."""

    def stop(error: OSError) -> None:
        raise _unreadable(str(error.filename), error.strerror or str(error))

    paths: list[Path] = []
    others: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(root, name) for name in names if not name.startswith(".")):
            (paths if path.suffix.lower() in TEXT_SUFFIXES else others).append(path)
    # Reading a pipe or a device in a folder could wait for ever.
    paths = sorted(path for path in paths if os.path.isfile(path) or not os.path.exists(path))
    known = ", ".join("*" + suffix for suffix in TEXT_SUFFIXES)
    advice = _advice_on(sorted(others))
    if not paths:
        raise TextError(
            f"cannot read corpus {folder}: no text in this folder (looked for {known}){advice}"
        )
    sources = [Source(path, printable(path)) for path in paths]
    if others:
        unread = first_few(
            sorted(printable(path.relative_to(folder)) for path in others), MOST_NAMED, ", "
        )
        note = (
            f"{printable(folder)}: {counted(len(others), 'file')} not read, not {known}: {unread}"
        )
        sources[0] = replace(sources[0], note=note + advice)
    return sources


def _advice_on(paths: Sequence[Path]) -> str:
    """What to type for the first of these files that is a table or a document; "" if none is."""
    for path in paths[:MOST_OPENED]:
        if path.suffix.lower() in TABLE_SUFFIXES:
            place = shlex.quote(str(path.parent))
            return f"; to read one column of them: gptx train {place}/*{path.suffix} --column NAME"
        try:
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    refuse_document(read_head(file), printable(path))
        except OSError:
            continue
        except TextError as error:
            if "convert it" in str(error):
                return f"; {error}"
    return ""


def read_head(file: BinaryIO) -> bytes:
    """The first bytes of a file, and the end of a zip archive, for `refuse_document`."""
    head = file.read(HEAD) or b""  # None: a device that has nothing yet
    if head.startswith(ZIP):
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        head += file.read(TAIL)
    return head


def _spool(pipe: BinaryIO, data: Path, encoding: str) -> Source:
    """Copies a pipe to a file, since a corpus is read twice. The system deletes the file when it is
    closed, even if this process is killed. What is not a text is refused at once, as it may never
    end. Raises StorageError, TextError.
    """
    with files.storage_errors(f"write {data}"):
        data.mkdir(parents=True, exist_ok=True)
        copy = tempfile.TemporaryFile(dir=data)  # noqa: SIM115
        try:
            while part := pipe.read(2**20):
                if not copy.tell():
                    check_start(part, "-", encoding)
                copy.write(part)
            copy.flush()
        except BaseException:
            copy.close()
            raise
    return Source(Path("-"), "-", copy)


def same_files(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Pairs of names of files with the same content. Raises TextError."""
    of_size: dict[int, Source] = {}
    of_content: dict[bytes, Source] = {}
    for source in sources:
        with open_source(source) as file:
            size = os.fstat(file.fileno()).st_size
        first = of_size.setdefault(size, source)
        if size and first is not source:
            of_content.setdefault(_hash(first), first)
            same = of_content.setdefault(_hash(source), source)
            if same is not source:
                yield source.name, same.name


def _hash(source: Source) -> bytes:
    digest = hashlib.sha256()
    with open_source(source) as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.digest()


def discard_spooled(sources: Sequence[Source]) -> None:
    """Deletes the copies of pipes; call it after the text is encoded."""
    for source in sources:
        if source.spooled:
            source.spooled.close()


def _known(name: str, data: Path) -> Source:
    """A known text as a file in `data`, generated anew, or downloaded unless the file has it.
    Raises TextError when offline, StorageError.
    """
    known, path, there = KNOWN[name], data / f"{name}.txt", b""
    with suppress(CheckpointError):
        there = files.read(path, LARGEST_DOWNLOAD)
    with files.storage_errors(f"write {path}"):
        data.mkdir(parents=True, exist_ok=True)
        text = _fetched(name, known, there) if isinstance(known, Download) else known()
        if text != there:
            files.replace(path, text)
    return Source(path, name)


def _fetched(name: str, known: Download, there: bytes) -> bytes:
    """A known text from the network, unless `there` has it already. Raises TextError."""
    if hashlib.sha256(there).hexdigest() == known.sha256:
        return there
    import urllib.request

    try:
        with urllib.request.urlopen(known.url, timeout=60) as answer:
            text: bytes = answer.read(LARGEST_DOWNLOAD)
        if hashlib.sha256(text).hexdigest() != known.sha256:
            raise OSError("what came is another text")
    except (OSError, HTTPException) as error:  # URLError is an OSError
        raise TextError(
            f"cannot fetch {name!r} ({error}). Offline? Download {known.url} elsewhere and pass "
            "the file, or run: gptx train (the embedded corpus needs no network)"
        ) from error
    return text
