"""Input and output of the commands: data to stdout or a file, notes to stderr, texts from
files.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from gpt.errors import StorageError, TextError
from gpt.storage import files
from gpt.words import cells, escape, one_line, text_name, to_json

if TYPE_CHECKING:
    from tqdm import tqdm

START = 2**20  # bytes of a text that are checked before the rest is read
WIDE = 200  # cells in a line if there is no terminal


class ReaderLeft(Exception):
    """The reader of stdout has closed it. No OSError, as Typer has its own exit code for those."""


def say_error(message: str) -> None:
    """Prints one line on stderr: "gptx: error: …"."""
    say("gptx: error: " + "; ".join(part.strip() for part in message.splitlines() if part.strip()))


def say(line: str) -> None:
    """Prints a line on stderr, its control characters escaped; ignores a closed stderr."""
    with suppress(OSError):
        print(one_line(line), file=sys.stderr, flush=True)


@contextmanager
def printed_notes() -> Iterator[None]:
    """A context in which the notes that the library logs are printed, with options as flags."""
    import logging

    from gpt.config.fields import with_flags

    logger, handler = logging.getLogger("gpt"), logging.Handler()
    handler.emit = lambda record: say(with_flags(record.getMessage()))  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def wrap_pieces(pieces: Iterable[str], width: int) -> Iterator[str]:
    """The pieces of a text in lines of at most `width` cells: some spaces become newlines.

    Each word is held back until it ends, so that written text never changes. A word that is longer
    than a line stays whole.
    """
    column, space, word = 0, "", ""
    for char in chain(chain.from_iterable(pieces), [""]):
        if char and char not in " \n":
            word += char
            continue
        if word:
            size = cells(space + word)
            if column and column + size > width:
                column, space, size = 0, "\n", cells(word)
            yield space + word
            column, space, word = column + size, "", ""
        space += char
        if char == "\n":
            yield space
            column, space = 0, ""
    yield space


@contextmanager
def output_errors() -> Iterator[None]:
    """A context that turns errors of stdout into ReaderLeft (a closed pipe) or StorageError."""
    try:
        yield
    except OSError as error:
        # Drop what could not be written; otherwise the interpreter writes it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise ReaderLeft from error
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or error
        raise StorageError(f"cannot write output: {reason}") from error


def width(stream: TextIO) -> int | None:
    """Width of stdout or stderr in cells; None in a pipe if COLUMNS is not set."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def write_bytes(data: bytes, output: Path | None = None) -> None:
    """Writes bytes to the file, whole or not at all, or to stdout. Raises StorageError."""
    if output is not None:
        with files.storage_errors(f"write {output}"):
            if output.is_file() or not output.exists():
                files.replace(output.resolve(), data)
            else:  # a device or a pipe
                output.write_bytes(data)
        return
    with output_errors():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write(text: str, output: Path | None = None) -> None:
    """Writes a text in UTF-8 to the file or to stdout: unchanged, but a terminal gets escaped
    control characters. Raises StorageError.
    """
    if output is None and sys.stdout.isatty():
        text = escape(text)
    write_bytes(text.encode("utf-8", "backslashreplace"), output)


def write_json(*records: Mapping[str, Any], output: Path | None = None) -> None:
    """Writes a line of JSON for each record to the file or to stdout. Raises StorageError."""
    write("".join(f"{to_json(record)}\n" for record in records), output)


def write_lines(lines: Iterable[str], output: Path | None) -> int:
    """Writes lines to stdout as they come, or to the file at the end or at Ctrl-C. Returns their
    number. Raises StorageError.
    """
    held = list[str]()
    try:
        for line in lines:
            held.append(line)
            if output is None:
                write(line)
    finally:
        if output and held:
            write("".join(held), output)
    return len(held)


def stream(texts: Iterable[str]) -> None:
    """Writes a text to stdout piece by piece, and a newline after it, even after an error. On a
    terminal, lines are wrapped between words.
    """
    last = "\n"
    if sys.stdout.isatty() and (columns := width(sys.stdout)):
        texts = wrap_pieces(map(escape, texts), columns)
    try:
        for text in texts:
            if text:
                write(text)
                last = text[-1]
    finally:
        if last != "\n":
            write("\n")


def print_facts(facts: Mapping[str, str | Sequence[str]]) -> None:
    """Prints names and texts, which may have several lines, on stderr."""
    from gpt.show.terminal import Screen, draw_facts

    with suppress(OSError):
        lines = draw_facts(facts, Screen(width(sys.stderr) or WIDE))
        print(lines.rstrip("\n"), file=sys.stderr, flush=True)


def read_text(path: str, encoding: str = "utf-8") -> str:
    """A file's text, or standard input's for "-", read as a training reads it: a byte order mark is
    left out, line ends become LF. Prints a note if the text is not UTF-8.

    Raises TextError if it is unreadable, is not a text, or is in another encoding; ConfigError for
    an unknown encoding. The start is checked first, as the rest may never end.
    """
    from gpt.config.train import check_encoding
    from gpt.corpus import formats

    check_encoding(encoding)
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            data = file.read(START)
            formats.check_start(data, path, encoding)
            data += file.read()
    except (OSError, ValueError) as error:  # ValueError: the name has a NUL character
        reason = getattr(error, "strerror", None) or error
        advice = "; a text itself goes through a pipe, to -" if " " in path else ""
        raise TextError(f"cannot read {path}: {reason}{advice}") from None
    text, codec = formats.decode_text(data, path, encoding)
    if codec != formats.UTF_8:
        say(f"note: {text_name(path)}: read as {codec.upper()}")
    return text


@contextmanager
def progress_bar(work: str) -> Iterator[Callable[[float], object]]:
    """Shows a bar after half a second, for work that reports the share that is done."""
    layout = f"{work} {{percentage:3.0f}}%|{{bar}}| ETA {{remaining}}"
    with bar(layout, total=1.0, delay=0.5) as shown:
        yield lambda share: shown.update(share - shown.n)


def bar(layout: str, shows: bool = True, **options: Any) -> tqdm[NoReturn]:
    """A bar on stderr that disappears at the end; not shown if stderr is not a terminal."""
    from tqdm import tqdm

    return tqdm(
        disable=not (shows and sys.stderr.isatty()),
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
        bar_format=layout.replace("{bar}", "{bar:12}"),
        **options,
    )
