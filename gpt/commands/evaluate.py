"""`gptx eval`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import CheckpointOptions, DeviceOptions, DrawingOptions, text_label
from gpt.config import EvalConfig
from gpt.config.fields import error_with_flags, option
from gpt.config.train import Data
from gpt.errors import TextError
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.interface.evaluating import Scorer
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.score import Evaluation


@dataclass(frozen=True, kw_only=True)
class EvalOptions(EvalConfig):
    """What to score, and what to compare it with."""

    files: Annotated[
        tuple[str, ...],
        argument("Texts, or folders of them; - reads stdin.", "the validation split"),
    ] = ()
    against: Annotated[
        str | None,
        option(
            "Run, RUN:STEP or model file to compare with on this text: two models, not two recipes."
        ),
    ] = None
    data: Data = Path("data")


def command(asked: EvalOptions, reading: DeviceOptions, output: DrawingOptions) -> None:
    """Measure how well a model predicts a text: nats and bits per character, perplexity.

    Reads the text as training does, in windows one after the other; with --chars, each character
    has at least half a window of context.
    """
    from gpt.interface.evaluating import MOST_SCORED, Scorer

    sizes = [os.path.getsize(file) for file in asked.files if os.path.isfile(file)]
    characters = sum(sizes) if sizes else MOST_SCORED
    model, other = reading.open(), None
    if asked.against is None:
        model = model.on(reading.device_for(characters, model))
    else:
        other = _open_other(asked.against, reading.checkpoints)
        device = reading.device_for(characters, model, other)
        model, other = model.on(device), other.on(device)
    scorer = Scorer(model, other, asked.chars, reading.unknown, asked.data, console.say)
    failed = list[int]()
    for number, evaluation in enumerate(_evaluations(scorer, asked, reading.encoding, failed)):
        if output.json:
            output.write_json(evaluation, model.origin)
            continue
        if number > 0:
            console.write("\n")
        output.write_result(evaluation)
    if failed:
        raise typer.Exit(failed[0])


def _evaluations(
    scorer: Scorer, asked: EvalOptions, encoding: str, failed: list[int]
) -> Iterator[Evaluation]:
    """Evaluates every text, those of a folder as `gptx train` finds them, or the validation split.
    failed: receives the exit codes of texts that cannot be scored.
    """
    from gpt.corpus.sources import find_sources

    if not asked.files:
        yield scorer.split()
    for file in asked.files:
        with _report_errors(file, failed):
            names = [file]
            if os.path.isdir(file):
                sources = find_sources(names, asked.data, sys.stdin.buffer)
                names = [str(source.path) for source in sources]
            for name in names:
                with _report_errors(name, failed):
                    text = console.read_text(name, encoding=encoding)
                    yield scorer.text(text, text_label(name), printable(name))


@contextmanager
def _report_errors(name: str, failed: list[int]) -> Iterator[None]:
    """A context that reports the error of a text by its name, so that the others are scored."""
    try:
        yield
    except TextError as error:
        problem, label = error_with_flags(error), text_label(name)
        console.say_error(problem if label in problem else f"{label}: {problem}")
        failed.append(error.exit_code)


def _open_other(place: str, checkpoints: Path) -> TrainedGPT:
    """The checkpoint of --against. Raises CheckpointError, ConfigError."""
    name, _, step = place.partition(":")
    if os.path.isfile(place):  # a path may contain colons
        name, step = place, ""
    return CheckpointOptions(run=name, step=step or "best", checkpoints=checkpoints).open()
