"""`gptx next`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpt.commands import shared
from gpt.commands.options import options_of
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING


class Next(shared.DrawingCommand):
    """Show what the model expects next, and what temperature and filters change."""

    text: Annotated[
        str | None,
        typer.Argument(help="Preceding text; - reads stdin.", show_default="from validation"),
    ] = None
    file: shared.TextFile = None
    most: Annotated[int, typer.Option("--show", help="Characters to show.", min=1)] = 12
    device: shared.OnDevice = "auto"
    shaping: Annotated[dict[str, Any], options_of(SampleConfig, only=(*SHAPING, "only"))]

    def execute(self) -> None:
        from gpt.view.terminal.next_character import bars, following_record

        settings = SampleConfig(**self.shaping)
        opened = self.on_device(self.opened, self.opened.stored.config.block_size)
        model = opened.model
        characters = model.vocabulary.characters
        given = shared.one_text({"TEXT": self.text, "--file": self.file})
        text = self.text_for(model, given)
        found = model.following(text, **self.shaping)
        if self.as_json:
            made_by = {"text": text, **self.opened.origin}
            self.write_json(following_record(found, characters, settings, made_by))
        else:
            page = self.page(precision=3)
            self.write_lines(bars(found, characters, settings, self.most, page))
