"""The option classes that several commands share: checkpoint, text, device and output.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from gpt.commands import console
from gpt.commands.options import argument
from gpt.config.fields import Options, option
from gpt.config.model import OnUnknown
from gpt.config.train import ESCAPES, Checkpoints, OnDevice, unescaped
from gpt.devices import driver_lists_gpu
from gpt.errors import ConfigError, NumericsError

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.show.result import Check, Result
    from gpt.show.terminal import Screen

Form = TypeVar("Form", bound=str)

TORCH_PAYS = 10**10  # parameters × characters, above which a GPU is worth importing torch
PAGE_MARK = b"gptx</title>"  # in the first bytes of a page that gptx wrote
UTF_8 = ("utf-8", "utf8", "cp65001")  # names that stdout's encoding may have
STDOUT = Path("-")  # the value of -o for stdout


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    text: Annotated[
        str | None, argument(f"Text to read; - reads stdin. {ESCAPES}", "from validation")
    ] = None
    file: Annotated[Path | None, option("File with the text.")] = None

    def read(self, encoding: str) -> str | None:
        """The text, or None without one. encoding: the file's. Raises ConfigError, TextError."""
        return read_one_text({"TEXT": self.text, "--file": self.file}, encoding)


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """How to write a result, and to which file. Only a field with a help text is an option. A
    subclass can give a help text to any of the fields.
    """

    json: Annotated[bool, option("JSON on stdout.")] = False
    ascii: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    output: Path | None = None

    @property
    def path(self) -> Path | None:
        """The file to write; None for stdout."""
        return None if self.output == STDOUT else self.output

    def output_format(self, forms: Sequence[Form]) -> Form | Literal["json"]:
        """The format of the output: "json" with --json, else that of the ending of --output, and
        "text" without an ending. Raises ConfigError for an unknown ending.
        """
        if self.json:
            return "json"
        endings = {".txt" if form == "text" else f".{form}": form for form in forms}
        ending = self.path.suffix.lower() if self.path else ""
        if ending not in ("", *endings):
            raise ConfigError("output", f"{ending} is not one of {', '.join(endings)}")
        return endings[ending or ".txt"]

    def screen(self, all: bool = False) -> Screen:
        """A screen as wide as the terminal, with the signs that the terminal's encoding has. A file
        has no such limits. all: shows the long form of a result.
        """
        from gpt.show.terminal import Screen

        signs = self.ascii or not (self.path or str(sys.stdout.encoding).lower() in UTF_8)
        width = None if self.path else console.terminal_width(sys.stdout)
        color = "never" if self.path and self.color == "auto" else self.color
        return Screen(width, signs, color, all)

    def write_result(
        self, result: Result, origin: Mapping[str, Any] | None = None, all: bool = False
    ) -> None:
        """Writes a drawing of a result or, with --json, one line with the result and its origin."""
        if self.json:
            from gpt.show.result import to_json

            text = to_json(result, origin)
        else:
            from gpt.show.terminal import draw

            text = draw(result, self.screen(all))
        console.write_bytes(text.encode(), self.path)


@dataclass(frozen=True, kw_only=True)
class DrawingOptions(OutputOptions):
    ascii: Annotated[bool, option("Draw labels and signs in ASCII.")] = False
    color: Annotated[Literal["auto", "always", "never"], option("Colours.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(Options):
    run: Annotated[
        str | None,
        option("A run's name, or the path of a run or a model file.", "the pinned one, or newest"),
    ] = None
    step: Annotated[str, option("best, last, or a kept step's number.")] = "best"
    checkpoints: Checkpoints = Path("checkpoints")

    def open(self) -> TrainedGPT:
        """Opens the checkpoint. If there are several runs and --run names none, prints the name of
        the run. Raises CheckpointError, ConfigError.
        """
        from gpt.interface.trained import find_model
        from gpt.storage.run import all_runs, pinned_run

        model = find_model(self.checkpoints, self.run, self.step)
        if self.run is None and len(all_runs(self.checkpoints)) > 1:
            how = "the newest" if pinned_run(self.checkpoints) is None else "pinned"
            console.say(f"run: {model.name}, {how} (--run takes another)")
        return model


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(CheckpointOptions):
    """The checkpoint that reads a text, and how it reads the text."""

    unknown: OnUnknown = "fold"
    encoding: Annotated[
        str,
        option("Encoding of a file that is not UTF-8 and has no byte order mark, such as cp1252."),
    ] = "utf-8"

    def text_for_model(self, model: TrainedGPT, text: str | None, truncate: bool = False) -> str:
        """The text or, without one, an example that a note quotes, in characters that the model
        knows. truncate: keeps only the last block_size characters. Raises TextError.
        """
        model.check_probe()  # an error comes before any note
        text = model.text_or_example(text, name="TEXT")
        return model.known_text(text, self.unknown, truncate)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ReadingOptions):
    """The checkpoint that reads a text, and the device that computes."""

    device: OnDevice = "auto"

    def open_on_device(self, windows: int = 1, characters: int = 0) -> TrainedGPT:
        """Opens the checkpoint on the device of --device. "auto" is the fastest device for so many
        windows, or characters. If there is a GPU, a line says whether it computes.
        """
        model = self.open()
        if self.device != "auto":
            return model.on(self.device)
        characters = characters or windows * model.config.block_size
        if model.config.parameters() * characters < TORCH_PAYS:
            if driver_lists_gpu():
                why = "for so little work, faster than the GPU; --device cuda uses the GPU"
                console.say(f"device: cpu ({why})")
            return model
        model = model.on("auto")
        if model.device != "cpu":
            console.say(f"device: {model.device} (--device cpu computes with numpy)")
        return model


def note_on_counting(model: TrainedGPT) -> None:
    """Prints that the output shows the GPT alone, if the model also uses counting."""
    if model.config.counting:
        console.say("note: this is the GPT alone; sample, next and eval also use counting")


def default_page_path(name: str, option: str) -> Path:
    """The path of the page that a command writes without -o. Raises ConfigError if another program
    wrote the file at this path.
    """
    path = Path(name)
    is_page = os.path.isfile(path) and PAGE_MARK in path.read_bytes()[:4096]
    message = f"{option}: {path} is not a page of gptx; name another file with -o"
    refuse_if(os.path.lexists(path) and not is_page, message)
    return path


def open_in_browser(path: Path) -> None:
    """Opens a page in the browser, and prints its path on stderr."""
    import webbrowser

    is_open = webbrowser.open(path.resolve().as_uri())
    console.say(f"page: {path}" + ("" if is_open else " (no browser found to open it)"))


def refuse_if(wrong: bool, message: str) -> None:
    """Raises ConfigError with this message if `wrong` is true."""
    if wrong:
        raise ConfigError(message)


def require_passed_checks(checks: Iterable[Check]) -> None:
    """Raises NumericsError if a check has failed."""
    if names := ", ".join(sorted({check.name for check in checks if not check.passed})):
        raise NumericsError(f"a check failed: {names}; do not trust these numbers")


def read_one_text(texts: Mapping[str, str | Path | None], encoding: str) -> str | None:
    """Reads the text of the only option that has a value: a Path names a file, "-" is standard
    input, and another value is the text itself, in which escapes such as \\n are resolved.

    texts: option -> its value. encoding: that of the file. Raises ConfigError, TextError.
    """
    sources = {name: value for name, value in texts.items() if value is not None}
    refuse_if(len(sources) > 1, f"{' and '.join(sources)}: give the text once")
    source = next(iter(sources.values()), None)
    if isinstance(source, Path) or source == "-":
        return console.read_text(str(source), encoding=encoding)
    if source is not None and os.path.isfile(source):
        console.say(f"note: the text is “{source}” itself; --file reads the file")
    return None if source is None else unescaped(source)


def stops_for_model(model: TrainedGPT, stops: Sequence[str]) -> tuple[str, ...]:
    """The stop texts in the model's characters, escapes resolved. Raises ConfigError, TextError."""
    refuse_if("" in stops, "--stop: an empty text would stop before anything is written")
    return tuple(model.known_text(unescaped(stop)) for stop in stops)
