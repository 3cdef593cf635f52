"""Reads texts for the commands. Writes their data to stdout or a file, and their notes to stderr.

Importing this module imports neither numpy nor torch.
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

from gpt.errors import ConfigError, StorageError, TextError
from gpt.storage import files
from gpt.words import escape, one_line, text_name, to_json, width_in_cells

if TYPE_CHECKING:
    from tqdm import tqdm

START = 2**20  # bytes at the start of a text that are checked before the rest is read
WIDE = 200  # cells in a line if there is no terminal


class OutputClosed(Exception):
    """The program that reads stdout has closed it. Typer would handle a subclass of OSError."""


def say_error(message: str) -> None:
    """Prints a message as one line on stderr: "gptx: error: …"."""
    say("gptx: error: " + "; ".join(part.strip() for part in message.splitlines() if part.strip()))


def say(line: str) -> None:
    """Prints a line on stderr with its control characters escaped, unless stderr is closed."""
    with suppress(OSError):
        print(one_line(line), file=sys.stderr, flush=True)


@contextmanager
def print_logged_notes() -> Iterator[None]:
    """A context that prints every note that the library logs, with its options as flags."""
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
    """Wraps a text that comes in pieces into lines of at most `width` cells: replaces spaces by
    newlines, and yields the text word by word. A word that is longer than a line stays whole.
    """
    column, space, word = 0, "", ""
    for char in chain(chain.from_iterable(pieces), [""]):
        if char and char not in " \n":
            word += char
            continue
        if word:
            size = width_in_cells(space + word)
            if column and column + size > width:
                column, space, size = 0, "\n", width_in_cells(word)
            yield space + word
            column, space, word = column + size, "", ""
        space += char
        if char == "\n":
            yield space
            column, space = 0, ""
    yield space


@contextmanager
def convert_output_errors() -> Iterator[None]:
    """A context that turns an OSError of stdout into OutputClosed (broken pipe) or StorageError."""
    try:
        yield
    except OSError as error:
        # Discard what could not be written; otherwise Python tries to write it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosed from error
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or error
        raise StorageError(f"cannot write output: {reason}") from error


def terminal_width(stream: TextIO) -> int | None:
    """The width of stdout or stderr in cells; None for a pipe, unless COLUMNS is set."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def write_bytes(data: bytes, output: Path | None = None) -> None:
    """Writes bytes to stdout, or a file either completely or not at all. Raises StorageError, and
    ConfigError for bytes that a terminal cannot show.
    """
    if output is not None:
        with files.storage_errors(f"write {output}"):
            if output.is_file() or not output.exists():
                files.replace(output.resolve(), data)
            else:  # a device or a pipe
                output.write_bytes(data)
        return
    if sys.stdout.isatty():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise ConfigError("this format is not text; name a file with -o") from None
    with convert_output_errors():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write(text: str, output: Path | None = None) -> None:
    """Writes a text in UTF-8 to the file or to stdout. Control characters are escaped only on a
    terminal. Raises StorageError.
    """
    if output is None and sys.stdout.isatty():
        text = escape(text)
    write_bytes(text.encode("utf-8", "backslashreplace"), output)


def write_json(*records: Mapping[str, Any], output: Path | None = None) -> None:
    """Writes a line of JSON per record to the file or to stdout. Raises StorageError."""
    write("".join(f"{to_json(record)}\n" for record in records), output)


def write_lines(lines: Iterable[str], output: Path | None) -> int:
    """Writes lines and returns their number. stdout gets every line as soon as it is made. A file
    gets all lines together, at the end or at Ctrl-C. Raises StorageError.
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


def stream_text(texts: Iterable[str]) -> None:
    """Writes a text to stdout piece by piece and ends its last line, even after an error. On a
    terminal, lines are wrapped between words.
    """
    last = "\n"
    if sys.stdout.isatty() and (columns := terminal_width(sys.stdout)):
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
    """Prints names with their texts on stderr. A list of texts takes one line per text."""
    from gpt.show.terminal import Screen, draw_facts

    with suppress(OSError):
        lines = draw_facts(facts, Screen(terminal_width(sys.stderr) or WIDE))
        print(lines.rstrip("\n"), file=sys.stderr, flush=True)


def read_text(path: str, encoding: str = "utf-8") -> str:
    """Reads the text of a file, or of standard input for "-", as training does: leaves out a byte
    order mark, and makes every line end LF. Prints a note if the text is not UTF-8.

    Checks the first START bytes before it reads the rest, because a device may never end. Raises
    TextError if the file is unreadable, is not text or has another encoding. Raises ConfigError for
    an unknown encoding.
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
        advice = "; to give the text itself, pipe it to -" if " " in path else ""
        raise TextError(f"cannot read {path}: {reason}{advice}") from None
    text, codec = formats.decode_text(data, path, encoding)
    if codec != formats.UTF_8:
        say(f"note: {text_name(path)}: read as {codec.upper()}")
    return text


@contextmanager
def progress_bar(work: str) -> Iterator[Callable[[float], object]]:
    """A context that shows a bar after half a second, and yields a function to report progress."""
    layout = f"{work} {{percentage:3.0f}}%|{{bar}}| ETA {{remaining}}"
    with make_bar(layout, total=1.0, delay=0.5) as bar:
        yield lambda share: bar.update(share - bar.n)


def make_bar(layout: str, shows: bool = True, **options: Any) -> tqdm[NoReturn]:
    """Makes a bar on stderr that disappears at the end. Only a terminal shows it."""
    from tqdm import tqdm

    return tqdm(
        disable=not (shows and sys.stderr.isatty()),
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
        bar_format=layout.replace("{bar}", "{bar:12}"),
        **options,
    )
