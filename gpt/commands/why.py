"""`gptx why`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpt.commands.shared import (
    DrawingOptions,
    ReadingOptions,
    TextOptions,
    note_on_counting,
    require_passed,
)
from gpt.config import WhyConfig
from gpt.config.fields import option


@dataclass(frozen=True, kw_only=True)
class WhyOptions(WhyConfig):
    """What to explain, and how much of it to show."""

    all: Annotated[bool, option("Show every part, and every check.")] = False


def command(
    source: TextOptions, asked: WhyOptions, reading: ReadingOptions, output: DrawingOptions
) -> None:
    """Show what each part of the model adds to the next character's logit: the exact sum.

    The parts are those of the GPT alone, without counting.
    """
    given = source.given(reading.encoding)
    model = reading.open()
    text = reading.text_for(model, given, asked.truncate)
    found = model.why(
        text,
        unknown=reading.unknown,
        char=asked.char,
        against=asked.against,
        truncate=asked.truncate,
    )
    if output.json:
        output.write_json(found, {"text": text, **model.origin})
    else:
        output.write_result(found, asked.all)
        note_on_counting(model)
    require_passed(check.name for check in found.checks if not check.passed)
