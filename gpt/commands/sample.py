"""`gptx sample`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import (
    DeviceOptions,
    OutputOptions,
    checked_stops,
    one_text,
    refuse_if,
)
from gpt.config import SampleConfig
from gpt.config.fields import Options, option
from gpt.config.train import Data
from gpt.errors import GptxError, OutOfMemory

if TYPE_CHECKING:
    from gpt.reading.novelty import Novelty
    from gpt.reading.sampler import GrowingTexts, Samples

SCHEMA = 1
DIVIDER = "\n---\n"  # stands between two samples
REPEATED = 0.5  # seconds between two checks of a pipe to which nothing is written yet


@dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    """What to continue, and where to end."""

    text: Annotated[str | None, argument("The prompt; - reads stdin.")] = None
    prompt: Annotated[str | None, option("The prompt, as an option.")] = None
    file: Annotated[Path | None, option("File with the prompt.")] = None
    stop: Annotated[
        tuple[str, ...],
        option("End before this text; repeatable. A newline is $'\\n' in most shells."),
    ] = ()
    interactive: Annotated[bool, option("Write in turns with the model.")] = False
    novelty: Annotated[bool, option("Report the longest part copied from the corpus.")] = False
    data: Data = Path("data")


def command(
    asked: SampleOptions, settings: SampleConfig, reading: DeviceOptions, output: OutputOptions
) -> None:
    """Continue a prompt, character by character."""
    if asked.interactive:
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        refuse_if(settings.n > 1, "-i: cannot be combined with -n")
        refuse_if(output.json, "-i: cannot be combined with --json")
        refuse_if(asked.novelty, "-i: cannot be combined with --novelty")
        refuse_if(not has_terminal, "-i: needs a terminal; without one, give the text as --prompt")
    given = {"TEXT": asked.text, "--prompt": asked.prompt, "--file": asked.file}
    prompt = one_text(given, reading.encoding) or ""
    model = reading.open()
    model = model.on(reading.device_for(settings.length * settings.n, model))
    if asked.novelty and model.recorded is None:
        model.novelty([])  # raises an error, as the corpus is unknown
    prompt = reading.known_text(model.prove(), prompt)
    stops = checked_stops(model, asked.stop)
    if len(prompt) > model.config.block_size:
        console.say(
            f"note: the prompt has {len(prompt):,} characters; the model sees the last "
            f"{model.config.block_size} at most"
        )
    if asked.interactive:
        from gpt.commands.interactive import Session, run_session

        run_session(Session(model, settings, stops, prompt, reading.unknown), model.title)
        return

    from gpt.reading.sampler import GrowingTexts, Sample

    samples = model.stream(prompt, settings, stops)
    texts, holds = GrowingTexts(settings.n), settings.n > 1 or output.json or asked.novelty
    failure = Writing(samples, prompt, texts, holds, silent=output.json).write()
    copied: list[Novelty] = []
    ended = "interrupted" if failure else "length"
    if asked.novelty and not failure:
        try:
            whole = [Sample(prompt, texts.text(number)) for number in range(settings.n)]
            copied = model.novelty(whole, data=asked.data, note=console.say)
        except GptxError as error:
            failure = error
    if output.json:
        used = {name: value for name, value in asdict(settings).items() if name != "n"}
        made_by = {"prompt": prompt, **used, "stop": list(stops), **model.origin}
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
        for number, found in enumerate(copied):
            begin = f"sample {number}: " if settings.n > 1 else ""
            console.say(f"{begin}novelty: {' · '.join(found.facts)}")
    if failure:
        raise failure


@dataclass
class Writing:
    """Writes the samples, one after the other, while they grow.

    texts: receives what each has so far, if it `holds` the samples. silent: writes nothing, but
    ends when the reader of stdout leaves.
    """

    samples: Samples
    prompt: str
    texts: GrowingTexts
    holds: bool
    silent: bool
    failure: KeyboardInterrupt | GptxError | None = None

    def write(self) -> KeyboardInterrupt | GptxError | None:
        """Writes all; after Ctrl-C or if memory is short, what is complete so far. Returns the
        error that ended it.
        """
        pieces = self._pieces()
        if self.silent:
            for _ in pieces:
                pass
            return self.failure
        try:
            console.stream(self.prompt, pieces)
        except KeyboardInterrupt as error:  # while it wrote
            self.failure = error
            console.stream("", pieces)
        return self.failure

    def _pieces(self) -> Iterator[str]:
        shown, checked, count = 0, 0.0, len(self.samples.stopped)
        try:
            for gained in self.samples:
                if self.holds:
                    self.texts.add(gained)
                yield gained[shown]
                if self.failure:
                    break
                while shown < count - 1 and self.samples.stopped[shown]:
                    shown += 1
                    yield self._whole(shown)
                if self.silent and time.monotonic() > checked + REPEATED:
                    console.check_reader()
                    checked = time.monotonic()
        except (KeyboardInterrupt, OutOfMemory) as error:
            self.failure = error
        for number in range(shown + 1, count):
            yield self._whole(number)

    def _whole(self, number: int) -> str:
        """A sample after the first one, as far as it has been written."""
        return DIVIDER + self.prompt + self.texts.text(number)
