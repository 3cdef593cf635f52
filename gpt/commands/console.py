"""Input and output of the commands: data to stdout or a file, notes to stderr, texts from
files.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from gpt.errors import ConfigError, StorageError, TextError
from gpt.storage import files
from gpt.words import printable

START = 2**20  # bytes of a text that are checked before the rest is read
WIDE = 200  # cells in a line if there is no terminal
LONGEST_LINE = 4000  # characters of a line on stderr
REPEATED = 0.5  # seconds between two checks of a pipe to which nothing is written yet
CLOSING = "、。，．：；！？）」』】》〉”’…ー"  # no line may begin with one of these


class ReaderLeft(Exception):
    """The reader of stdout has closed it. No OSError, as Typer has its own exit code for those."""


def say_error(message: str) -> None:
    """Prints one line on stderr: "gptx: error: …"."""
    say("gptx: error: " + "; ".join(part.strip() for part in message.splitlines() if part.strip()))


def say(line: str) -> None:
    """Prints a line on stderr, formatted by `wrap_for_stderr`; ignores a closed stderr."""
    _print_aside(wrap_for_stderr(line))


def wrap_for_stderr(line: str) -> str:
    """A line in the form for stderr: wrapped between words on a terminal."""
    line = one_line(line)
    return "".join(wrap_pieces([line], width(sys.stderr) or WIDE)) if sys.stderr.isatty() else line


def one_line(text: str) -> str:
    """The text with newlines and control characters escaped, as a file's name may contain them; a
    very long text is cut in the middle.
    """
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 2]} … {text[-LONGEST_LINE // 2 :]}"
    if text.isprintable():
        return text
    from gpt import characters  # imports rich, which most commands do not need

    return characters.one_line(text)


def _print_aside(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def wrap_pieces(pieces: Iterable[str], width: int) -> Iterator[str]:
    """The pieces of a text in lines of at most `width` cells: some spaces become newlines.

    Each word is held back until the next one begins, so that written text never changes. East Asian
    characters count as words, together with the punctuation that follows; a word that is longer
    than a line stays whole.
    """
    from rich.cells import cell_len

    column, gap, word = 0, "", ""

    def placed() -> str:
        """The word that was held back, after its spaces or on a new line."""
        nonlocal column, gap, word
        size = cell_len(word)
        breaks = word and column and column + len(gap) + size > width
        before, column = ("\n", 0) if breaks else (gap, column + len(gap))
        column, text, gap, word = column + size, before + word, "", ""
        return text

    for char in chain.from_iterable(pieces):
        if char == "\n":
            yield placed() + char
            column = 0
        elif char == " ":
            if word:
                yield placed()
            gap += char
        else:
            wide = 2 in (cell_len(char), cell_len(word[-1:]))
            if word and wide and char not in CLOSING:
                yield placed()
            word += char
    yield placed()


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


def check_reader() -> None:
    """Raises ReaderLeft if stdout is a pipe that its reader has closed; for long work that has
    nothing to write yet. On Windows, this cannot be found out.
    """
    with suppress(OSError, AttributeError):  # if there is no file descriptor, or no poll
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        if any(event & select.POLLERR for _, event in pipe.poll(0)):
            raise ReaderLeft


def collect(pieces: Iterable[str]) -> str:
    """Joins pieces that are not shown yet; ends when the reader of stdout leaves."""
    checked, collected = 0.0, list[str]()
    for piece in pieces:
        collected.append(piece)
        if time.monotonic() > checked + REPEATED:
            check_reader()
            checked = time.monotonic()
    return "".join(collected)


def check_writable(path: Path) -> None:
    """Raises StorageError if the file cannot be written, before there is anything to write."""
    with files.storage_errors(f"write {path}"):
        path.open("ab").close()


def write(text: str, output: Path | None = None) -> None:
    """Writes UTF-8 text to stdout or the file, and flushes it. The text is unchanged, but a
    terminal gets escaped control characters. Raises StorageError, ConfigError.
    """
    if _is_terminal(output):
        from gpt.characters import escape

        text = escape(text)
    write_bytes(text.encode("utf-8", "backslashreplace"), output)


def stdout_is_utf8() -> bool:
    """Whether the encoding of stdout is UTF-8."""
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "cp65001")


def width(stream: TextIO) -> int | None:
    """Width of stdout or stderr in cells; None in a pipe if COLUMNS is not set."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def stream(begin: str, pieces: Iterable[str] = ()) -> None:
    """Writes a text to stdout piece by piece, then a newline, even after Ctrl-C. On a terminal,
    lines are wrapped between words.
    """
    last = ""
    texts: Iterable[str] = chain((begin,), pieces)
    if sys.stdout.isatty() and (cells := width(sys.stdout)):
        from gpt.characters import escape

        texts = wrap_pieces(map(escape, texts), cells)
    interrupt = None
    try:
        for text in texts:
            if text:
                write(text)
                last = text[-1]
    except KeyboardInterrupt as error:
        interrupt = error
    if last != "\n":
        write("\n")
    if interrupt:
        raise interrupt


def write_bytes(data: bytes, output: Path | None = None) -> None:
    """Writes bytes to the file or to stdout. Raises StorageError, ConfigError.

    A name of stdout, such as /dev/stdout, means stdout: what was written to it before is kept.
    """
    if output is not None and not _is_stdout(output):
        with files.storage_errors(f"write {output}"):
            output.write_bytes(data)
        return
    if b"\0" in data and sys.stdout.isatty():
        raise ConfigError("--format: this one is binary; give it a file with -o")
    with output_errors():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _is_terminal(output: Path | None) -> bool:
    with suppress(OSError, ValueError):
        return sys.stdout.isatty() if output is None else stat.S_ISCHR(os.stat(output).st_mode)
    return False


def _is_stdout(path: Path) -> bool:
    with suppress(OSError, ValueError):  # no such file, or stdout is not a file
        return os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    return False


def write_json(*records: Mapping[str, Any], output: Path | None = None) -> None:
    """Writes a line of JSON for each record, to stdout or the file. Raises StorageError."""
    from gpt.characters import to_json

    write("".join(f"{to_json(each)}\n" for each in records), output)


def print_facts(facts: Mapping[str, str | Sequence[str]]) -> None:
    """Prints names and texts, which may have several lines, on stderr."""
    from gpt.show.terminal import Screen, draw_facts

    for line in draw_facts(facts, Screen(width(sys.stderr) or WIDE)).splitlines():
        _print_aside(line)


def read_text(path: str, most: int | None = None, encoding: str = "utf-8") -> str:
    """A file's text, or standard input's for "-", read as a training reads it: a byte order mark is
    left out, line ends become LF. Prints a note if the text is not UTF-8.

    Raises TextError if it is unreadable, is not a text, is in another encoding, or has more than
    `most` bytes; ConfigError for an unknown encoding. The start is checked first, as the rest may
    never end.
    """
    from gpt.config.train import check_encoding
    from gpt.corpus import encodings

    check_encoding(encoding)
    if "\0" in path:
        raise TextError(f"cannot read {path}: the name has a NUL character")
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            data = file.read(START)
            encodings.check_start(data, path, encoding)
            data += file.read() if most is None else file.read(most)
    except OSError as error:
        raise TextError(f"cannot read {path}: {error.strerror or error}") from None
    if most is not None and len(data) > most:
        raise TextError(f"{path} has more than {most:,} bytes")
    text, codec = encodings.decode_text(data, path, encoding)
    if codec != encodings.UTF_8:
        name = "standard input" if path == "-" else printable(path)
        say(f"note: {name}: read as {codec.upper()}")
    return text
