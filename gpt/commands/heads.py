"""`gptx heads`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpt.commands import console, shared
from gpt.commands.shared import refuse
from gpt.config import AttentionKind
from gpt.config.run import Data, OnDevice

if TYPE_CHECKING:
    from gpt.heads.survey import Survey
    from gpt.interface.trained import TrainedGPT
    from gpt.vocabulary import Ids

PAGE_TEXT = 64  # characters of the measured text that the page shows
Form = Literal["text", "json", "csv", "html", "svg", "png", "pdf"]
FORMS: dict[str, Form] = {"": "text", ".txt": "text", ".json": "json", ".csv": "csv"}
FORMS |= {".html": "html", ".svg": "svg", ".png": "png", ".pdf": "pdf"}


class Heads(shared.DrawingCommand):
    """Rank every head by what it does, compared with a head of uniform attention."""

    file: Annotated[
        str | None,
        typer.Argument(help="Text to measure on; - reads stdin.", show_default="validation split"),
    ] = None
    step: Annotated[
        str, "best, last, a kept step's number; measures over training: several, 0:200:800, or all."
    ] = "best"
    ablate: Annotated[
        Literal["no", "mean", "zero", "resample"],
        "Rise of the loss if a head's output becomes its mean, 0, or that of another window.",
    ] = "no"
    windows: Annotated[
        int, typer.Option(help="Most windows of text, or pairs, to measure on.", min=1)
    ] = 32
    attention: Annotated[
        AttentionKind | None, "For a model with an encoder: whose heads.", "cross"
    ] = None
    sort: Annotated[
        str | None,
        "Sort by a measure, named as in --json: back, sink_valued, ablation …",
        "ablation, else distance from uniform; with several steps, the largest change",
    ] = None
    top: Annotated[int | None, typer.Option(help="Show only the first heads.", min=1)] = None
    every: Annotated[
        bool,
        typer.Option("--all", help="All measures."),
    ] = False
    device: OnDevice = "auto"
    output: Annotated[
        Path | None,
        shared.output_option(
            "File: .txt, .json, .csv; for one step also .html; for several also .svg, .png, .pdf."
        ),
    ] = None
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.commands.progress import working
        from gpt.heads.survey import Survey
        from gpt.view.records import to_csv, to_record

        form, several = self.form(FORMS), len(self.steps) > 1
        figure = form in ("svg", "png", "pdf")
        refuse(
            (several and form == "html", "--output: a page shows one step, not several"),
            (
                figure and not several,
                "--output: a figure shows measures over training; give several steps, as in "
                "--step all",
            ),
        )
        model, how = self.opened.prove(), None if self.ablate == "no" else self.ablate
        if how and self.opened.device != "cpu":
            console.say("note: --ablate computes replaced heads with numpy")
        ids, source = self._text()
        with working() as done:
            found = model.heads(
                ids,
                steps=self.steps if several else None,
                windows=self.windows,
                attention=self.attention,
                ablate=how,
                name=source,
                done=done,
            )
        if form == "text":
            self.write_blocks(found.blocks(self.every, self.sort, self.top))
        elif form == "json":
            origin = {"run": self.opened.name} if several else self.opened.origin
            self.write_json(to_record(found.records(self.sort), origin))
        elif form == "csv":
            self.write_text(to_csv(found.records(self.sort)))
        elif isinstance(found, Survey):
            self._write_page(found, ids)
        elif form != "html":  # a page shows one step
            from gpt.view.figure.development import to_figure

            drawn = to_figure(found, form, self.opened.name, self.every, self.sort, self.top)
            console.deliver(drawn, self.output)

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint of --step, the last one if --step has several steps, on its device."""
        opened = self.open(self.run, "last" if self.several_steps else self.step)
        return self.on_device(opened, self.windows * opened.stored.config.block_size)

    @cached_property
    def steps(self) -> list[int]:
        """The numbers of the steps to measure."""
        from gpt.storage.runs import run_of, step_numbers

        if not self.several_steps:
            return [self.opened.stored.step]
        return step_numbers(run_of(self.opened.stored), self.several_steps, "step")

    def _text(self) -> tuple[Ids, str]:
        """The ids to measure on, and the name of their text."""
        model = self.opened
        if self.file is not None:
            text = shared.known_text(model, console.read_text(self.file), self.unknown)
            name = shared.label_of(self.file)
            return model.vocabulary.encode(text), name
        if model.has_encoder:
            return model.vocabulary.encode(model.stored.excerpt_lines), model.excerpt_name
        return shared.validation(model, self.data)

    def _write_page(self, found: Survey, ids: Ids) -> None:
        """Writes the HTML page of one step."""
        from gpt.heads.kinds import Start, opening
        from gpt.view.page.page import build_page, subject_of

        model = self.opened
        if model.has_encoder:
            from gpt.corpus.pair_lines import fitting_pairs

            pairs = fitting_pairs(model.vocabulary.decode(ids), model.config.block_size)
            text = "\t".join(pairs[0])
        else:
            text = model.vocabulary.decode(ids[: min(PAGE_TEXT, model.config.block_size)])
        measures = sorted(found.measures, key=lambda each: each.name != "ablation")  # it first
        shown = model.attn(text, attention=self.attention)
        subjects = [subject_of(shown, model.title, measures, model.origin)]
        by_rank = self.sort is not None or self.ablate != "no"
        start = Start(*found.ranking(self.sort)[0]) if by_rank else opening(measures)
        measured = f"{found.measured} · {found.rule}"
        self.write_text(build_page(subjects, start, model.title, measured=measured))
