"""`gptx heads`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.commands.shared import refuse_if
from gpt.config import HeadsConfig
from gpt.config.fields import Range
from gpt.config.train import Data, OnDevice

if TYPE_CHECKING:
    from gpt.heads.survey import Survey
    from gpt.interface.trained import TrainedGPT
    from gpt.vocabulary import Ids

PAGE_TEXT = 64  # characters of the measured text that the page shows
Form = Literal["text", "json", "csv", "html", "svg", "png", "pdf"]


class Heads(shared.DrawingCommand):
    """Rank every head by what it does, compared with a head of uniform attention."""

    file: shared.Measured = None
    step: shared.SeveralSteps = "best"
    given: Annotated[dict[str, Any], options_of(HeadsConfig)]
    sort: Annotated[
        str | None,
        "Sort by a measure, named as in --json: back, sink_valued, ablation …",
        "ablation, else distance from uniform; with several steps, the largest change",
    ] = None
    top: Annotated[int | None, "Show only the first heads.", Range(1)] = None
    every: Annotated[bool, typer.Option("--all", help="All measures.")] = False
    measure: Annotated[
        list[str] | None,
        "Draw this measure in a figure; repeatable.",
        "ablation and those that name heads, at most 4",
    ] = None
    device: OnDevice = "auto"
    output: Annotated[
        Path | None,
        shared.output_option(
            "File: .txt, .json, .csv; for one step also .html; for several also .svg, .png, .pdf."
        ),
    ] = None
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.commands.progress import progress_bar
        from gpt.heads.survey import Survey

        form: Form = self.form(get_args(Form))
        model, several = self.opened, self.several_steps is not None
        figure = form in ("svg", "png", "pdf")
        refuse_if(
            (several and form == "html", "--output: a page shows one step, not several"),
            (
                figure and not several,
                "--output: a figure shows measures over training; give several steps, as in "
                "--step all",
            ),
            (bool(self.measure) and not figure, "--measure: chooses what a figure draws; give -o"),
        )
        model.prove()
        if self.asked.ablate and model.device != "cpu":
            console.say("note: --ablate computes replaced heads with numpy")
        steps = self.numbers_of_steps(model)
        text, name = self.text_or_split(model, self.file, self.data)
        with progress_bar() as done:
            found = model.heads(text, steps=steps, name=name, done=done, **self.given)
        if form == "text":
            self.write_blocks(found.blocks(self.every, self.sort, self.top))
        elif form == "json":
            origin = {"run": model.name} if several else model.origin
            self.write_record(found.records(self.sort), origin)
        elif form == "csv":
            self.write_csv(found.records(self.sort))
        elif isinstance(found, Survey):
            self._write_page(found, text)
        elif form != "html":  # a page shows one step
            from gpt.view.figure.development import draw

            names = self.measure or ()
            if not self.every and not names:
                these = ", ".join(each.name for each in found.main_measures())
                console.say(f"note: draws {these}; --measure NAME draws another, --all all")
            drawn = draw(found, model.name, self.every, self.sort, self.top, names)
            self.write_figure(drawn, form)

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint of --step (the last one if --step names several), on its device."""
        opened = self.open(self.run, "last" if self.several_steps else self.step)
        return self.on_device(opened, self.asked.windows * opened.stored.config.block_size)

    @cached_property
    def asked(self) -> HeadsConfig:
        """How to measure. Raises ConfigError."""
        return HeadsConfig(**self.given)

    def _write_page(self, found: Survey, measured: str | Ids) -> None:
        """Writes the HTML page of one step. measured: the text, or its ids."""
        from gpt.heads.measures import StartHead, choose_head
        from gpt.view.page.page import build_page, make_subject

        model, known = self.opened, self.opened.vocabulary
        begin = measured[: min(PAGE_TEXT, model.config.block_size)]
        text = begin if isinstance(begin, str) else known.decode(begin)
        measures = sorted(found.measures, key=lambda each: each.name != "ablation")  # chosen first
        subjects = [make_subject(model.attn(text), model.title, measures, model.origin)]
        by_rank = self.sort is not None or self.asked.ablate is not None
        start = StartHead(*found.ranking(self.sort)[0]) if by_rank else choose_head(measures)
        about = f"{found.measured} · {found.rule}"
        self.write_text(build_page(subjects, start, model.title, measured=about))
