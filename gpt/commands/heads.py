"""`gptx heads`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gpt.commands import console, shared
from gpt.errors import ConfigError, TextError

PAGE_TEXT = 64  # characters of the measured text that the page shows


def heads(
    file: Annotated[
        str | None,
        typer.Argument(help="Text to measure on; - reads stdin.", show_default="validation split"),
    ] = None,
    run: shared.RunName = None,
    step: shared.Step = "best",
    ablate: Annotated[
        Literal["no", "mean", "zero"],
        typer.Option(help="How much worse it gets with a head's mean output, or with none."),
    ] = "no",
    windows: Annotated[int, typer.Option(help="Most pieces of text to measure on.", min=1)] = 32,
    sort: Annotated[
        str | None,
        typer.Option(
            help="By a measure, as --json names them: previous, sink_valued, ablation …",
            show_default="ablation, else what stands out",
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Only the first heads.", min=1)] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All measures; the synthetic one for each period, too.")
    ] = False,
    digits: shared.Digits = 2,
    output: Annotated[
        Path | None, shared.output_option("A file: .txt, .json, or .html, a page.")
    ] = None,
    unknown: shared.Unknown = "error",
    ascii_only: shared.Ascii = False,
    color: shared.Color = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    data: shared.Data = Path("data"),
    config: shared.ConfigFile = None,
    as_json: shared.Json = False,
) -> None:
    """Rank every head by what it does, beside a head that looks evenly."""
    from gpt.commands.progress import working
    from gpt.heads.measures import RULE
    from gpt.view.files.exports import form_of
    from gpt.view.page.page import Start, Subject, build_page, opening
    from gpt.view.terminal import heads as view

    opened = shared.open_run(checkpoints, run, step)
    model = opened.model
    if file is not None:
        source = "standard input" if file == "-" else file
        ids = model.vocabulary.encode(shared.known_text(model, console.read_text(file), unknown))
    else:
        source = "the validation split"
        try:
            _, ids = opened.splits(data)
        except TextError as error:
            source = model.excerpt_name
            ids = model.vocabulary.encode(model.stored.excerpt)
            console.say(
                f"note: {error}; measuring on the start of the split, which the model file contains"
            )
    form = "json" if as_json else form_of(output)
    if form not in ("text", "json", "html"):
        raise ConfigError(f"--output: heads are told as text, JSON or a page, not as {form}")
    with working() as done:
        how = None if ablate == "no" else ablate
        found = model.heads(ids, windows=windows, ablation=how, name=source, done=done)
    order = view.ranked(found, sort)[:top]
    answer = console.Output(output, ascii_only, color)
    if form == "text":
        page = answer.page(precision=digits)
        answer.lines([*view.title(found, page), *view.heads_table(found, order, page, every)])
    elif form == "json":
        record = view.heads_record(found, opened.origin)
        answer.json(record | {"ranking": [list(place) for place in order]})
    else:
        text = model.vocabulary.decode(ids[: min(PAGE_TEXT, model.config.block_size)])
        name = opened.title
        measures = sorted(found.measures, key=lambda each: each.name != "ablation")  # that first
        attention, characters = model.attention(text), model.vocabulary.characters
        lens = model.lens(attention)
        subject = Subject(name, attention, lens, characters, measures, opened.origin)
        measured = f"{found.measured} · {RULE}"
        by_rank = sort is not None or ablate != "no"
        start = Start(*order[0]) if by_rank else opening(measures)
        answer.text(build_page([subject], start, name, measured=measured))
