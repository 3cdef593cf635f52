"""`gptx heads`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import DeviceOptions, DrawingOptions, note, note_on_counting, text_label
from gpt.config import HeadsConfig
from gpt.config.fields import option
from gpt.config.train import Data

if TYPE_CHECKING:
    from gpt.heads.survey import Survey
    from gpt.interface.trained import TrainedGPT
    from gpt.vocabulary import Ids

PAGE_TEXT = 64  # characters of the measured text that the page shows
Form = Literal["text", "json", "csv", "html"]


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(HeadsConfig):
    """What to measure, and how much of it to show."""

    file: Annotated[
        str | None,
        argument("Text to measure on; - reads stdin.", "validation split"),
    ] = None
    all: Annotated[bool, option("All measures.")] = False
    data: Data = Path("data")


@dataclass(frozen=True, kw_only=True)
class HeadsOutput(DrawingOptions):
    """Where to write the table."""

    output: Annotated[Path | None, option("File: .txt, .json, .csv or .html.")] = None


def command(asked: HeadsOptions, reading: DeviceOptions, output: HeadsOutput) -> None:
    """Rank every head by what it does, compared with a head of uniform attention.

    The heads are those of the GPT alone; counting has none.
    """
    from gpt.commands.progress import progress_bar

    form: Form = output.form(get_args(Form))
    model = reading.open()
    characters = asked.windows * model.config.block_size
    model = model.on(reading.device_for(characters, model)).prove()
    if asked.ablate and model.device != "cpu":
        console.say("note: --ablate computes replaced heads with numpy")
    text: str | Ids
    if asked.file is None:
        text, name = model.default_text(asked.data, note)
    else:
        text = reading.known_text(model, console.read_text(asked.file, encoding=reading.encoding))
        name = text_label(asked.file)
    with progress_bar() as done:
        survey = model.heads(text, name=name, done=done, windows=asked.windows, ablate=asked.ablate)
    if form == "text":
        output.write_blocks(survey.blocks(asked.all))
        note_on_counting(model)
    elif form == "json":
        output.write_record(survey.records(), model.origin)
    elif form == "csv":
        output.write_csv(survey.records())
    else:
        output.write_text(_page(model, survey, text))


def _page(model: TrainedGPT, survey: Survey, measured: str | Ids) -> str:
    """The HTML page, opened at the head that matters most. measured: the text, or its ids."""
    from gpt.view.page.live import live_page

    begin = measured[: min(PAGE_TEXT, model.config.block_size)]
    text = begin if isinstance(begin, str) else model.vocabulary.decode(begin)
    return live_page(model, text, *survey.ranking()[0])
