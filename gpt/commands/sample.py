"""`gptx sample`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt import console
from gpt.commands.common import known_text, one_text, open_run, origin, splits
from gpt.commands.options import (
    Checkpoints,
    ConfigFile,
    Data,
    Json,
    OnDevice,
    RunName,
    Step,
    Unknown,
    only_given,
    options_from,
)
from gpt.config import SampleConfig
from gpt.errors import ConfigError

if TYPE_CHECKING:
    from gpt.reading.trained import TrainedGPT
    from gpt.vocabulary import Ids


@options_from(SampleConfig)
def sample(
    text: Annotated[
        str | None, typer.Argument(help="The prompt; - reads stdin.", show_default=False)
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="The same as an option.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="File with the prompt.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; repeatable.")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Write in turns with the model.")
    ] = False,
    novelty: Annotated[
        bool, typer.Option("--novelty", help="Tell the longest run copied from the corpus.")
    ] = False,
    unknown: Unknown = "error",
    run: RunName = None,
    step: Step = "best",
    device: OnDevice = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    data: Data = Path("data"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Continue a prompt, character by character."""
    options = SampleConfig(**only_given(given))
    if interactive:
        _needs_a_person(options, as_json, novelty)
    begin = one_text({"TEXT": text, "--prompt": prompt, "--prompt-file": prompt_file}) or ""
    model = open_run(checkpoints, run, step, device, options.length * options.n)
    begin = known_text(model, begin, unknown)
    if len(begin) > model.config.block_size:
        console.say(
            f"note: the prompt has {len(begin):,} characters; the model sees the last "
            f"{model.config.block_size} at most"
        )
    if interactive:
        from gpt.commands.talk import Talk, talk

        place = origin(model)
        talk(Talk(model, options, stop or (), begin), f"{place['run']} step {place['step']:,}")
        return
    corpus = splits(checkpoints, run, step, data) if novelty else None
    texts = [""] * options.n

    def written() -> Iterator[str]:
        """What the first sample gains; all are collected."""
        for gained in model.stream(begin, options, stop or ()):
            texts[:] = [so_far + new for so_far, new in zip(texts, gained, strict=True)]
            yield gained[0]

    if options.n == 1 and not as_json:
        console.stream(begin, written())
    else:
        for _ in written():
            pass
        if not as_json:
            console.stream("\n---\n".join(begin + text for text in texts))
    copied = _copied(model, texts, *corpus) if corpus else []
    if not as_json:
        for number, (line, _) in enumerate(copied):
            console.say(f"sample {number}: {line}" if options.n > 1 else line)
        return
    made_by = {"prompt": begin, "seed": options.seed, **origin(model)}
    for number, text in enumerate(texts):
        record = {"sample": number, "text": begin + text, **made_by}
        if copied:
            _, record["novelty"] = copied[number]
        console.write(json.dumps(record, ensure_ascii=False) + "\n")


def _needs_a_person(options: SampleConfig, as_json: bool, novelty: bool) -> None:
    """Raises ConfigError for what does not go with -i."""
    given = {"-n": options.n > 1, "--json": as_json, "--novelty": novelty}
    for option in (name for name, is_given in given.items() if is_given):
        raise ConfigError(f"-i: goes without {option}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("-i: needs a terminal; without one, give the text as --prompt")


def _copied(
    model: TrainedGPT, texts: list[str], train: Ids, val: Ids
) -> list[tuple[str, dict[str, Any]]]:
    """How new each text is, as a line and for programs."""
    from gpt.reading.novelty import MOST, novelty
    from gpt.view.novelty import novelty_line, novelty_record

    if len(train) > MOST:
        console.say(f"note: copies are looked for in the first {MOST:,} characters")
    decode = model.vocabulary.decode
    found = novelty(texts, decode(train[:MOST]), decode(val[:MOST]))
    return [(novelty_line(each), novelty_record(each)) for each in found]
