"""`gptx eval`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import DeviceOptions, DrawingOptions, argument
from gpt.config.fields import Options
from gpt.config.model import ByCharacter
from gpt.config.train import Data
from gpt.words import text_name


@dataclass(frozen=True, kw_only=True)
class EvalOptions(Options):
    file: Annotated[
        str | None, argument("File with the text; - reads stdin.", "the validation split")
    ] = None
    data: Data = Path("data")
    chars: ByCharacter = False


def command(options: EvalOptions, reading: DeviceOptions, output: DrawingOptions) -> None:
    """Measure how well a model predicts a text: nats and bits per character, perplexity.

    The model reads windows of the text that do not overlap, as in training. With --chars, windows
    overlap, so every character has half a window of context, if the text has so much before it.
    """
    from gpt.interface.evaluating import MOST_SCORED

    characters = MOST_SCORED
    if options.file is not None and os.path.isfile(options.file):
        characters = os.path.getsize(options.file)
    model, text = reading.open_on_device(characters=characters), None
    if options.file is not None:
        text = console.read_text(options.file, encoding=reading.encoding)
    evaluation = model.eval(
        text,
        chars=options.chars,
        unknown=reading.unknown,
        name=text_name(options.file or ""),
        data=options.data,
    )
    output.write_result(evaluation, model.origin)
