"""`gptx attn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gpt import console
from gpt.commands.common import open_run, origin, text_or_example
from gpt.commands.options import Checkpoints, ConfigFile, RunName, Step, Unknown
from gpt.config import Scale, Stage, View
from gpt.errors import NumericsError


def attn(
    text: Annotated[
        str | None,
        typer.Argument(help="What to look at; - reads stdin.", show_default="from validation"),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File with the text.")] = None,
    run: RunName = None,
    step: Step = "best",
    layer: Annotated[str | None, typer.Option(help="A number, or all.", show_default="0")] = None,
    head: Annotated[
        str | None, typer.Option(help="A number, all, or mean.", show_default="0")
    ] = None,
    stage: Annotated[Stage, typer.Option(help="Which part of the computation.")] = "weights",
    query: Annotated[str | None, typer.Option(help="Rows A:B, or one.", show_default="all")] = None,
    key: Annotated[
        str | None, typer.Option(help="Columns A:B, or one.", show_default="all")
    ] = None,
    view: Annotated[View, typer.Option(help="heads: all of them, small.")] = "auto",
    top: Annotated[int, typer.Option(help="Keys in a line of --view top.", min=1)] = 3,
    precision: Annotated[int, typer.Option(help="Digits.", min=0, max=9)] = 2,
    scale: Annotated[Scale, typer.Option(help="row: each row's largest is full.")] = "fixed",
    format: Annotated[
        Literal["text", "json", "csv", "npz"] | None,
        typer.Option(help="What to write.", show_default="by the ending of -o, else text"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file.")] = None,
    window: Annotated[
        Literal["error", "last"], typer.Option(help="For a text longer than the context.")
    ] = "error",
    unknown: Unknown = "error",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Labels in ASCII.")] = False,
    color: Annotated[Literal["auto", "always", "never"], typer.Option(help="Colours.")] = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    config: ConfigFile = None,
) -> None:
    """Show what attention heads do with a text: every stage, every number checked."""
    from gpt.view import exports
    from gpt.view.attention import render
    from gpt.view.lines import Page
    from gpt.view.selection import select

    form = format or exports.form_of(output)
    model = open_run(checkpoints, run, step)
    chosen = text_or_example(model, {"TEXT": text, "--file": file})
    attention = model.attention(chosen, unknown=unknown, window=window)
    default = "all" if view == "heads" else "0"
    selection = select(attention, layer or default, head or default, stage, query, key)
    if form == "text":
        page = Page(
            width=None if output else console.page_width(),
            ascii_only=ascii_only or not (output or console.speaks_utf8()),
            precision=precision,
            scale=scale,
            top=top,
        )
        lines = render(attention, selection, view, page)
        console.deliver_lines(lines, output, color)
    elif form == "npz":
        console.deliver(exports.to_npz(attention), output)
    else:
        written = (
            exports.to_csv(attention, selection)
            if form == "csv"
            else exports.to_json(attention, selection, origin(model)) + "\n"
        )
        console.deliver(written.encode(), output)
    failed = [check.name for check in attention.checks if not check.passed]
    if failed:
        raise NumericsError(f"a check failed: {', '.join(failed)}; do not trust these numbers")
