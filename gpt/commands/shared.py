"""Base classes of commands: shared options, opening a checkpoint, reading a text, writing the
output.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from gpt.commands import console
from gpt.commands.options import Command
from gpt.config import Unknown
from gpt.config.fields import error_with_flags, with_flags
from gpt.devices import Device, check_device, lists_gpu
from gpt.errors import ConfigError, NumericsError, TextError
from gpt.words import printable

if TYPE_CHECKING:
    from rich.text import Text

    from gpt.blocks import Block, Records
    from gpt.interface.trained import TrainedGPT
    from gpt.view.terminal.lines import Page

Form = TypeVar("Form", bound=str)

TORCH_PAYS = 10**10  # parameters × characters; for more, importing torch for a GPU is worthwhile
#: Options of several commands.
Preceding = Annotated[
    str | None,
    typer.Argument(help="Preceding text; - reads stdin.", show_default="from validation"),
]
TextFile = Annotated[Path | None, "File with the text."]


class Writing(Command):
    """A command that writes its result as text, or in the format of a file. A subclass that
    annotates one of these attributes has it as an option.
    """

    ascii_only: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    output: Path | None = None  # None: stdout

    def form(self, forms: Sequence[Form], advice: str = "") -> Form | Literal["json"]:
        """json with --json, else the format for the ending of --output; text without an ending.
        Raises ConfigError for an ending that is none of these formats.
        """
        if self.as_json:
            return "json"
        endings = {".txt" if form == "text" else f".{form}": form for form in forms}
        ending = self.output.suffix.lower() if self.output else ""
        if ending not in ("", *endings):
            raise ConfigError("output", f"{ending} is not one of {', '.join(endings)}{advice}")
        return endings[ending or ".txt"]

    def page(self, **drawing: Any) -> Page:
        """A page as wide as the terminal, in ASCII if that needs it; a file has no such limits."""
        from gpt.view.terminal.lines import Page

        signs = self.ascii_only or not (self.output or console.stdout_is_utf8())
        width = None if self.output else console.width(sys.stdout)
        coloured = console.uses_colours(self.color) and not (self.output and self.color == "auto")
        return Page(width, signs, coloured=coloured, **drawing)

    def write_lines(self, lines: Iterable[Text]) -> None:
        """Writes rich lines. Raises StorageError."""
        console.write_lines(lines, self.output, self.color)

    def write_blocks(self, blocks: Iterable[Block]) -> None:
        """Writes a result's blocks. Raises StorageError."""
        from gpt.view.terminal.blocks import lines_of

        self.write_lines(lines_of(blocks, self.page()))

    def write_json(self, *records: Mapping[str, Any]) -> None:
        """Writes a line of JSON for each record. Raises StorageError."""
        console.write_json(*records, output=self.output)

    def write_text(self, text: str) -> None:
        """Writes a text unchanged. Raises StorageError."""
        console.write(text, self.output)

    def write_record(self, found: Records, origin: Mapping[str, Any] | None = None) -> None:
        """Writes a result as a line of JSON, with where it comes from. Raises StorageError."""
        from gpt.view.records import to_record

        self.write_json(to_record(found, origin or {}))

    def write_csv(self, found: Records) -> None:
        """Writes a result's rows as CSV. Raises StorageError."""
        from gpt.view.records import to_csv

        self.write_text(to_csv(found))


class CheckpointCommand(Command):
    """A command that works with a saved checkpoint."""

    run: Annotated[str | None, "A run's name, or the path of a run or a model file.", "newest"] = (
        None
    )
    step: Annotated[str, "best, last, or a kept step's number."] = "best"

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint that --run and --step choose. Raises CheckpointError, ConfigError."""
        return self.open(self.run, self.step)

    def open(self, run: str | None, step: str) -> TrainedGPT:
        """Opens a step's checkpoint; prints notes on it. Raises CheckpointError, ConfigError."""
        from gpt.interface.trained import find_model
        from gpt.storage.runs import all_runs

        saved = find_model(self.checkpoints, run, step)
        if run is None and len(all_runs(self.checkpoints)) > 1:
            console.say(f"run: {saved.name}, the newest (--run takes another)")
        return saved


class ModelCommand(CheckpointCommand):
    """A command that lets a saved checkpoint read a text. A subclass that annotates `device` has it
    as an option.
    """

    device: Device = "auto"
    _explained = False  # whether a line says why "auto" does not use a GPU
    unknown: Annotated[
        Unknown,
        "Characters that the model does not know. fold: read a known one that means the same, such "
        "as ’ for '; skip: as fold, and leave out the others; error: refuse the text.",
    ] = "fold"
    encoding: Annotated[
        str, "Encoding of a file that is not UTF-8 and has no byte order mark, such as cp1252."
    ] = "utf-8"

    def on_device(self, saved: TrainedGPT, characters: int) -> TrainedGPT:
        """The checkpoint on the device of --device, to read or write this many characters. If there
        is a GPU, prints once why "auto" does not use it.

        Raises ConfigError for a device that does not exist or cannot compute the model.
        """
        if self.device != "auto":
            return saved.on(self.device)
        if saved.stored.config.parameters() * characters >= TORCH_PAYS:
            return saved.on(self._automatic)
        if lists_gpu() and not self._explained:
            why = "numpy is done before torch would be imported; --device cuda uses the GPU"
            console.say(f"device: cpu ({why})")
            self._explained = True
        return saved.on("cpu")

    @cached_property
    def _automatic(self) -> str:
        """The device that "auto" chooses for much work; prints a line if it is not the CPU."""
        from gpt.interface.trained import try_torch

        device = check_device("auto", try_torch)
        if device != "cpu":
            console.say(f"device: {device} (--device cpu computes with numpy)")
        return device

    def text_for(self, model: TrainedGPT, text: str | None, truncate: bool = False) -> str:
        """The text as the model reads it. If there is no text, the validation split's first line,
        which a note quotes. Raises TextError for an unknown character, unless a caller will
        truncate the text and may so cut it off.
        """
        model.prove()  # before any note
        if text and truncate:
            return model.readable_text(text, self.unknown, console.say)
        return self.known_text(model, model.given(text, console.say, "TEXT"))

    def known_text(self, model: TrainedGPT, text: str, name: str = "") -> str:
        """See TrainedGPT.known_text; prints its notes."""
        return model.known_text(text, self.unknown, note=console.say, name=name)


class DrawingCommand(Writing, ModelCommand):
    """A command that draws what a model does; its text can be in ASCII and without colours."""

    ascii_only: Annotated[bool, typer.Option("--ascii", help="Labels and signs in ASCII.")] = False
    color: Annotated[Literal["auto", "always", "never"], "Colours."] = "auto"


def note(line: str) -> None:
    """Writes a note of the library, with options as flags, to stderr."""
    console.say(with_flags(line))


def note_on_counting(model: TrainedGPT) -> None:
    """Prints, if the model counts, that the output is about the GPT alone."""
    if model.config.counting:
        console.say("note: this is the GPT alone; sample, next and eval also use counting")


def default_file(name: str, mark: bytes, option: str) -> Path:
    """The file that a command writes if -o does not name one.

    mark: what such a file has in its first 4 kB. Raises ConfigError if a file with this name exists
    that gptx did not write.
    """
    path = Path(name)
    if os.path.lexists(path) and not (os.path.isfile(path) and mark in path.read_bytes()[:4096]):
        raise ConfigError(f"{option}: {path} is not a page of gptx; name another file with -o")
    return path


def open_in_browser(path: Path) -> None:
    """Opens a page that was written, and prints its name on stderr."""
    found = webbrowser.open(path.resolve().as_uri())
    console.say(f"page: {path}" + ("" if found else " (no browser found to open it)"))


def output_option(help: str) -> Any:
    """The option -o, --output: a file; None, or "-", means stdout."""

    def file(path: Path | None) -> Path | None:
        return None if path == Path("-") else path

    return typer.Option("-o", "--output", help=help, callback=file)


def refuse_if(*rules: tuple[bool, str]) -> None:
    """Raises ConfigError with the message of the first rule whose condition is true."""
    for holds, message in rules:
        if holds:
            raise ConfigError(message)


def require_passed(failed: Iterable[str]) -> None:
    """Raises NumericsError if there are failed checks. failed: their names."""
    if names := ", ".join(sorted(set(failed))):
        raise NumericsError(f"a check failed: {names}; do not trust these numbers")


def one_text(given: Mapping[str, str | Path | None], encoding: str) -> str | None:
    """The text of the only option that has a value, read from a file or stdin if needed.

    given: option -> its value. encoding: of a file. Raises ConfigError, TextError.
    """
    sources = {name: value for name, value in given.items() if value is not None}
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)}: give the text once")
    source = next(iter(sources.values()), None)
    if isinstance(source, Path) or source == "-":
        return console.read_text(str(source), encoding=encoding)
    return source


def checked_stops(model: TrainedGPT, stops: Sequence[str], name: str = "--stop") -> tuple[str, ...]:
    """The stop texts as the model writes them; notes any that cannot occur. Raises ConfigError."""
    found = []
    for stop in stops:
        if not stop:
            raise ConfigError(f"{name}: an empty text would stop before anything is written")
        found.append(stop := model.readable_text(stop, "fold", console.say, name))
        if missing := model.vocabulary.unknown(stop):
            console.say(
                f"note: {name} {stop!r} can never occur: the model does not know {missing[0]!r}"
            )
    return tuple(found)


@contextmanager
def report_errors(name: str, failed: list[int]) -> Iterator[None]:
    """A context that reports the error of a text by its name, so that the others are scored."""
    try:
        yield
    except TextError as error:
        problem, label = error_with_flags(error), text_label(name)
        console.say_error(problem if label in problem else f"{label}: {problem}")
        failed.append(error.exit_code)


def text_label(name: str) -> str:
    """The name of a text, "-" for standard input, as results and files show it."""
    return "standard input" if name == "-" else printable(name)
