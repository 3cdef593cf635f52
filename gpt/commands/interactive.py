"""`gptx sample -i`: the user and the model write a text in turns.

The program adds a typed line to the text, and the model continues the text. A typed line that
begins with / is a command. One that begins with a dash or quotation mark gets a line of its own.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpt.commands import console, exit_code_and_message
from gpt.commands.options import refuse_if, stops_for_model
from gpt.config import SampleConfig, Unknown
from gpt.config.fields import fields_of, flag_of
from gpt.config.model import seed_of
from gpt.config.train import unescaped
from gpt.errors import ConfigError, GptxError, raise_first_interrupt, stop_on_signals
from gpt.storage.files import storage_errors
from gpt.words import needs_space_between

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

#: Name of a setting -> its field. There is no setting n, because a turn is one sample.
SETTINGS = {flag_of(name).lstrip("-"): name for name in fields_of(SampleConfig) if name != "n"}
DIALOGUE = "-–—―\"“”„«»‘‚'"  # a typed line that begins with one of these goes on a new line
#: What to type -> what it does.
HELP = {
    "Enter": "the model continues the text; Ctrl-C stops it and keeps what it wrote",
    "text": "adds what you type to the text, with a space between words, or on a new line if it "
    "begins with a dash or quotation mark; then the model continues; \\n adds a new line, // a /",
    "+text": "adds what you type without a space or new line, to continue the last word",
    "/again": "the model writes its last turn again, in another way",
    "/undo": "removes the last turn: your line and what the model wrote",
    "/new": "begins an empty text",
    "/show": "shows the whole text",
    "/save [FILE]": "adds the text to FILE; without FILE, to the last /save's file or sample.txt",
    "/novelty": "shows the longest passage that the model has copied from its training text",
    "/stop [TEXT]": "ends every turn of the model before TEXT; /stop none removes the stop texts",
    "/length 100": f"changes a setting: {', '.join(SETTINGS)}; /top-k none removes a filter",
    "/help": "shows this list",
    "/quit": "ends the program, as Ctrl-D does",
}


class Turn(NamedTuple):
    """A typed line and the model's answer, which the user can undo or have written again."""

    before: str  # the text before this turn
    start: str  # the text that the model continued


@dataclass
class WritingSession:
    """The text so far, the sampling settings, and the turns that can be undone.

    drawn: the number of turns that the model has written since the seed was set. Added to the seed,
    this number gives every turn other random numbers. stopped: the stop text that ended the last
    turn; Enter continues after this text. data: the folder of the encoded corpora. file: the file
    of /save.
    """

    model: TrainedGPT
    settings: SampleConfig
    stops: tuple[str, ...] = ()
    text: str = ""
    unknown: Unknown = "fold"
    data: Path = Path("data")
    file: Path = Path("sample.txt")
    turns: list[Turn] = field(default_factory=list)
    drawn: int = 0
    stopped: str | None = None

    def __post_init__(self) -> None:
        self.settings = replace(self.settings, seed=seed_of(self.settings))

    def handle_line(self, line: str) -> bool:
        """Handles a typed line; returns whether the session goes on. An error changes nothing."""
        if not line.startswith("/") or line.startswith("//"):
            self._turn(line.removeprefix("/"))
            return True
        name, _, value = line[1:].partition(" ")
        name = name.strip()
        try:
            self._command(name, value)
        except ConfigError as error:
            raise ConfigError(f"/{name}: {error.reason}") from None
        return name != "quit"

    def _turn(self, typed: str) -> None:
        """Adds a typed line to the text, then shows the text while the model continues it."""
        typed = unescaped(typed)
        added = self.model.known_text(typed.removeprefix("+"), self.unknown)
        if not typed:
            added = "" if self.settings.keep_stop else self.stopped or ""
        elif typed[0] in DIALOGUE and self.text and self.text[-1] != "\n":
            added = self._after("\n", added)
        elif needs_space_between(self.text, added) and not typed.startswith("+"):
            added = self._after(" ", added)
        self.turns.append(Turn(self.text, self.text + added))
        self.text += added
        self._write(added)

    def _after(self, character: str, text: str) -> str:
        """Puts the character before the text, if the model knows the character."""
        return text if self.model.vocabulary.unknown(character) else character + text

    def _write(self, added: str) -> SampleConfig:
        """Shows `added`, then what the model writes next. Returns the settings with their seed."""
        start = self.turns[-1].start
        settings = replace(self.settings, seed=(seed_of(self.settings) + self.drawn) % 2**63)
        self.drawn += 1
        samples = self.model.stream(start, settings, stop=self.stops, data=self.data)
        self.text = start
        interrupted = list[str]()

        def pieces() -> Iterator[str]:
            yield added
            for (piece,) in samples:
                self.text += piece
                yield piece
                if interrupted:
                    return

        with stop_on_signals(interrupted.append, "SIGINT"):
            console.stream_text(pieces())
        (self.stopped,) = samples.stopped
        if self.stopped is not None:
            console.say(f"stopped at {self.stopped!r}")
        if samples.ended == ["copies"]:
            from gpt.reading.writing import ONLY_COPIES

            console.say(ONLY_COPIES)
        return settings

    def _command(self, name: str, value: str) -> None:
        refuse_if(bool(value) and f"/{name}" in HELP, "takes no value")
        match name:
            case "again":
                refuse_if(not self.turns, "the model has written nothing yet")
                console.say(f"seed {self._write('').seed}")
            case "undo":
                refuse_if(not self.turns, "there is nothing to take back")
                self.text, self.stopped = self.turns.pop().before, None
                console.stream_text(["\n".join(self.text.split("\n")[-3:])])
            case "new":
                self.turns.append(Turn(self.text, ""))
                self.text, self.stopped = "", None
            case "show":
                console.stream_text([self.text])
            case "save":
                self._save(value.strip())
            case "novelty":
                ends = [*(turn.before for turn in self.turns), self.text][1:]
                turns = zip(self.turns, ends, strict=True)
                written = [end[len(turn.start) :] for turn, end in turns]
                refuse_if(not any(written), "the model has written nothing yet")
                novelties = self.model.novelty(written, data=self.data)
                console.say(str(max(novelties, key=lambda novelty: len(novelty.longest))))
            case "help":
                for typed, what in HELP.items():
                    console.say(f"{typed}: {what}")
            case "quit":
                pass
            case _:
                self._set(name.replace("_", "-"), value)

    def _save(self, name: str) -> None:
        """Appends the text to a file. Raises ConfigError, StorageError."""
        from gpt.reading.writing import DIVIDER

        refuse_if(not self.text, "the text is empty; nothing was written")
        with storage_errors(f"write {name or self.file}"):
            path = Path(os.path.expanduser(name or self.file)).resolve()
            manifest = self.model.manifest_or_none
            learned = manifest is not None and path.name in manifest.corpus.names
            refuse_if(learned, f"the model learned a text named {path.name}; name another file")
            with path.open("a", encoding="utf-8", newline="") as file:
                file.write((DIVIDER if file.tell() else "") + self.text)
        self.file = path
        console.say(f"{len(self.text):,} characters added to {path}")

    def _set(self, name: str, value: str) -> None:
        """Changes a setting, unless the value is empty, and prints all settings. Raises ConfigError
        for an unknown name or a wrong value.
        """
        refuse_if(name not in (*SETTINGS, "stop"), "no such command; /help lists the commands")
        setting: Any = None if value.strip() == "none" else value
        if name == "stop" and value:
            stops = () if setting is None else (value,)
            self.stops, self.stopped = stops_for_model(self.model, stops), None
        elif value.strip():
            if name == "ban":
                setting = setting and unescaped(value.strip())
            else:
                with suppress(ValueError, SyntaxError):
                    setting = ast.literal_eval(value.strip().capitalize())  # true becomes True
            self.settings = replace(self.settings, **{SETTINGS[name]: setting})
            if name == "seed":
                self.settings = replace(self.settings, seed=seed_of(self.settings))
                self.drawn = 0  # the next turn uses this seed
        console.say(self.settings_text())

    def settings_text(self) -> str:
        """The settings that have a value, in one line."""
        values = {name: getattr(self.settings, field) for name, field in SETTINGS.items()}
        values = {name: value for name, value in values.items() if value is not False}
        settings = [f"{name} {value}" for name, value in values.items() if value is not None]
        return " · ".join([*settings, *(f"stop {stop!r}" for stop in self.stops)])

    def run(self) -> None:
        """Handles lines from the terminal until the user ends the session, even after errors."""
        from prompt_toolkit import PromptSession

        terminal = PromptSession[str]()
        console.say(f"{self.model.stored.title} · {self.settings_text()}")
        console.say(f"Enter: {HELP['Enter']} · /help · Ctrl-D ends")
        if self.text:
            console.stream_text([self.text])
        going = True
        while going:
            raise_first_interrupt()
            try:
                going = self.handle_line(terminal.prompt("> "))
            except EOFError:
                going = False
            except KeyboardInterrupt:
                pass  # Ctrl-C drops the typed line
            except console.OutputClosed:
                raise
            except Exception as error:  # an error that ended the session would lose the text
                advice = "" if isinstance(error, GptxError) else "; /save FILE saves the text"
                console.say_error(exit_code_and_message(error)[1] + advice)
