"""`gptx heads`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from gpt.commands import console
from gpt.commands.options import DeviceOptions, DrawingOptions, argument, note_on_counting
from gpt.config import SurveyOptions
from gpt.config.fields import option
from gpt.config.train import Data
from gpt.words import text_name

if TYPE_CHECKING:
    from gpt.vocabulary import Ids

Form = Literal["text", "json", "csv", "svg", "png", "pdf"]


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(SurveyOptions):
    file: Annotated[
        str | None,
        argument("File with the text to measure on; - reads stdin.", "the validation split"),
    ] = None
    all: Annotated[bool, option("Show every measure with its error.")] = False
    data: Data = Path("data")


@dataclass(frozen=True, kw_only=True)
class HeadsOutput(DrawingOptions):
    output: Annotated[Path | None, option("File: .txt, .json, .csv, .svg, .png or .pdf.")] = None


def command(options: HeadsOptions, reading: DeviceOptions, output: HeadsOutput) -> None:
    """Show what every head looks at, and what the model loses without it.

    The heads are those of the GPT alone; counting has none.
    """
    form: Form = output.output_format(get_args(Form))
    model = reading.open_on_device(options.windows).check_probe()
    text: str | Ids
    if options.file is None:
        text, name = model.default_text(options.data)
    else:
        text = console.read_text(options.file, encoding=reading.encoding)
        text, name = model.known_text(text, reading.unknown), text_name(options.file)
    with console.progress_bar("measuring") as done:
        survey = model.heads(
            text, name=name, done=done, windows=options.windows, ablate=options.ablate
        )
    if form in ("text", "json"):
        replace(output, json=form == "json").write_result(survey, model.origin, options.all)
    elif form == "csv":
        console.write(survey.to_csv(), output.path)
    else:
        console.write_bytes(survey.figure(form), output.path)
    if form == "text":
        note_on_counting(model)
