"""Finds the texts of a corpus by their names: files, folders, a pipe, a known text, the default.

Finds the files to read, and their names for the user; text.py reads them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import string
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpt.corpus.formats import HEAD, TAIL, UTF_8, ZIP, check_start, refuse_document
from gpt.errors import CheckpointError, TextError
from gpt.storage import files
from gpt.words import counted, first_few, printable

EMBEDDED = "python-reference"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
MOST_NAMED = 3  # files of a folder that a note names as not read
MOST_OPENED = 30  # files among these that are opened, to find one that can be converted
SHOWN = 60  # characters of a name that an error shows

#: The known text "repeats": words of random letters that are repeated. To predict them, a model
#: must find the letter that followed the same letter before, so it learns a previous-character head
#: and an induction head (Olsson et al. 2022) within a minute. Words differ in length; otherwise a
#: head that looks back a fixed distance would suffice. Half of the lines have no spaces; with a
#: space before every word, models learn to count from it instead (benchmarks/LOG.md).
REPEATS_SEED = 1
LINES = 10_000
LENGTHS = range(3, 17)  # letters in a word
TIMES = 4  # occurrences of the word in its line
#: Training options for "repeats" that override the default preset. Every option that the heads
#: depend on is here, so that new defaults cannot change the result (benchmarks/repeats.py).
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


def repeats() -> bytes:
    """The text "repeats", from raw draws of Philox (Salmon et al. 2011): every release of numpy
    gives the same.
    """
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
    """The Python language reference, which is part of every CPython."""
    from pydoc_data import topics

    text = "\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)) + "\n"
    return text.encode()


@dataclass(frozen=True)
class Download:
    """A text that is downloaded once."""

    url: str
    sha256: str


LARGEST_DOWNLOAD = 2**24  # bytes
#: Known names, and where their texts come from.
KNOWN: dict[str, Download | Callable[[], bytes]] = {
    EMBEDDED: python_reference,
    "shakespeare": Download(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "repeats": repeats,
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
        with open_source(Source(Path(name), name)) as stream:
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
        raise _unreadable(name, "the name is empty; to train on all texts of this folder, give .")
    try:
        return os.stat(name).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as error:  # ValueError: the name has a NUL character
        raise _unreadable(name, getattr(error, "strerror", None) or str(error)) from None


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
    return RECIPE if is_repeats else {}


def corpus_name(names: Sequence[str]) -> str:
    """The name of a run on the texts with these names."""
    if not names:
        return EMBEDDED
    return "stdin" if names[0] == "-" else Path(names[0]).resolve().stem


@contextmanager
def open_source(source: Source) -> Iterator[BinaryIO]:
    """A source, opened to read bytes. Raises TextError if the system refuses to read it."""
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
    """The texts of a folder that are not hidden. Raises TextError."""

    def stop(error: OSError) -> None:
        raise _unreadable(str(error.filename), error.strerror or str(error))

    paths, others = list[Path](), list[Path]()
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
        names = sorted(printable(path.relative_to(folder)) for path in others)
        unread = f"{counted(len(others), 'file')} not read, not {known}"
        note = f"{printable(folder)}: {unread}: {first_few(names, MOST_NAMED, ', ')}{advice}"
        sources[0] = replace(sources[0], note=note)
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
    head = file.read(HEAD)
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
    of_size = dict[int, list[Source]]()
    for source in sources:
        with open_source(source) as file:
            of_size.setdefault(os.fstat(file.fileno()).st_size, []).append(source)
    for size, alike in of_size.items():
        first_with = dict[bytes, Source]()
        for source in alike if size and len(alike) > 1 else ():
            digest = hashlib.sha256()
            with open_source(source) as file:
                while part := file.read(2**20):
                    digest.update(part)
            first = first_with.setdefault(digest.digest(), source)
            if first is not source:
                yield source.name, first.name


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
        there = files.read(path)
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
