"""Options that several commands have, as classes: which checkpoint, which text, on which device,
and how to write the result.

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
from gpt.devices import check_device, lists_gpu
from gpt.errors import ConfigError, NumericsError

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.show.result import Check, Result
    from gpt.show.terminal import Screen

Form = TypeVar("Form", bound=str)

TORCH_PAYS = 10**10  # parameters × characters; for more, importing torch for a GPU is worthwhile
OURS = b"gptx</title>"  # in the first bytes of a page that gptx wrote
UTF_8 = ("utf-8", "utf8", "cp65001")  # names of stdout's encoding
ON_SCREEN = Path("-")  # the name that -o has for stdout


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """A text, or a file with it."""

    text: Annotated[
        str | None, argument(f"Text to read; - reads stdin. {ESCAPES}", "from validation")
    ] = None
    file: Annotated[Path | None, option("File with the text.")] = None

    def read(self, encoding: str) -> str | None:
        """The text, if there is one. encoding: of a file. Raises ConfigError, TextError."""
        return one_text({"TEXT": self.text, "--file": self.file}, encoding)


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """How to write a result: as text, or in the format of a file. Only the fields with a help text
    are options; a subclass gives others one.
    """

    json: Annotated[bool, option("JSON on stdout.")] = False
    ascii: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    output: Path | None = None

    @property
    def path(self) -> Path | None:
        """The file to write; None: stdout."""
        return None if self.output == ON_SCREEN else self.output

    def form(self, forms: Sequence[Form]) -> Form | Literal["json"]:
        """json with --json, else the format for the ending of --output; text without an ending.
        Raises ConfigError for an ending that is none of these formats.
        """
        if self.json:
            return "json"
        endings = {".txt" if form == "text" else f".{form}": form for form in forms}
        ending = self.path.suffix.lower() if self.path else ""
        if ending not in ("", *endings):
            raise ConfigError("output", f"{ending} is not one of {', '.join(endings)}")
        return endings[ending or ".txt"]

    def screen(self, all: bool = False) -> Screen:
        """A screen as wide as the terminal, in ASCII if that needs it; a file has no such limits.
        all: for the long form of a result.
        """
        from gpt.show.terminal import Screen

        signs = self.ascii or not (self.path or str(sys.stdout.encoding).lower() in UTF_8)
        width = None if self.path else console.width(sys.stdout)
        color = "never" if self.path and self.color == "auto" else self.color
        return Screen(width, signs, color, all)

    def write_result(
        self, result: Result, origin: Mapping[str, Any] | None = None, all: bool = False
    ) -> None:
        """Draws a result; with --json, writes it as a line, with where it comes from."""
        if self.json:
            from gpt.show.result import to_json

            text = to_json(result, origin)
        else:
            from gpt.show.terminal import draw

            text = draw(result, self.screen(all))
        console.write_bytes(text.encode(), self.path)


@dataclass(frozen=True, kw_only=True)
class DrawingOptions(OutputOptions):
    """How to draw what a model does: in ASCII or not, and in which colours."""

    ascii: Annotated[bool, option("Labels and signs in ASCII.")] = False
    color: Annotated[Literal["auto", "always", "never"], option("Colours.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(Options):
    """Which saved checkpoint to open."""

    run: Annotated[
        str | None,
        option("A run's name, or the path of a run or a model file.", "the pinned one, or newest"),
    ] = None
    step: Annotated[str, option("best, last, or a kept step's number.")] = "best"
    checkpoints: Checkpoints = Path("checkpoints")

    def open(self) -> TrainedGPT:
        """The checkpoint; prints which run it is if several could be meant. Raises CheckpointError,
        ConfigError.
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
    """Which checkpoint reads a text, and how."""

    unknown: OnUnknown = "fold"
    encoding: Annotated[
        str,
        option("Encoding of a file that is not UTF-8 and has no byte order mark, such as cp1252."),
    ] = "utf-8"

    def text_for(self, model: TrainedGPT, text: str | None, truncate: bool = False) -> str:
        """The text as the model reads it. If there is no text, the validation split's first line,
        which a note quotes. truncate: keep only its end. Raises TextError for an unknown character.
        """
        model.prove()  # before any note
        text = model.text_or_example(text, name="TEXT")
        return model.known_text(text, self.unknown, truncate)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ReadingOptions):
    """Which checkpoint reads a text, how, and what computes."""

    device: OnDevice = "auto"

    def open_on_device(self, windows: int = 1, characters: int = 0) -> TrainedGPT:
        """The checkpoint on the device of --device. "auto": what computes this many windows, or
        characters, soonest; a line says why it is not the GPU, or that it is.
        """
        model, device = self.open(), str(self.device)
        if device != "auto":
            return model.on(device)
        characters = characters or windows * model.config.block_size
        if model.config.parameters() * characters < TORCH_PAYS:
            if lists_gpu():
                why = "numpy is done before torch would be imported; --device cuda uses the GPU"
                console.say(f"device: cpu ({why})")
            return model.on("cpu")
        from gpt.interface.trained import try_torch

        device = check_device("auto", try_torch)
        if device != "cpu":
            console.say(f"device: {device} (--device cpu computes with numpy)")
        return model.on(device)


def note_on_counting(model: TrainedGPT) -> None:
    """Prints, if the model counts, that the output is about the GPT alone."""
    if model.config.counting:
        console.say("note: this is the GPT alone; sample, next and eval also use counting")


def default_page(name: str, option: str) -> Path:
    """The page that a command writes if -o does not name a file. Raises ConfigError if a file with
    this name exists that gptx did not write.
    """
    path = Path(name)
    if os.path.lexists(path) and not (os.path.isfile(path) and OURS in path.read_bytes()[:4096]):
        raise ConfigError(f"{option}: {path} is not a page of gptx; name another file with -o")
    return path


def open_in_browser(path: Path) -> None:
    """Opens a page that was written, and prints its name on stderr."""
    import webbrowser

    is_open = webbrowser.open(path.resolve().as_uri())
    console.say(f"page: {path}" + ("" if is_open else " (no browser found to open it)"))


def refuse_if(wrong: bool, message: str) -> None:
    """Raises ConfigError with the message if the condition is true."""
    if wrong:
        raise ConfigError(message)


def require_passed(checks: Iterable[Check]) -> None:
    """Raises NumericsError if one of the checks has failed."""
    if names := ", ".join(sorted({check.name for check in checks if not check.passed})):
        raise NumericsError(f"a check failed: {names}; do not trust these numbers")


def one_text(texts: Mapping[str, str | Path | None], encoding: str) -> str | None:
    """The text of the only option that has a value, read from a file or stdin if needed; of a typed
    one, the escapes are resolved.

    texts: option -> its value. encoding: of a file. Raises ConfigError, TextError.
    """
    sources = {name: value for name, value in texts.items() if value is not None}
    refuse_if(len(sources) > 1, f"{' and '.join(sources)}: give the text once")
    source = next(iter(sources.values()), None)
    if isinstance(source, Path) or source == "-":
        return console.read_text(str(source), encoding=encoding)
    if source is not None and os.path.isfile(source):
        console.say(f"note: the text is “{source}” itself; --file reads the file")
    return None if source is None else unescaped(source)


def checked_stops(model: TrainedGPT, stops: Sequence[str]) -> tuple[str, ...]:
    """The stop texts as the model writes them. Raises ConfigError, TextError."""
    refuse_if("" in stops, "--stop: an empty text would stop before anything is written")
    return tuple(model.known_text(unescaped(stop)) for stop in stops)
