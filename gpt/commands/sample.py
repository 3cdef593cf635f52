"""`gptx sample`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import DeviceOptions, OutputOptions, checked_stops, one_text, refuse_if
from gpt.config import SampleConfig
from gpt.config.fields import Options, option
from gpt.config.model import seed_of
from gpt.config.train import ESCAPES, Data, unescaped
from gpt.storage.files import storage_errors


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

    output: Annotated[
        Path | None, option("File to overwrite with the texts; with -i, for /save.")
    ] = None


def command(
    asked: SampleOptions, settings: SampleConfig, reading: DeviceOptions, output: SampleOutput
) -> None:
    """Continue a prompt, character by character."""
    from gpt.reading.writing import SampleWriter, item_lines

    texts = {"TEXT": asked.text, "--prompt": asked.prompt, "--file": asked.file}
    text = one_text({**texts, "--prompts": asked.prompts}, reading.encoding) or ""
    prompts = text.split("\n") if asked.prompts else [text]
    refuse_if(asked.prompts is not None and not any(prompts), "--prompts: the file has no prompt")
    if asked.interactive:
        others = (asked.prompts, asked.no_prompt, asked.novelty, asked.new, output.json)
        alone = "-i: leave out --prompts, --no-prompt, --novelty, --new, --json, -n"
        refuse_if(any(others) or settings.n > 1, alone)
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        refuse_if(not has_terminal, "-i: needs a terminal; without one, give the text as --prompt")
    characters = settings.length * settings.n * len(prompts)
    model = reading.open_on_device(characters=characters).prove()
    if asked.novelty and model.recorded is None:
        model.novelty([])  # raises an error, as the corpus is unknown
    if not asked.prompts:
        prompts = [model.known_text(text, reading.unknown)]
    stops = checked_stops(model, asked.stop)
    longest, block_size = max(map(len, prompts)), model.config.block_size
    if longest > block_size:
        seen = f"the model sees the last {block_size} at most"
        console.say(f"note: the prompt has {longest:,} characters; {seen}")
    settings = replace(settings, ban=settings.ban and unescaped(settings.ban))
    if asked.interactive:
        from gpt.commands.interactive import Session

        talk = Session(model, settings, stops, prompts[0], reading.unknown, asked.data)
        talk.file = output.path or talk.file
        talk.run()
        return
    if settings.seed is None:
        settings = replace(settings, seed=seed_of(settings))
        console.say(f"seed {settings.seed}")
    if output.path:  # an error comes before there is anything to write
        with storage_errors(f"write {output.path}"):
            output.path.open("ab").close()
    if asked.new:
        unused = bool(text or stops or asked.novelty)
        refuse_if(unused, "--new: leave out prompts, --stop and --novelty")
        items = item_lines(model, settings, asked.data, output.json)
        written = console.write_lines(items, output.path)
        if written < settings.n:
            console.say(f"note: the model found {written:,} new items; try a higher --temperature")
        return
    begin = partial(
        model.stream, config=settings, stop=stops, unknown=reading.unknown, data=asked.data
    )
    waits = output.json or output.path is not None
    writing = SampleWriter(begin, prompts, asked.prompts, shows_prompt=not asked.no_prompt)
    if waits:
        text = "".join(writing.text_pieces())
    else:
        console.stream(writing.text_pieces())
    if asked.novelty:
        writing.measure(partial(model.novelty, data=asked.data))
    if output.json:
        about = {**vars(settings), "stop": list(stops), **model.origin}
        del about["n"]
        console.write_json(*writing.records(about), output=output.path)
    elif output.path:
        console.write(text.removesuffix("\n") + "\n", output.path)
    for line in writing.notes():
        console.say(line)
    if writing.failures:
        raise writing.failures[0]
