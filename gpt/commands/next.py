"""`gptx next`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpt.commands.options import DeviceOptions, DrawingOptions, TextOptions
from gpt.config.fields import only_fields, option
from gpt.config.model import FilterOptions


@dataclass(frozen=True, kw_only=True)
class NextOptions(FilterOptions):
    all: Annotated[bool, option("Show every character.")] = False


def command(
    source: TextOptions, options: NextOptions, reading: DeviceOptions, output: DrawingOptions
) -> None:
    """Show what the model expects next, and what temperature and filters change."""
    model = reading.open_on_device()
    text = reading.text_for_model(model, source.read(reading.encoding))
    character = model.next(text, **only_fields(FilterOptions, vars(options)))
    output.write_result(character, {"text": text, **model.origin}, options.all)
