"""`gptx sample`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.config import SampleConfig
from gpt.config.train import Data, OnDevice
from gpt.errors import GptxError, OutOfMemory

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.novelty import Novelty

SCHEMA = 1
DIVIDER = "\n---\n"  # stands between two samples
REPEATED = 0.5  # seconds between two checks of a pipe to which nothing is written yet


class Sample(shared.ModelCommand):
    """Continue a prompt, character by character."""

    text: Annotated[
        str | None, typer.Argument(help="The prompt; - reads stdin.", show_default=False)
    ] = None
    prompt: Annotated[str | None, "The prompt, as an option."] = None
    file: shared.TextFile = None
    stop: Annotated[
        list[str] | None, "End before this text; repeatable. A newline is $'\\n' in most shells."
    ] = None
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Write in turns with the model.")
    ] = False
    novelty: Annotated[bool, "Report the longest part copied from the corpus."] = False
    device: OnDevice = "auto"
    data: Data = Path("data")
    drawing: Annotated[dict[str, Any], options_of(SampleConfig)]

    def execute(self) -> None:
        settings = self.settings
        if self.interactive:
            has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
            shared.refuse_if(
                (settings.n > 1, "-i: cannot be combined with -n"),
                (self.as_json, "-i: cannot be combined with --json"),
                (self.novelty, "-i: cannot be combined with --novelty"),
                (not has_terminal, "-i: needs a terminal; without one, give the text as --prompt"),
            )
        given = {"TEXT": self.text, "--prompt": self.prompt, "--file": self.file}
        prompt = shared.one_text(given, self.encoding) or ""
        if self.novelty and self.opened.recorded is None:
            self.opened.novelty([])  # raises an error, as the corpus is unknown
        model = self.opened.prove()
        prompt = self.known_text(model, prompt)
        stops = shared.checked_stops(model, self.stop or ())
        if len(prompt) > model.config.block_size:
            console.say(
                f"note: the prompt has {len(prompt):,} characters; the model sees the last "
                f"{model.config.block_size} at most"
            )
        if self.interactive:
            from gpt.commands.interactive import Session, run_session

            run_session(Session(model, settings, stops, prompt, self.unknown), self.opened.title)
        else:
            self._write(prompt, stops)

    @cached_property
    def settings(self) -> SampleConfig:
        """How to sample. Raises ConfigError."""
        return SampleConfig(**self.drawing)

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint, on its device."""
        opened = self.open(self.run, self.step)
        return self.on_device(opened, self.settings.length * self.settings.n)

    def _write(self, prompt: str, stops: Sequence[str]) -> None:
        """Writes the samples. Writes what is complete so far after Ctrl-C, if the corpus is
        missing, or when the held texts do not fit in memory.
        """
        from gpt.reading.sampler import GrowingTexts
        from gpt.reading.sampler import Sample as Written

        count = self.settings.n
        samples = self.opened.stream(prompt, self.settings, stops)
        texts, held = GrowingTexts(count), count > 1 or self.as_json or self.novelty
        failure: KeyboardInterrupt | GptxError | None = None

        def written() -> Iterator[str]:
            """Yields one sample after the other, each while it grows."""
            nonlocal failure
            shown, checked = 0, 0.0
            try:
                for gained in samples:
                    if held:
                        texts.add(gained)
                    yield gained[shown]
                    if failure:
                        break
                    while shown < count - 1 and samples.stopped[shown]:
                        shown += 1
                        yield DIVIDER + prompt + texts.text(shown)
                    if self.as_json and time.monotonic() > checked + REPEATED:
                        console.check_reader()
                        checked = time.monotonic()
            except (KeyboardInterrupt, OutOfMemory) as error:
                failure = error
            for number in range(shown + 1, count):
                yield DIVIDER + prompt + texts.text(number)

        pieces = written()
        if self.as_json:
            for _ in pieces:
                pass
        else:
            try:
                console.stream(prompt, pieces)
            except KeyboardInterrupt as error:  # while it wrote
                failure = error
                console.stream("", pieces)
        copied: list[Novelty] = []
        ended = "interrupted" if failure else "length"
        if not failure and self.novelty:
            try:
                whole = [Written(prompt, texts.text(number)) for number in range(count)]
                copied = self.opened.novelty(whole, data=self.data, note=console.say)
            except GptxError as error:
                failure = error
        if self.as_json:
            used = {name: value for name, value in vars(self.settings).items() if name != "n"}
            made_by = {"prompt": prompt, **used, "stop": list(stops), **self.opened.origin}
            records = list[dict[str, Any]]()
            for number, stopped in enumerate(samples.stopped):
                text = prompt + texts.text(number)
                record = {"schema": SCHEMA, "sample": number, "text": text, **made_by}
                record["ended"] = "stop" if stopped else ended
                if copied:
                    found = copied[number]
                    start = len(prompt) + found.longest.start
                    record["novelty"] = {**found.numbers, "start": start}
                records.append(record)
            console.write_json(*records)
        else:
            for number, each in enumerate(copied):
                begin = f"sample {number}: " if count > 1 else ""
                console.say(f"{begin}novelty: {' · '.join(each.facts)}")
        if failure:
            raise failure
