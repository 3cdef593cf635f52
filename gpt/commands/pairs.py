"""`gptx sample -i` with a model that has an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpt.commands.common import console
from gpt.commands.interactive import HELP, Talk
from gpt.config import SampleConfig
from gpt.errors import ConfigError


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
        if not added and not self.text:
            raise ConfigError("type a source")
        source = added or self.text.removesuffix("\n").split("\n")[-1].split("\t")[0]
        settings = self._next_settings()
        ((best, *_),) = self.model.written([source], settings, self.beam)
        target = self.model.vocabulary.decode(best.ids)
        self.before.append(self.text)
        self.text += f"{source}\t{target}\n"
        console.stream(target)

    def _set_stop(self, raw: str) -> None:
        raise ConfigError("a target ends by itself")

    def with_setting(self, name: str, value: float | None) -> SampleConfig:
        """The settings with another value of one. Raises ConfigError."""
        options: dict[str, Any] = {**vars(self.settings), name: value}
        return self.model.target_settings(self.beam, **options)
