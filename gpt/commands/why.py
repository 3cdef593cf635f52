"""`gptx why`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpt.commands.options import (
    DrawingOptions,
    ReadingOptions,
    TextOptions,
    note_on_counting,
    require_passed_checks,
)
from gpt.config import ExplanationOptions
from gpt.config.fields import only_fields, option


@dataclass(frozen=True, kw_only=True)
class WhyOptions(ExplanationOptions):
    all: Annotated[bool, option("Show every part, and every check.")] = False


def command(
    source: TextOptions, options: WhyOptions, reading: ReadingOptions, output: DrawingOptions
) -> None:
    """Show how much each part of the model adds to the next character's logit.

    The parts are those of the GPT alone, without counting. They sum exactly to the GPT's logit.
    """
    text, model = source.read(reading.encoding), reading.open()
    known = reading.text_for_model(model, text, options.truncate)
    why = model.why(
        known, unknown=reading.unknown, **only_fields(ExplanationOptions, vars(options))
    )
    output.write_result(why, {"text": known, **model.origin}, options.all)
    if not output.json:
        note_on_counting(model)
    require_passed_checks(why.checks)
