"""`gptx sample`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import DeviceOptions, OutputOptions, checked_stops, one_text, refuse_if
from gpt.config import SampleConfig
from gpt.config.fields import Options, option
from gpt.config.sample import seed_of
from gpt.config.train import ESCAPES, Data, unescaped
from gpt.errors import GptxError

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.writing import Novelty


@dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    """What to continue, where to end, and what to show."""

    text: Annotated[str | None, argument("The prompt; - reads stdin.")] = None
    prompt: Annotated[str | None, option(f"The prompt, as an option. {ESCAPES}")] = None
    file: Annotated[Path | None, option("File with the prompt.")] = None
    prompts: Annotated[Path | None, option("File with a prompt on each line.")] = None
    stop: Annotated[tuple[str, ...], option(f"End before this text; repeatable. {ESCAPES}")] = ()
    no_prompt: Annotated[bool, option("Write only what is new.")] = False
    new: Annotated[
        bool, option("Of a run with `items`: whole items that are not in its text, no two equal.")
    ] = False
    interactive: Annotated[bool, option("Write in turns with the model.")] = False
    novelty: Annotated[bool, option("Report the longest part copied from the corpus.")] = False
    data: Data = Path("data")


@dataclass(frozen=True, kw_only=True)
class SampleOutput(OutputOptions):
    """Where to write the texts."""

    output: Annotated[Path | None, option("File for the texts; with -i, for /save.")] = None


def command(
    asked: SampleOptions, settings: SampleConfig, reading: DeviceOptions, output: SampleOutput
) -> None:
    """Continue a prompt, character by character."""
    from gpt.reading.writing import ONLY_COPIES, Writing

    texts = {"TEXT": asked.text, "--prompt": asked.prompt, "--file": asked.file}
    text = one_text({**texts, "--prompts": asked.prompts}, reading.encoding) or ""
    prompts = text.split("\n") if asked.prompts else [text]
    refuse_if(asked.prompts is not None and not any(prompts), "--prompts: the file has no prompt")
    if asked.interactive:
        others = (asked.prompts, asked.no_prompt, asked.novelty, asked.new, output.json)
        is_alone = not any(others) and settings.n == 1
        refuse_if(
            not is_alone, "-i: leave out --prompts, --no-prompt, --novelty, --new, --json, -n"
        )
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        refuse_if(not has_terminal, "-i: needs a terminal; without one, give the text as --prompt")
    model = reading.open()
    model = model.on(reading.device_for(settings.length * settings.n * len(prompts), model))
    if asked.novelty and model.recorded is None:
        model.novelty([])  # raises an error, as the corpus is unknown
    model.prove()
    if not asked.prompts:
        prompts = [reading.known_text(model, text)]
    stops = checked_stops(model, asked.stop)
    block_size = model.config.block_size
    if (longest := max(map(len, prompts))) > block_size:
        seen = f"the model sees the last {block_size} at most"
        console.say(f"note: the prompt has {longest:,} characters; {seen}")
    settings = replace(settings, ban=settings.ban and unescaped(settings.ban))
    if asked.interactive:
        from gpt.commands.interactive import Session, run_session

        talk = Session(model, settings, stops, prompts[0], reading.unknown, asked.data)
        talk.file = output.path or talk.file
        run_session(talk, model.stored.title)
        return
    if settings.seed is None:
        settings = replace(settings, seed=seed_of(settings))
        console.say(f"seed {settings.seed}")
    if asked.new:
        refuse_if(bool(text or stops), "--new: writes whole items; leave out prompts and --stop")
        _write_new(model, settings, asked.data, output)
        return
    stream = partial(model.stream, unknown=reading.unknown, data=asked.data, note=console.say)
    begin = partial(stream, config=settings, stop=stops)
    waits = output.json or output.path is not None
    writing = Writing(begin, prompts, asked.prompts, shows_prompt=not asked.no_prompt)
    if output.path:
        console.check_writable(output.path)
    if waits:
        text = "".join(writing.pieces())
    else:
        console.stream(writing.pieces())
    novelties: list[Novelty] = []
    interrupted = any(sample.ended == "interrupted" for sample in writing.samples)
    if asked.novelty and not interrupted:
        try:
            novelties = model.novelty(writing.samples, data=asked.data, note=console.say)
        except GptxError as error:
            writing.failures.append(error)
    if output.json:
        about = {**vars(settings), "stop": list(stops), **model.origin}
        del about["n"]
        console.write_json(*writing.records(about, novelties), output=output.path)
    elif output.path:
        output.write_text(text.removesuffix("\n") + "\n")
    for number, sample in enumerate(writing.samples):
        name = f"sample {number}: " if len(writing.samples) > 1 else ""
        if novelties and not output.json:
            console.say(f"{name}{novelties[number]}")
        if sample.ended == "copies":
            console.say(name + ONLY_COPIES)
    if writing.failures:
        raise writing.failures[0]


def _write_new(
    model: TrainedGPT, settings: SampleConfig, data: Path, output: OutputOptions
) -> None:
    """Writes new items as they come, as the text has them; with --json, a record for each."""
    from gpt.characters import to_json
    from gpt.reading.writing import SCHEMA, new_items

    written = list[str]()
    for number, item in enumerate(new_items(model, settings, data)):
        record = {"schema": SCHEMA, "sample": number, "text": item, "seed": settings.seed}
        line = f"{to_json(record | model.origin)}\n" if output.json else item + model.separator
        written.append(line)
        if output.path is None:
            console.write(line)
    if output.path is not None:
        output.write_text("".join(written))
    if len(written) < settings.n:
        console.say(f"note: the model found {len(written):,} new items; try a higher --temperature")
