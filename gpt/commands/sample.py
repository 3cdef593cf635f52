"""`gptx sample`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.config import SampleConfig
from gpt.errors import ConfigError, GptxError

if TYPE_CHECKING:
    from gpt.loading import Saved
    from gpt.trained import TrainedGPT
    from gpt.vocabulary import Ids

SCHEMA = 1


@shared.options_from(SampleConfig)
def sample(
    text: Annotated[
        str | None, typer.Argument(help="The prompt; - reads stdin.", show_default=False)
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="The same as an option.")] = None,
    file: shared.TextFile = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="End before this text; repeatable. A newline is $'\\n' in most shells."),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Write in turns with the model.")
    ] = False,
    novelty: Annotated[
        bool, typer.Option("--novelty", help="Tell the longest run copied from the corpus.")
    ] = False,
    unknown: shared.Unknown = "error",
    run: shared.RunName = None,
    step: shared.Step = "best",
    device: shared.OnDevice = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    data: shared.Data = Path("data"),
    config: shared.ConfigFile = None,
    as_json: shared.Json = False,
    **given: Any,
) -> None:
    """Continue a prompt, character by character."""
    options = SampleConfig(**shared.only_given(given))
    if interactive:
        _needs_a_person(options, as_json, novelty)
    begin = shared.one_text({"TEXT": text, "--prompt": prompt, "--file": file}) or ""
    opened = shared.open_run(checkpoints, run, step, device, options.length * options.n)
    if novelty and opened.manifest is None:
        _corpus(opened, data)  # raises: without a run there is no corpus, and no sample is needed
    model = opened.model
    begin = shared.known_text(model, begin, unknown)
    stops = shared.checked_stops(model, stop or ())
    if len(begin) > model.config.block_size:
        console.say(
            f"note: the prompt has {len(begin):,} characters; the model sees the last "
            f"{model.config.block_size} at most"
        )
    if interactive:
        from gpt.commands.interactive import Talk, talk

        talk(Talk(model, options, stops, begin, unknown), opened.title)
        return
    samples = model.stream(begin, options, stops)
    streaming = options.n == 1 and not as_json
    texts = [StringIO() for _ in range(options.n)]

    def written() -> Iterator[str]:
        """New text of the first sample; all texts are collected if they are needed later."""
        for gained in samples:
            if novelty or not streaming:
                for text, new in zip(texts, gained, strict=True):
                    text.write(new)
            yield gained[0]

    interrupted = False
    try:
        if streaming:
            console.stream(begin, written())
        else:
            for _ in written():
                pass
    except KeyboardInterrupt:  # the text so far is still written
        interrupted = True
    found = [text.getvalue() for text in texts]
    if not (streaming or as_json):
        console.stream("\n---\n".join(begin + text for text in found))
    copied: list[tuple[str, dict[str, Any]]] = []
    problem: GptxError | None = None
    if novelty and not interrupted:
        try:
            copied = _copied(model, found, *_corpus(opened, data), len(begin))
        except GptxError as error:  # the samples need no corpus
            problem = error
    if as_json:
        ended = ["interrupted" if interrupted else "length"] * options.n
        ended = ["stop" if s else e for s, e in zip(samples.stopped, ended, strict=True)]
        settings = {name: value for name, value in vars(options).items() if name != "n"}
        made_by = {"prompt": begin, **settings, "stop": list(stops), **opened.origin}
        for number, text in enumerate(found):
            record = {"schema": SCHEMA, "sample": number, "text": begin + text, **made_by}
            record["ended"] = ended[number]
            if copied:
                _, record["novelty"] = copied[number]
            console.write_json(record)
    else:
        for number, (line, _) in enumerate(copied):
            console.say(f"sample {number}: {line}" if options.n > 1 else line)
    if interrupted:
        raise KeyboardInterrupt
    if problem:
        raise problem


def _needs_a_person(options: SampleConfig, as_json: bool, novelty: bool) -> None:
    """Raises ConfigError for what does not go with -i."""
    given = {"-n": options.n > 1, "--json": as_json, "--novelty": novelty}
    for option in (name for name, is_given in given.items() if is_given):
        raise ConfigError(f"-i: goes without {option}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("-i: needs a terminal; without one, give the text as --prompt")


def _corpus(opened: Saved, data: Path) -> tuple[Ids, Ids]:
    """What --novelty searches. Raises TextError."""
    return opened.splits(data, "--novelty", no_run="; give its run with --run")


def _copied(
    model: TrainedGPT, texts: list[str], train: Ids, val: Ids, start: int
) -> list[tuple[str, dict[str, Any]]]:
    """How new each text is, as a line and for programs: positions after `start` characters more."""
    from gpt.reading.novelty import MOST, MOST_USUAL, novelty
    from gpt.view.terminal.surprise import novelty_line, novelty_record

    if len(train) > MOST:
        console.say(f"note: copies are looked for in the first {MOST:,} characters")
    found = novelty(texts, train[:MOST], val[:MOST_USUAL], model.vocabulary)
    return [(novelty_line(each), novelty_record(each, start)) for each in found]
