"""`gptx next`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gpt.commands import console
from gpt.commands.opened import known_text, open_run, text_or_example
from gpt.commands.options import (
    Checkpoints,
    ConfigFile,
    Json,
    RunName,
    Step,
    Unknown,
    only_given,
    options_from,
)
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING


@options_from(SampleConfig, only=SHAPING)
def following(
    text: Annotated[
        str | None,
        typer.Argument(help="Preceding text; - reads stdin.", show_default="from validation"),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File with the text.")] = None,
    run: RunName = None,
    step: Step = "best",
    most: Annotated[int, typer.Option("--show", help="Characters to show.", min=1)] = 12,
    digits: Annotated[int, typer.Option(help="Digits after the point.", min=1, max=9)] = 3,
    unknown: Unknown = "error",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Labels in ASCII.")] = False,
    color: Annotated[Literal["auto", "always", "never"], typer.Option(help="Colours.")] = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Show what the model expects next, and what temperature and filters change."""
    from gpt.view.terminal.lines import Page
    from gpt.view.terminal.next_character import bars, following_record

    settings = SampleConfig(**only_given(given))
    opened = open_run(checkpoints, run, step)
    model = opened.model
    chosen = known_text(model, text_or_example(model, {"TEXT": text, "--file": file}), unknown)
    found = model.following(chosen, **only_given(given))
    characters = model.vocabulary.characters
    if as_json:
        made_by = {"text": chosen, **opened.origin}
        record = following_record(found, characters, settings, made_by)
        console.write(json.dumps(record, ensure_ascii=False) + "\n")
        return
    page = Page(console.page_width(), ascii_only or not console.speaks_utf8(), digits)
    console.deliver_lines(bars(found, characters, settings, most, page), None, color)
