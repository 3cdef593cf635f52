"""`gptx sample -i`: a text that grows by turns, the user's and the model's.

What is typed is added to the text, and the model goes on; a line that begins with / is a command.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt import console
from gpt.config import SampleConfig, field_types, flag_of
from gpt.errors import ConfigError, GptxError

if TYPE_CHECKING:
    from gpt.reading.trained import TrainedGPT

HELP = """\
Enter           the model goes on; Ctrl-C stops it there
text, Enter     adds the text, and the model goes on; Alt-Enter begins a new line; // begins with /
/undo           takes back the last turn; Enter then tries again, differently
/new            begins an empty text
/show           shows the whole text
/save FILE      writes it into a file
/temperature 0.5, /length 100, /top-k 5, /top-p none, /seed 3 …  change a setting
/set            shows them
/quit           ends; so does Ctrl-D"""
SETTINGS = tuple(field.name for field in fields(SampleConfig) if field.name != "n")
COMMANDS = ("undo", "new", "show", "save", "set", "help", "quit")


class Talk:
    """The text so far, how it goes on, and the turns that can be taken back."""

    def __init__(
        self, model: TrainedGPT, settings: SampleConfig, stops: Sequence[str] = (), begin: str = ""
    ) -> None:
        self.model, self.settings, self.stops = model, replace(settings, n=1), stops
        self.text = begin
        self._before: list[str] = []  # the text before each turn
        self._drawn = 0  # turns of the model so far: each draws its own random numbers

    def take(self, line: str) -> bool:
        """A line of the user's; False when it ends the talk. Raises GptxError: nothing changed."""
        if line.startswith("/") and not line.startswith("//"):
            return self._command(*line[1:].strip().partition(" ")[::2])
        added = line[1:] if line.startswith("//") else line
        self.model.vocabulary.encode(added)
        self._before.append(self.text)
        self.text += added
        self._go_on(added)
        return True

    def _go_on(self, added: str) -> None:
        """The model's turn, shown as it comes."""
        settings = replace(self.settings, seed=(self.settings.seed + self._drawn) % 2**63)
        self._drawn += 1
        with _interruptible() as interrupted:

            def gained() -> Iterator[str]:
                for (piece,) in self.model.stream(self.text, settings, self.stops):
                    self.text += piece
                    yield piece
                    if interrupted():
                        return

            console.stream(added, gained())

    def _command(self, name: str, value: str) -> bool:
        value = value.strip()
        if name == "quit":
            return False
        if name == "undo":
            if not self._before:
                raise ConfigError("/undo: there is nothing to take back")
            self.text = self._before.pop()
            console.stream(_end_of(self.text))
        elif name == "new":
            self._before.append(self.text)
            self.text = ""
        elif name == "show":
            console.stream(self.text)
        elif name == "save":
            if not value:
                raise ConfigError("/save: name a file")
            console.deliver(self.text.encode("utf-8", "surrogatepass"), Path(value).expanduser())
            console.say(f"{len(self.text):,} characters in {value}")
        elif name == "help":
            console.say(HELP)
        elif name == "set":
            console.say(self.described())
        else:
            self._set(name.replace("-", "_"), value)
            console.say(self.described())
        return True

    def _set(self, name: str, value: str) -> None:
        """Changes a setting. Raises ConfigError for an unknown one and for a wrong value."""
        if name not in SETTINGS:
            raise ConfigError(f"/{name}: no such command; /help lists them")
        kind = field_types(SampleConfig)[name]
        number: Any = None
        if value != "none" or kind in (int, float):
            try:
                number = int(value) if kind in (int, int | None) else float(value)
            except ValueError:
                raise ConfigError(f"/{flag_of(name)[2:]}: {value!r} is not a number") from None
        self.settings = replace(self.settings, **{name: number})

    def described(self) -> str:
        """The settings that are set."""
        values = {name: getattr(self.settings, name) for name in SETTINGS}
        return " · ".join(f"{flag_of(n)[2:]} {v:g}" for n, v in values.items() if v is not None)


def talk(talk: Talk, title: str) -> None:
    """Lines from the terminal until it ends; an error is told, and the talk goes on."""
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
    console.say(f"{title} · {talk.described()}\nEnter: the model goes on · /help · Ctrl-D ends")
    if talk.text:
        console.stream(talk.text)
    while True:
        try:
            if not talk.take(session.prompt("> ")):
                return
        except KeyboardInterrupt:  # at the prompt: the line is dropped
            continue
        except EOFError:
            return
        except GptxError as error:
            console.say_error(str(error))


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """While inside, Ctrl-C is only noted."""
    noted: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, previous)


def _end_of(text: str) -> str:
    """The last lines, so that one sees where the text stands."""
    return "\n".join(text.split("\n")[-3:])
