"""`gptx heads`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.config import HeadsConfig
from gpt.config.train import Data, OnDevice

if TYPE_CHECKING:
    from gpt.heads.survey import Survey
    from gpt.interface.trained import TrainedGPT
    from gpt.vocabulary import Ids

PAGE_TEXT = 64  # characters of the measured text that the page shows
Form = Literal["text", "json", "csv", "html"]


class Heads(shared.DrawingCommand):
    """Rank every head by what it does, compared with a head of uniform attention.

    The heads are those of the GPT alone; counting has none.
    """

    file: Annotated[
        str | None,
        typer.Argument(help="Text to measure on; - reads stdin.", show_default="validation split"),
    ] = None
    given: Annotated[dict[str, Any], options_of(HeadsConfig)]
    every: Annotated[bool, typer.Option("--all", help="All measures.")] = False
    device: OnDevice = "auto"
    output: Annotated[Path | None, shared.output_option("File: .txt, .json, .csv or .html.")] = None
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.commands.progress import progress_bar

        form: Form = self.form(get_args(Form))
        model = self.opened.prove()
        if self.asked.ablate and model.device != "cpu":
            console.say("note: --ablate computes replaced heads with numpy")
        text, name = self._measured(model)
        with progress_bar() as done:
            survey = model.heads(text, name=name, done=done, **self.given)
        if form == "text":
            self.write_blocks(survey.blocks(self.every))
            shared.note_on_counting(model)
        elif form == "json":
            self.write_record(survey.records(), model.origin)
        elif form == "csv":
            self.write_csv(survey.records())
        else:
            self._write_page(survey, text)

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint, on its device."""
        opened = self.open(self.run, self.step)
        return self.on_device(opened, self.asked.windows * opened.config.block_size)

    @cached_property
    def asked(self) -> HeadsConfig:
        """How to measure. Raises ConfigError."""
        return HeadsConfig(**self.given)

    def _measured(self, model: TrainedGPT) -> tuple[str | Ids, str]:
        """A file's text, or the validation split's ids; and the text's name. Raises TextError."""
        if self.file is None:
            return model.default_text(self.data, shared.note)
        text = console.read_text(self.file, encoding=self.encoding)
        return self.known_text(model, text), shared.text_label(self.file)

    def _write_page(self, survey: Survey, measured: str | Ids) -> None:
        """Writes the HTML page. measured: the text, or its ids."""
        from gpt.heads.measures import RULE, StartHead, choose_head
        from gpt.view.page.page import build_page, make_subject

        model = self.opened
        begin = measured[: min(PAGE_TEXT, model.config.block_size)]
        text = begin if isinstance(begin, str) else model.vocabulary.decode(begin)
        measures = sorted(survey.measures, key=lambda measure: measure.name != "ablation")
        if self.asked.ablate is not None:
            start = StartHead(*survey.ranking()[0])
        else:
            start = choose_head(measures)
        subject = make_subject(model.attn(text), measures)
        page = build_page(subject, start, measured=f"{survey.measured} · {RULE}")
        self.write_text(page)
