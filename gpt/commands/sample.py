"""`gptx sample`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import DeviceOptions, OutputOptions, checked_stops, one_text, refuse_if
from gpt.config import SampleConfig
from gpt.config.fields import Options, option
from gpt.config.train import Data
from gpt.errors import GptxError, OutOfMemory

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
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
    new: Annotated[
        bool,
        option("Of a run with `items`: whole items that are not in its text, no two equal."),
    ] = False
    interactive: Annotated[bool, option("Write in turns with the model.")] = False
    novelty: Annotated[bool, option("Report the longest part copied from the corpus.")] = False
    data: Data = Path("data")


def command(
    asked: SampleOptions, settings: SampleConfig, reading: DeviceOptions, output: OutputOptions
) -> None:
    """Continue a prompt, character by character."""
    if asked.interactive:
        several = settings.n > 1 or output.json or asked.novelty
        refuse_if(several, "-i: cannot be combined with -n, --json and --novelty")
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        refuse_if(not has_terminal, "-i: needs a terminal; without one, give the text as --prompt")
    texts = {"TEXT": asked.text, "--prompt": asked.prompt, "--file": asked.file}
    prompt = one_text(texts, reading.encoding) or ""
    model = reading.open()
    model = model.on(reading.device_for(settings.length * settings.n, model))
    if asked.novelty and model.recorded is None:
        model.novelty([])  # raises an error, as the corpus is unknown
    prompt = reading.known_text(model.prove(), prompt)
    if asked.new:
        refuse_if(bool(prompt or asked.stop), "--new: writes whole items; leave out the prompt")
        _write_new(model, settings, asked.data, output)
        return
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

    from gpt.reading.sampler import GrowingTexts

    samples, failures = model.stream(prompt, settings, stops), list[KeyboardInterrupt | GptxError]()
    held = None
    if settings.n > 1 or output.json or asked.novelty:
        held = GrowingTexts(settings.n)
    pieces = _pieces(samples, prompt, held, failures)
    if output.json:
        _wait(pieces)
    else:
        try:
            console.stream(prompt, pieces)
        except KeyboardInterrupt as error:  # while it wrote
            failures.append(error)
            console.stream("", pieces)
    ended = "interrupted" if failures else "length"
    written = [held.text(number) for number in range(settings.n)] if held else []
    novelties: list[Novelty] = []
    if asked.novelty and not failures:
        try:
            novelties = model.novelty(written, data=asked.data, note=console.say)
        except GptxError as error:
            failures.append(error)
    if output.json:
        used = {name: value for name, value in asdict(settings).items() if name != "n"}
        made_by = {"prompt": prompt, **used, "stop": list(stops), **model.origin}
        records = []
        for number, (text, stop) in enumerate(zip(written, samples.stopped, strict=True)):
            record = {"schema": SCHEMA, "sample": number, "text": prompt + text, **made_by}
            record["ended"] = ended if stop is None else "stop"
            if novelties:
                start = len(prompt) + novelties[number].longest.start
                record["novelty"] = {**novelties[number].numbers, "start": start}
            records.append(record)
        console.write_json(*records)
    else:
        for number, novelty in enumerate(novelties):
            console.say(f"sample {number}: {novelty}" if settings.n > 1 else f"{novelty}")
    if failures:
        raise failures[0]


def _write_new(
    model: TrainedGPT, settings: SampleConfig, data: Path, output: OutputOptions
) -> None:
    """Writes new items as they come, as the text has them; with --json, a record for each."""
    from gpt.reading.items import new_items

    count = 0
    for number, item in enumerate(new_items(model, settings, data)):
        if output.json:
            record = {"schema": SCHEMA, "sample": number, "text": item, **model.origin}
            console.write_json(record)
        else:
            console.write(item + model.separator)
        count = number + 1
    if count < settings.n:
        console.say(f"note: the model found {count:,} new items; try a higher --temperature")


def _pieces(
    samples: Samples,
    prompt: str,
    held: GrowingTexts | None,
    failures: list[KeyboardInterrupt | GptxError],
) -> Iterator[str]:
    """What to write after the prompt: the samples, one after the other, while they grow.

    held: receives all texts; None for a single sample. failures: receives Ctrl-C or a lack of
    memory, after which the texts end where they are, as they do if the caller adds to it.
    """
    shown, count = 0, len(samples.stopped)

    def whole(number: int) -> str:
        return DIVIDER + prompt + (held.text(number) if held else "")

    try:
        for gained in samples:
            if held:
                held.add(gained)
            yield gained[shown]
            if failures:
                break
            while shown < count - 1 and samples.stopped[shown]:
                shown += 1
                yield whole(shown)
    except (KeyboardInterrupt, OutOfMemory) as error:
        failures.append(error)
    yield from map(whole, range(shown + 1, count))


def _wait(pieces: Iterator[str]) -> None:
    """Waits for the samples; ends when the reader of stdout leaves."""
    checked = 0.0
    for _ in pieces:
        if time.monotonic() > checked + REPEATED:
            console.check_reader()
            checked = time.monotonic()
