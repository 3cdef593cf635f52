"""Shared by the reading commands: opening a checkpoint, and reading a text for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt.commands import console
from gpt.errors import ConfigError, TextError

if TYPE_CHECKING:
    from gpt.heads.attention_map import AttentionMap
    from gpt.heads.measures import Measure
    from gpt.storage.manifest import Manifest
    from gpt.storage.model_file import StoredModel
    from gpt.trained import TrainedGPT
    from gpt.view.page.page import Subject
    from gpt.vocabulary import Ids

TORCH_PAYS = 10**10  # parameters × characters from which a GPU is worth importing torch for


@dataclass(frozen=True)
class Opened:
    """The checkpoint that a command uses, read once: its model and manifest.

    name: the run's name. A model file without its run has its path as name, and no manifest.
    """

    name: str
    model: TrainedGPT
    manifest: Manifest | None

    @property
    def title(self) -> str:
        """Name and step."""
        return f"{self.name} step {self.model.stored.step:,}"

    @property
    def origin(self) -> dict[str, Any]:
        """Which checkpoint an answer came from, for programs. vouched: its digest was checked."""
        stored = self.model.stored
        return {
            "run": self.name,
            "step": stored.step,
            "checkpoint": stored.sha256,
            "vouched": stored.vouched,
        }

    def splits(self, data: Path) -> tuple[Ids, Ids]:
        """The ids that the run was trained and validated on.

        Raises TextError if there is no run, or if its corpus has changed or cannot be found; the
        command adds what to do then.
        """
        from gpt.corpus.corpus import find_corpus

        if self.manifest is None:
            raise TextError(
                f"{self.name} is a model file without its run, so its corpus is unknown"
            )
        corpus = find_corpus(self.manifest, (), data, sys.stdin.buffer, remedy="")
        return corpus.split(self.manifest.train.val_fraction, self.manifest.model.block_size)


def open_run(
    checkpoints: Path,
    run: str | None,
    step: str,
    device: str = "cpu",
    characters: int = 0,
    check: Callable[[StoredModel], None] | None = None,
) -> Opened:
    """The chosen checkpoint. "auto" takes a GPU only for work longer than importing torch.

    check: may raise a GptxError for input that does not fit the model, before any note is printed.
    """
    from gpt.loading import find, open_model
    from gpt.storage.runs import all_runs

    saved = find(checkpoints, run, step)
    if check:
        check(saved.stored)
    if run is None and len(all_runs(checkpoints)) > 1:
        console.say(f"run: {saved.name}, the newest (--run takes another)")
    tell_if_unvouched(saved.stored)
    if device == "auto":
        large = saved.stored.config.parameters() * characters >= TORCH_PAYS
        device = "auto" if large else "cpu"
    return Opened(saved.name, open_model(saved.stored, device), saved.manifest)


def tell_if_unvouched(stored: StoredModel) -> None:
    """Prints a note about a model file without a digest, in which damage may go unnoticed."""
    if not stored.vouched:
        console.say(
            f"note: {stored.source} was written by an older gptx and has no digest, so gptx cannot "
            "detect every change in it; if its run still exists, open that: the run has a digest"
        )


def one_text(given: dict[str, str | Path | None]) -> str | None:
    """The text that was given in one of several ways, read if it is a file or stdin."""
    sources = {name: value for name, value in given.items() if value is not None}
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)}: give the text once")
    for value in sources.values():
        is_file = isinstance(value, Path) or value == "-"
        return console.read_text(str(value)) if is_file else str(value)
    return None


def known_text(model: TrainedGPT, text: str, unknown: str, name: str = "") -> str:
    """What of a text the model knows; what is left out is told, of many texts with its name.

    Raises TextError.
    """
    known = model.vocabulary.decode(model.vocabulary.encode(text, unknown))
    if len(known) < len(text):
        from gpt.view.characters import quoted

        names = [quoted(each, not console.speaks_utf8()) for each in model.vocabulary.unknown(text)]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        of = f"{name}: " if name else ""
        console.say(
            f"note: {of}left out {len(text) - len(known):,} of {len(text):,} characters, which the "
            f"model does not know: {' '.join(names[:8])}{more}"
        )
    return known


def checked_stops(model: TrainedGPT, stops: Sequence[str], name: str = "--stop") -> tuple[str, ...]:
    """Stop strings; one that the model can never write is told. Raises ConfigError for an empty."""
    for stop in stops:
        if not stop:
            raise ConfigError(f"{name}: an empty text would stop before anything is written")
        if missing := model.vocabulary.unknown(stop):
            console.say(
                f"note: {name} {stop!r} can never occur: the model does not know {missing[0]!r}"
            )
    return tuple(stops)


def text_or_example(model: TrainedGPT, given: dict[str, str | Path | None]) -> str:
    """The given text, or the validation split's first line, which is then told."""
    text = one_text(given)
    if text is None:
        text = model.example()
        console.say(f'no TEXT given; from the validation split: "{text}"')
    return text


def subject_of(
    opened: Opened, name: str, attention: AttentionMap, measures: Sequence[Measure]
) -> Subject:
    """What the HTML page shows of a checkpoint."""
    from gpt.view.page.page import Subject

    model = opened.model
    characters = model.vocabulary.characters
    return Subject(name, attention, model.lens(attention), characters, measures, opened.origin)
