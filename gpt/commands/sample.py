"""`gptx sample`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import (
    DeviceOptions,
    OutputOptions,
    argument,
    read_one_text,
    refuse_if,
    stops_for_model,
)
from gpt.config import SampleConfig
from gpt.config.fields import Options, option
from gpt.config.model import seed_of
from gpt.config.train import ESCAPES, Data, unescaped
from gpt.storage.files import storage_errors
from gpt.words import pluralize


@dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    text: Annotated[str | None, argument("The prompt; - reads stdin.")] = None
    prompt: Annotated[str | None, option(f"The prompt, as an option. {ESCAPES}")] = None
    file: Annotated[Path | None, option("File with the prompt.")] = None
    prompts: Annotated[Path | None, option("File with a prompt on each line.")] = None
    stop: Annotated[tuple[str, ...], option(f"End before this text; repeatable. {ESCAPES}")] = ()
    no_prompt: Annotated[bool, option("Leave out the prompt in what is written.")] = False
    new: Annotated[
        bool, option("For a run with `items`: write whole items, all different, none in its text.")
    ] = False
    interactive: Annotated[bool, option("Write in turns with the model.")] = False
    novelty: Annotated[bool, option("Show the longest passage copied from the corpus.")] = False
    data: Data = Path("data")


@dataclass(frozen=True, kw_only=True)
class SampleOutput(OutputOptions):
    output: Annotated[
        Path | None, option("File to overwrite with the texts; with -i, the file of /save.")
    ] = None


def command(
    options: SampleOptions, settings: SampleConfig, reading: DeviceOptions, output: SampleOutput
) -> None:
    """Continue a prompt, character by character."""
    from gpt.reading.writing import SampleWriter, item_lines

    texts = {"TEXT": options.text, "--prompt": options.prompt, "--file": options.file}
    text = read_one_text({**texts, "--prompts": options.prompts}, reading.encoding) or ""
    prompts = text.split("\n") if options.prompts else [text]
    refuse_if(options.prompts is not None and not any(prompts), "--prompts: the file has no prompt")
    if options.interactive:
        others = (options.prompts, options.no_prompt, options.novelty, options.new, output.json)
        alone = "-i: leave out --prompts, --no-prompt, --novelty, --new, --json, -n"
        refuse_if(any(others) or settings.n > 1, alone)
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        refuse_if(not has_terminal, "-i: needs a terminal; without one, give the text as --prompt")
    characters = settings.length * settings.n * len(prompts)
    model = reading.open_on_device(characters=characters).check_probe()
    if options.novelty and model.manifest_or_none is None:
        model.novelty([])  # raises the error about an unknown corpus
    if not options.prompts:
        prompts = [model.known_text(text, reading.unknown)]
    stops = stops_for_model(model, options.stop)
    longest, block_size = max(map(len, prompts)), model.config.block_size
    if longest > block_size:
        seen = f"the model sees only the last {block_size}"
        console.say(f"note: the prompt has {longest:,} characters; {seen}")
    settings = replace(settings, ban=settings.ban and unescaped(settings.ban))
    if options.interactive:
        from gpt.commands.interactive import WritingSession

        session = WritingSession(model, settings, stops, prompts[0], reading.unknown, options.data)
        session.file = output.path or session.file
        session.run()
        return
    if settings.seed is None:
        settings = replace(settings, seed=seed_of(settings))
        console.say(f"seed {settings.seed}")
    if output.path:  # raises an error before the model writes
        with storage_errors(f"write {output.path}"):
            output.path.open("ab").close()
    if options.new:
        unused = bool(text or stops or options.novelty)
        refuse_if(unused, "--new: leave out prompts, --stop and --novelty")
        items = item_lines(model, settings, options.data, output.json)
        written = console.write_lines(items, output.path)
        if written < settings.n:
            items_written = pluralize(written, "new item")
            console.say(f"note: the model wrote only {items_written}; try a higher --temperature")
        return
    begin = partial(
        model.stream, config=settings, stop=stops, unknown=reading.unknown, data=options.data
    )
    writing = SampleWriter(begin, prompts, options.prompts, shows_prompt=not options.no_prompt)
    if output.json or output.path:
        text = "".join(writing.text_pieces())
    else:
        console.stream_text(writing.text_pieces())
    if options.novelty:
        writing.measure(partial(model.novelty, data=options.data))
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
