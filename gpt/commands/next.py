"""`gptx next`."""

from __future__ import annotations

from typing import Annotated, Any

from gpt.commands import shared
from gpt.commands.options import options_of
from gpt.config import SampleConfig
from gpt.config.fields import Range
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.config.train import OnDevice


class Next(shared.DrawingCommand):
    """Show what the model expects next, and what temperature and filters change."""

    text: shared.Preceding = None
    file: shared.TextFile = None
    show: Annotated[int, "Characters to show.", Range(1)] = 12
    device: OnDevice = "auto"
    shaping: Annotated[
        dict[str, Any], options_of(SampleConfig, only=(*DISTRIBUTION_OPTIONS, "only"))
    ]

    def execute(self) -> None:
        opened = self.on_device(self.opened, self.opened.stored.config.block_size)
        given = shared.one_text({"TEXT": self.text, "--file": self.file}, self.encoding)
        text = self.text_for(opened, given)
        found = opened.next(text, **self.shaping)
        if self.as_json:
            self.write_record(found.records(), {"text": text, **opened.origin})
        else:
            self.write_blocks(found.blocks(self.show))
