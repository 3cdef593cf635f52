"""`gptx sample -i`: the user and the model extend a text in turns.

A typed line is added to the text, and the model continues it; a line that begins with / is a
command. For a model with an encoder, a typed line is a source, whose target is written.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gpt.commands import console, explained, shared
from gpt.commands.shared import refuse
from gpt.config import SampleConfig, Unknown
from gpt.config.fields import field_types, flag_of
from gpt.errors import ConfigError, GptxError
from gpt.signals import graceful, raise_first_interrupt
from gpt.storage.files import storage_errors

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

SETTINGS = tuple(each.name for each in fields(SampleConfig) if each.name != "n")
OTHERS = [f"/{flag_of(name)[2:]}" for name in SETTINGS if name != "length"]
HELP = {
    "Enter": "the model continues; Ctrl-C stops it",
    "text, Enter": "adds the text, and the model continues; Alt-Enter begins a new line; "
    "// begins with /",
    "/undo": "undoes the last turn; Enter then gives another one",
    "/new": "begins an empty text",
    "/show": "shows the whole text",
    "/save FILE": "writes it into a new file; /save! FILE also over another",
    "/length 100": f"changes a setting; so do {', '.join(OTHERS[:-1])} and {OTHERS[-1]}; "
    "none removes a filter, and without a value the present one is shown",
    "/stop TEXT": "ends turns before this text; none: no more",
    "/set": "shows all settings",
    "/quit": "ends; so does Ctrl-D",
}
BARE = ("undo", "new", "show", "set", "help", "quit")  # commands that take no value
COMMANDS = (*BARE, "save", "save!", "stop")
LONGEST_TURN = 10_000_000  # characters kept in memory, and shown by a command


@dataclass
class Talk:
    """The text so far, the sampling settings, and the turns that can be undone."""

    model: TrainedGPT
    settings: SampleConfig
    stops: tuple[str, ...] = ()
    text: str = ""
    unknown: Unknown = "fold"
    before: list[str] = field(default_factory=list)  # the text before each turn
    drawn: int = 0  # turns of the model so far; each turn uses different random numbers
    stopped: str | None = None  # stop text that ended the last turn; Enter continues after it
    saved: set[Path] = field(default_factory=set)  # files that /save may replace
    help: ClassVar[Mapping[str, str]] = HELP
    hint: ClassVar[str] = "Enter: the model continues"

    def __post_init__(self) -> None:
        if self.settings.length > LONGEST_TURN:
            raise ConfigError(f"--length: at most {LONGEST_TURN:,} characters a turn with -i")
        self.settings = replace(self.settings, n=1)

    def take(self, line: str) -> bool:
        """Handles a typed line; False ends the session. Raises GptxError, and changes nothing."""
        if line.startswith("/") and not line.startswith("//"):
            name, _, raw = line[1:].partition(" ")
            try:
                return self._command(name.strip(), raw, raw.strip())
            except ConfigError as error:
                raise ConfigError(f"/{name.strip()}: {error.reason}") from None
        typed = line[1:] if line.startswith("//") else line
        self.turn(shared.known_text(self.model, typed, self.unknown))
        return True

    def turn(self, added: str) -> None:
        """Adds a text; the model continues it, and its text is shown as it comes."""
        self.before.append(self.text)
        self.text += added
        settings = self._next_settings()
        past, self.stopped = None if added else self.stopped, None
        interrupted: list[str] = []
        with graceful(interrupted.append, "SIGINT"):
            samples = self.model.stream(self.text, settings, self.stops, past=past)

            def gained() -> Iterator[str]:
                for (piece,) in samples:
                    self.text += piece
                    yield piece
                    if interrupted:
                        return

            console.stream(added, gained())
        (self.stopped,) = samples.stopped
        if self.stopped is not None:
            console.say(f"stopped at {_shown(self.stopped)}")

    def _next_settings(self) -> SampleConfig:
        """The settings with other random numbers than in the turns before."""
        settings = replace(self.settings, seed=(self.settings.seed + self.drawn) % 2**63)
        self.drawn += 1
        return settings

    def _command(self, name: str, raw: str, value: str) -> bool:
        hint = f"; /{value} changes one" if name == "set" else ""
        refuse((name in BARE and bool(value), f"takes nothing after it{hint}"))
        if name == "quit":
            return False
        if name == "undo":
            refuse((not self.before, "there is nothing to take back"))
            self.text, self.stopped = self.before.pop(), None
            console.stream("\n".join(self.text.split("\n")[-3:]))
        elif name == "new":
            self.before.append(self.text)
            self.text, self.stopped = "", None
        elif name == "show":
            console.stream(self.text)
        elif name in ("save", "save!"):
            self._save(name, value)
        elif name == "help":
            from gpt.blocks import Facts

            console.show_aside([Facts(self.help)])
        elif name == "stop":
            self._set_stop(raw)
        elif name == "set":
            console.say(self.described())
        else:
            self._set(name.replace("-", "_"), value)
        return True

    def _save(self, name: str, value: str) -> None:
        """Writes the text into a file. /save replaces only a file that it wrote before."""
        from gpt.words import counted

        refuse(
            (not value, "name a file"),
            (not self.text, "the text is empty; nothing was written"),
        )

        try:
            path = Path(value).expanduser()
        except RuntimeError:
            user = Path(value).parts[0]
            raise ConfigError(f"{user} is not the home of a user; give another name") from None
        with storage_errors(f"write {value}"):
            foreign = os.path.isfile(path) and path.resolve() not in self.saved
            advice = f"{value} is there already; /save! {value} replaces it"
            refuse((name == "save" and foreign, advice))
            console.write(self.text, path)
            self.saved.add(path.resolve())
        console.say(f"{counted(f'{len(self.text):,}', 'character')} in {value}")

    def _set_stop(self, raw: str) -> None:
        """Sets one stop text, exactly as typed; "none" removes all; an empty text shows them."""
        if raw:
            none = raw.strip() == "none"
            self.stops = () if none else shared.checked_stops(self.model, (raw,), "/stop")
            self.stopped = None
        console.say(self.described() if raw else f"stop {_listed(self.stops)}")

    def _set(self, name: str, value: str) -> None:
        """Changes a setting, or shows it. Raises ConfigError for an unknown name or wrong value."""
        refuse((name not in SETTINGS, "no such command; /help lists them"))
        if not value:
            console.say(_setting(name, getattr(self.settings, name)))
            return
        kind = field_types(SampleConfig)[name]
        number: Any = None
        if value != "none" or kind in (int, float):
            try:
                number = int(value) if kind in (int, int | None) else float(value)
            except ValueError:
                raise ConfigError(f"{value!r} is not a number") from None
        too_long = name == "length" and number > LONGEST_TURN
        refuse((too_long, f"at most {LONGEST_TURN:,} characters a turn"))
        self.settings = self.with_setting(name, number)
        console.say(self.described())

    def with_setting(self, name: str, value: float | None) -> SampleConfig:
        """The settings with another value of one. Raises ConfigError."""
        changed: dict[str, Any] = {name: value}
        return replace(self.settings, **changed)

    def described(self) -> str:
        """The settings that have a value, on one line."""
        values = {name: getattr(self.settings, name) for name in SETTINGS}
        given = [_setting(name, value) for name, value in values.items() if value is not None]
        return " · ".join([*given, *([f"stop {_listed(self.stops)}"] if self.stops else [])])


def talk(talk: Talk, title: str) -> None:
    """Reads lines from the terminal until the user ends the session; no error ends it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    names = [f"/{name.replace('_', '-')}" for name in (*COMMANDS, *SETTINGS)]
    session: PromptSession[str] = PromptSession(
        completer=WordCompleter(names, sentence=True),
        complete_while_typing=False,
        key_bindings=keys,
    )
    console.say(f"{title} · {talk.described()}")
    console.say(f"{talk.hint} · /help · Ctrl-D ends")
    if talk.text:
        console.stream(talk.text)
    while True:
        raise_first_interrupt()
        try:
            line = session.prompt("> ")
        except KeyboardInterrupt:  # the line is dropped
            continue
        except EOFError:
            return
        try:
            if not talk.take(line):
                return
        except KeyboardInterrupt:
            continue
        except console.ReaderLeft:
            raise
        except Exception as error:  # an error must not end the session, which would lose the text
            if os.environ.get("GPTX_DEBUG"):
                traceback.print_exc()
            kept = "" if isinstance(error, GptxError) else "; the text is kept: /save FILE"
            console.say_error(explained(error)[1] + kept)


def _setting(name: str, value: float | None) -> str:
    shown = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{flag_of(name)[2:]} {shown}"


def _listed(stops: Sequence[str]) -> str:
    return " ".join(map(_shown, stops)) or "none"


def _shown(stop: str) -> str:
    """A stop text with its spaces and newlines visible."""
    from gpt.characters import label

    return f"'{''.join(map(label, stop))}'"


@dataclass
class AskTargets(Talk):
    """`sample -i` with a model that has an encoder: a typed line is a source, whose target is
    written. The text so far is the pairs, a line each.
    """

    beam: int | None = None
    hint: ClassVar[str] = "type a source, Enter: its target"
    help: ClassVar[Mapping[str, str]] = {
        "source, Enter": "writes its target; // begins with /",
        "Enter": "writes a target of the last source; with a temperature, another one",
        **{name: HELP[name] for name in ("/show", "/save FILE", "/set", "/quit")},
        "/temperature 1": "changes a setting; so do /length, /seed and the filters; none removes a "
        "filter, and without a value the present one is shown",
        "/undo": "removes the last pair",
        "/new": "removes all pairs",
    }

    def turn(self, added: str) -> None:
        """Writes a source's target; without a source, another one of the last source."""
        from gpt.reading.targets import write_targets

        if not added and not self.text:
            raise ConfigError("type a source")
        source = added or self.text.removesuffix("\n").split("\n")[-1].split("\t")[0]
        settings = self._next_settings()
        model, chosen = self.model, ([source], settings, self.beam)
        ((best, *_),) = write_targets(model.reader, model.vocabulary, *chosen)
        target = model.vocabulary.decode(best.ids)
        self.before.append(self.text)
        self.text += f"{source}\t{target}\n"
        console.stream(target)

    def _set_stop(self, raw: str) -> None:
        raise ConfigError("a target ends by itself")

    def with_setting(self, name: str, value: float | None) -> SampleConfig:
        """The settings with another value of one. Raises ConfigError."""
        from gpt.reading.targets import target_settings

        options: dict[str, Any] = {**vars(self.settings), name: value}
        return target_settings(self.model.config, self.beam, **options)
