"""`gptx sample`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gpt import console
from gpt.commands.common import known_text, one_text, open_run, origin
from gpt.commands.options import (
    Checkpoints,
    ConfigFile,
    Json,
    OnDevice,
    RunName,
    Step,
    Unknown,
    only_given,
    options_from,
)
from gpt.config import SampleConfig


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
    unknown: Unknown = "error",
    run: RunName = None,
    step: Step = "best",
    device: OnDevice = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Continue a prompt, character by character."""
    options = SampleConfig(**only_given(given))
    begin = one_text({"TEXT": text, "--prompt": prompt, "--prompt-file": prompt_file}) or ""
    model = open_run(checkpoints, run, step, device, options.length * options.n)
    begin = known_text(model, begin, unknown)
    if len(begin) > model.config.block_size:
        console.say(
            f"note: the prompt has {len(begin):,} characters; the model sees the last "
            f"{model.config.block_size} at most"
        )
    pieces = model.stream(begin, options, stop or ())
    if options.n == 1 and not as_json:
        console.stream(begin, (gained[0] for gained in pieces))
        return
    texts = [begin] * options.n
    for gained in pieces:
        texts = [so_far + new for so_far, new in zip(texts, gained, strict=True)]
    if not as_json:
        console.stream("\n---\n".join(texts))
        return
    made_by = {"prompt": begin, "seed": options.seed, **origin(model)}
    for number, written in enumerate(texts):
        record = {"sample": number, "text": written, **made_by}
        console.write(json.dumps(record, ensure_ascii=False) + "\n")
