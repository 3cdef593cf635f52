"""`gptx heads`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gpt.commands import console, shared
from gpt.config.fields import spelled
from gpt.errors import TextError

PAGE_TEXT = 64  # characters of the measured text that the page shows
FORMS = {"": "text", ".txt": "text", ".json": "json", ".html": "html"}


class Heads(shared.DrawingCommand):
    """Rank every head by what it does, compared with a head of uniform attention."""

    file: Annotated[
        str | None,
        typer.Argument(help="Text to measure on; - reads stdin.", show_default="validation split"),
    ] = None
    ablate: Annotated[
        Literal["no", "mean", "zero", "resample"],
        "How much the loss rises with a head's mean output, none, or another window's.",
    ] = "no"
    windows: Annotated[int, typer.Option(help="Most windows of text to measure on.", min=1)] = 32
    sort: Annotated[
        str | None,
        "Sort by a measure, named as in --json: back, sink_valued, ablation …",
        "ablation, else what stands out",
    ] = None
    top: Annotated[int | None, typer.Option(help="Show only the first heads.", min=1)] = None
    every: Annotated[
        bool,
        typer.Option("--all", help="All measures; the synthetic one for each period, too."),
    ] = False
    digits: shared.Digits = 2
    output: Annotated[
        Path | None, shared.output_option("A file: .txt, .json, or .html, a page.")
    ] = None
    data: shared.Data = Path("data")

    def execute(self) -> None:
        from gpt.commands.attn import subject
        from gpt.commands.progress import working
        from gpt.heads.kinds import RULE
        from gpt.view.page.page import Start, build_page, opening
        from gpt.view.terminal import heads as view

        form = self.form(FORMS)
        opened = self.opened
        model = opened.model
        if self.file is not None:
            source = "standard input" if self.file == "-" else self.file
            text = shared.known_text(model, console.read_text(self.file), self.unknown)
            ids = model.vocabulary.encode(text)
        else:
            source = "the validation split"
            try:
                _, ids = opened.splits(self.data)
            except TextError as error:
                source = model.excerpt_name
                ids = model.vocabulary.encode(model.stored.excerpt)
                console.say(
                    f"note: {spelled(error)}; measuring on the start of the validation split, "
                    "stored in the model file"
                )
        how = None if self.ablate == "no" else self.ablate
        with working() as done:
            found = model.heads(ids, windows=self.windows, ablation=how, name=source, done=done)
        order = view.ranked(found, self.sort)[: self.top]
        if form == "text":
            page = self.page(precision=self.digits)
            table = view.heads_table(found, order, page, self.every)
            self.write_lines([*view.title(found, page), *table])
        elif form == "json":
            ranking = [list(place) for place in order]
            self.write_json(view.heads_record(found, opened.origin) | {"ranking": ranking})
        else:
            text = model.vocabulary.decode(ids[: min(PAGE_TEXT, model.config.block_size)])
            measures = sorted(found.measures, key=lambda each: each.name != "ablation")  # it first
            subjects = [subject(opened, model.attention(text), opened.title, measures)]
            by_rank = self.sort is not None or how is not None
            start = Start(*order[0]) if by_rank else opening(measures)
            measured = f"{found.measured} · {RULE}"
            self.write_text(build_page(subjects, start, opened.title, measured=measured))
