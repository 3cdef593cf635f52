"""`gptx next`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpt.commands import console
from gpt.commands.options import (
    Ascii,
    Checkpoints,
    Color,
    ConfigFile,
    Json,
    RunName,
    Step,
    TextFile,
    Unknown,
    known_text,
    only_given,
    open_run,
    options_from,
    text_or_example,
)
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING


@options_from(SampleConfig, only=SHAPING)
def following(
    text: Annotated[
        str | None,
        typer.Argument(help="Preceding text; - reads stdin.", show_default="from validation"),
    ] = None,
    file: TextFile = None,
    run: RunName = None,
    step: Step = "best",
    most: Annotated[int, typer.Option("--show", help="Characters to show.", min=1)] = 12,
    digits: Annotated[int, typer.Option(help="Digits after the point.", min=1, max=9)] = 3,
    unknown: Unknown = "error",
    ascii_only: Ascii = False,
    color: Color = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Show what the model expects next, and what temperature and filters change."""
    from gpt.view.terminal.next_character import bars, following_record

    settings = SampleConfig(**only_given(given))
    opened = open_run(checkpoints, run, step)
    model = opened.model
    chosen = known_text(model, text_or_example(model, {"TEXT": text, "--file": file}), unknown)
    found = model.following(chosen, **only_given(given))
    characters = model.vocabulary.characters
    if as_json:
        made_by = {"text": chosen, **opened.origin}
        console.write_json(following_record(found, characters, settings, made_by))
        return
    output = console.Output(None, ascii_only, color)
    output.lines(bars(found, characters, settings, most, output.page(precision=digits)))
