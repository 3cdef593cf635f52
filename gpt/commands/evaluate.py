"""`gptx eval`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.config import EvalConfig
from gpt.config.train import Data, OnDevice
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.interface.evaluating import Evaluation, Scorer
    from gpt.interface.trained import TrainedGPT


class Eval(shared.DrawingCommand):
    """Measure how well a model predicts a text: nats and bits per character, perplexity.

    Reads the text as training does, in windows one after the other; with --chars, each character
    has at least half a window of context.
    """

    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts, or folders of them; - reads stdin.", show_default="the validation split"
        ),
    ] = None
    given: Annotated[dict[str, Any], options_of(EvalConfig)]
    against: Annotated[
        str | None,
        "Run, RUN:STEP or model file to compare with on this text. Two runs are two models; to "
        "compare recipes, train several seeds of each, and give gptx runs a pattern.",
    ] = None
    device: OnDevice = "auto"
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.interface.evaluating import MOST_SCORED, Scorer

        sizes = [os.path.getsize(file) for file in self.files or () if os.path.isfile(file)]
        characters = sum(sizes) if sizes else MOST_SCORED
        run = self.on_device(self.opened, characters)
        other = self._other and self.on_device(self._other, characters)
        options = EvalConfig(**self.given)
        scorer = Scorer(run, other, options, self.unknown, self.data, console.say)
        failed = list[int]()
        for number, found in enumerate(self._evaluations(scorer, failed)):
            if self.as_json:
                self.write_record(found.records(), run.origin)
            else:
                console.write("\n" * (number > 0))
                self.write_blocks(found.blocks())
        if failed:
            raise typer.Exit(failed[0])

    def _evaluations(self, scorer: Scorer, failed: list[int]) -> Iterator[Evaluation]:
        """Evaluates every text, those of a folder as `gptx train` finds them, or the validation
        split. failed: receives the exit codes of texts that cannot be scored.
        """
        from gpt.corpus.sources import find_sources

        for chosen in self.files or ():
            with shared.report_errors(chosen, failed):
                names = [chosen]
                if os.path.isdir(chosen):
                    found = find_sources(names, self.data, sys.stdin.buffer)
                    names = [str(source.path) for source in found]
                for name in names:
                    with shared.report_errors(name, failed):
                        text = console.read_text(name, encoding=self.encoding)
                        label = shared.text_label(name)
                        yield scorer.text(text, label, printable(name))
        if not self.files:
            yield scorer.split()

    @cached_property
    def _other(self) -> TrainedGPT | None:
        """The checkpoint of --against. Raises CheckpointError, ConfigError."""
        if self.against is None:
            return None
        if os.path.isfile(self.against):  # a path may contain colons
            return self.open(self.against, "best")
        name, _, step = self.against.partition(":")
        return self.open(name, step or "best")
