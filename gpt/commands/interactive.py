"""`gptx sample -i`: the user and the model write a text in turns.

A typed line is added to the text, and the model continues it; a line that begins with / is a
command.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpt.blocks import Facts
from gpt.characters import words_meet
from gpt.commands import console, explain_error, shared
from gpt.commands.shared import refuse_if
from gpt.config import SampleConfig, Unknown
from gpt.config.fields import fields_of, flag_of
from gpt.errors import ConfigError, GptxError
from gpt.signals import raise_first_interrupt, stop_on_signals
from gpt.storage.files import storage_errors

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

#: Name of a setting -> its field. A turn has no number of samples.
SETTINGS = {"length": "length"}
SETTINGS |= {flag_of(name)[2:]: name for name in fields_of(SampleConfig) if name != "n"}
#: Command -> what it does. It takes a value if its key contains one.
HELP = {
    "Enter": "the model continues; Ctrl-C stops it and keeps what it wrote",
    "text, Enter": "adds the text, with a space if words would meet, and the model continues; "
    "Alt-Enter begins a new line; // begins with /",
    "+text, text+": "without that space: + at the start continues the last word, + at the end "
    "lets the model continue yours",
    "/again": "another version of the model's last turn",
    "/three": "three versions of it; 1, 2 or 3 then takes one",
    "/undo": "takes back the last turn, yours and the model's",
    "/new": "begins an empty text",
    "/show": "shows the whole text",
    "/save [FILE]": "writes it into a file: FILE, that of the last /save, or sample.txt",
    "/unknown [HOW]": "names the characters of your last line that the model does not know, and "
    "sets HOW it treats them",
    "/stop [TEXT]": "ends every turn before this text; none: never",
    "/length 100": f"changes a setting; so do {', '.join(f'/{it}' for it in [*SETTINGS][1:])}; "
    "none removes a filter, and without a value all are shown",
    "/help": "shows this",
    "/quit": "ends; so does Ctrl-D",
}
LONGEST_TURN = 10_000_000  # characters to keep in memory, and to show at once
TOO_LONG = f"at most {LONGEST_TURN:,} characters a turn"


class Turn(NamedTuple):
    """A turn that the user can undo or have written again."""

    before: str  # the text before this turn
    start: str = ""  # the text that the model continued
    ends: bool = False  # whether the typed text ends with a whole word
    past: str | None = None  # the stop text that the model continued after


@dataclass
class Session:
    """The text so far, the sampling settings, and the turns that can be undone."""

    model: TrainedGPT
    settings: SampleConfig
    stops: tuple[str, ...] = ()
    text: str = ""
    unknown: Unknown = "fold"
    turns: list[Turn] = field(default_factory=list)
    drawn: int = 0  # turns of the model since the seed was set; each has other random numbers
    stopped: str | None = None  # stop text that ended the last turn; Enter continues after it
    saved: list[Path] = field(default_factory=list)  # files that /save may replace
    asked: Path | None = None  # a file that /save replaces if it is asked once more
    line: str = ""  # the line typed last
    versions: list[tuple[str, str | None]] = field(default_factory=list)  # of which 1, 2 … take one

    def __post_init__(self) -> None:
        refuse_if(self.settings.length > LONGEST_TURN, f"--length: {TOO_LONG} with -i")
        self.settings = replace(self.settings, n=1)

    def take(self, line: str) -> bool:
        """Handles a typed line; False ends the session. Raises GptxError, and changes nothing."""
        versions, self.versions = self.versions, []
        if line.strip() in [str(1 + n) for n in range(len(versions))]:
            self.text, self.stopped = versions[int(line) - 1]
        elif line.startswith("/") and not line.startswith("//"):
            name, _, raw = line[1:].partition(" ")
            try:
                self._command(name.strip(), raw, raw.strip())
            except (ConfigError, ValueError) as error:
                reason = str(getattr(error, "reason", error)).removeprefix("unknown: ")
                raise ConfigError(f"/{name.strip()}: {reason}") from None
        else:
            self.line = line[line.startswith("//") :]
            self._turn(self.line)
        return line.strip() != "/quit"

    def _turn(self, typed: str) -> None:
        """Adds a typed line; the model continues the text, which is shown while it is written."""
        opened = typed[-1:] == "+" and typed[-2:-1].isalnum()
        typed = typed[:-1] if opened else typed
        joined = typed.startswith("+") and self._meets(typed[1:])
        typed = self.model.known_text(typed[joined:], self.unknown, note=console.say)
        space = " " * (not joined and self._meets(typed))
        start, past = self.text + space + typed, None if typed else self.stopped
        self.turns.append(Turn(self.text, start, bool(typed) and not opened, past))
        self._write(typed)

    def _meets(self, added: str) -> bool:
        """Whether a space that the model knows is needed between the text and this addition."""
        return words_meet(self.text, added) and not self.model.vocabulary.unknown(" ")

    def _write(self, shown: str) -> None:
        """Continues from the last turn's start; shows `shown`, then what the model writes."""
        turn = self.turns[-1]
        self.text, self.stopped = turn.start, None
        settings, interrupted = self._next_settings(), list[str]()
        with stop_on_signals(interrupted.append, "SIGINT"):
            if turn.ends:  # after a whole word, a letter would continue it
                one = replace(settings, length=min(1, settings.length))
                first = "".join(piece for (piece,) in self.model.stream(self.text, one))
                space = " " * self._meets(first)
                self.text, shown = self.text + space, shown + space
            samples = self.model.stream(self.text, settings, self.stops, past=turn.past)

            def gained() -> Iterator[str]:
                for (piece,) in samples:
                    self.text += piece
                    yield piece
                    if interrupted:
                        return

            console.stream(shown, gained(), wraps=True)
        (self.stopped,) = samples.stopped
        if self.stopped is not None:
            console.say(f"stopped at {self.stopped!r}")

    def _next_settings(self) -> SampleConfig:
        """The settings with other random numbers than those of earlier turns."""
        settings = replace(self.settings, seed=(self.settings.seed + self.drawn) % 2**63)
        self.drawn += 1
        return settings

    def _rewrite(self, count: int) -> None:
        """Writes the last turn again, or several versions to choose from."""
        self.turns = self.turns or [Turn(self.text, self.text, past=self.stopped)]
        kept, first, self.versions = (self.text, self.stopped), self.drawn, []
        try:
            for number in range(1, count + 1):
                self._write(f"{number}  " if count > 1 else "")
                self.versions.append((self.text, self.stopped))
        except GptxError:
            self.text, self.stopped = kept
            raise
        seeds = ", ".join(str(self.settings.seed + n) for n in range(first, self.drawn))
        if count > 1:
            self.text, self.stopped = kept
            seeds += " · 1, 2 or 3 takes one; any other line leaves the text as it was"
        console.say(f"seed {seeds}")
        self.versions *= count > 1

    def _command(self, name: str, raw: str, value: str) -> None:
        bare = f"/{name}" in HELP
        known = bare or any(key.startswith(f"/{name} [") for key in HELP)
        refuse_if(bare and bool(value), "takes no value")
        match name if known else None:
            case "again" | "three":
                self._rewrite(1 if name == "again" else 3)
            case "undo":
                refuse_if(not self.turns, "there is nothing to take back")
                self.text, self.stopped = self.turns.pop().before, None
                console.stream("\n".join(self.text.split("\n")[-3:]), wraps=True)
            case "new":
                self.turns.append(Turn(self.text))
                self.text, self.stopped = "", None
            case "show":
                console.stream(self.text, wraps=True)
            case "save":
                self._save(value)
            case "help":
                console.print_blocks([Facts(HELP)])
            case "unknown":
                chosen: Any = value or self.unknown
                self.model.vocabulary.encode("", chosen)  # raises an error for another word
                self.unknown = chosen
                missing = " ".join(map(repr, self.model.vocabulary.unknown(self.line)))
                console.say(f"unknown {self.unknown} · in your last line: {missing or 'none'}")
            case "stop" if raw:
                stops = () if value == "none" else (raw,)
                self.stops = shared.checked_stops(self.model, stops, "/stop")
                self.stopped = None
            case None:
                self._set(name.replace("_", "-"), value)
        if name == "stop" or not known:
            console.say(self.settings_text())

    def _save(self, value: str) -> None:
        """Writes the text into a file; into one that the session has not written if asked twice."""
        refuse_if(not self.text, "the text is empty; nothing was written")
        name = value or str(self.saved[-1] if self.saved else "sample.txt")
        with storage_errors(f"write {name}"):
            place = Path(os.path.expanduser(name)).resolve()
            if place.is_file() and place not in self.saved and self.asked != place:
                self.asked = place
                raise ConfigError(f"{name} exists already; the same command again replaces it")
            console.write(self.text, place)
        self.asked = None
        self.saved.append(place)
        console.say(f"{len(self.text):,} characters in {place}")

    def _set(self, name: str, value: str) -> None:
        """Changes a setting. Raises ConfigError for an unknown name or a wrong value."""
        refuse_if(name not in SETTINGS, "no such command; /help lists them")
        if value:
            read: Any = None if value == "none" else value
            with suppress(ValueError, SyntaxError):
                read = ast.literal_eval(value)
            settings = replace(self.settings, **{SETTINGS[name]: read})
            refuse_if(settings.length > LONGEST_TURN, TOO_LONG)
            self.settings = settings
            self.drawn *= name != "seed"  # the next turn uses this seed

    def settings_text(self) -> str:
        """The settings that have a value, in one line."""
        values = {name: getattr(self.settings, field) for name, field in SETTINGS.items()}
        given = [f"{name} {value}" for name, value in values.items() if value is not None]
        return " · ".join([*given, *(f"stop {each!r}" for each in self.stops)])


def run_session(talk: Session, title: str) -> None:
    """Reads lines from the terminal until the user ends the session; no error ends it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    session: PromptSession[str] = PromptSession(key_bindings=keys)
    console.say(f"{title} · {talk.settings_text()}")
    console.say(f"{': '.join(next(iter(HELP.items())))} · /help · Ctrl-D ends")
    if talk.text:
        console.stream(talk.text, wraps=True)
    going = True
    while going:
        raise_first_interrupt()
        try:
            going = talk.take(session.prompt("> "))
        except EOFError:
            going = False
        except KeyboardInterrupt:
            pass  # drops the line
        except console.ReaderLeft:
            raise
        except Exception as error:  # an error that ended the session would lose the text
            kept = "" if isinstance(error, GptxError) else "; the text is kept: /save FILE"
            said = explain_error(error)[1].replace("pass --unknown", "type /unknown")
            console.say_error(said + kept)
