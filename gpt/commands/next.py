"""`gptx next`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING


@shared.options_from(SampleConfig, only=SHAPING)
def following(
    text: Annotated[
        str | None,
        typer.Argument(help="Preceding text; - reads stdin.", show_default="from validation"),
    ] = None,
    file: shared.TextFile = None,
    run: shared.RunName = None,
    step: shared.Step = "best",
    most: Annotated[int, typer.Option("--show", help="Characters to show.", min=1)] = 12,
    digits: Annotated[int, typer.Option(help="Digits after the point.", min=1, max=9)] = 3,
    unknown: shared.Unknown = "error",
    ascii_only: shared.Ascii = False,
    color: shared.Color = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    config: shared.ConfigFile = None,
    as_json: shared.Json = False,
    **given: Any,
) -> None:
    """Show what the model expects next, and what temperature and filters change."""
    from gpt.view.terminal.next_character import bars, following_record

    settings = SampleConfig(**shared.only_given(given))
    opened = shared.open_run(checkpoints, run, step)
    model = opened.model
    asked = shared.text_or_example(model, {"TEXT": text, "--file": file})
    chosen = shared.known_text(model, asked, unknown)
    found = model.following(chosen, **shared.only_given(given))
    characters = model.vocabulary.characters
    if as_json:
        made_by = {"text": chosen, **opened.origin}
        console.write_json(following_record(found, characters, settings, made_by))
        return
    output = console.Output(None, ascii_only, color)
    output.lines(bars(found, characters, settings, most, output.page(precision=digits)))
