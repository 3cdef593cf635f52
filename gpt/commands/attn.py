"""`gptx attn`."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpt.commands import console, shared
from gpt.config.show import Drawing, Scale, Stage, View
from gpt.errors import ConfigError, NumericsError

if TYPE_CHECKING:
    from rich.text import Text

    from gpt.loading import Saved
    from gpt.view.files.exports import Figure
    from gpt.view.page.page import Subject
    from gpt.view.selection import Selection
    from gpt.view.terminal.lines import Page


#: Options that have no effect for these formats, which contain everything.
_NOT_FOR = {"npz": ("--layer", "--head", "--query", "--key"), "html": ("--query", "--key")}


def attn(
    text: Annotated[
        str | None,
        typer.Argument(help="What to look at; - reads stdin.", show_default="from validation"),
    ] = None,
    file: shared.TextFile = None,
    run: shared.RunName = None,
    step: Annotated[
        str, typer.Option(help="best, last, a kept step's number; A:B compares two.")
    ] = "best",
    diff: Annotated[
        str | None,
        typer.Option(help="Compare with this run or model file.", show_default=False),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="A number, or all.", show_default="0; all with heads, html")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="A number, all, mean or rollout.",
            show_default="0; html: the one nearest to a named kind",
        ),
    ] = None,
    stage: Annotated[Stage, typer.Option(help="Which part of the computation.")] = "weights",
    query: Annotated[str | None, typer.Option(help="Rows A:B, or one.", show_default="all")] = None,
    key: Annotated[
        str | None, typer.Option(help="Columns A:B, or one.", show_default="all")
    ] = None,
    view: Annotated[View, typer.Option(help="heads: all of them, small.")] = "auto",
    top: Annotated[int, typer.Option(help="Keys in a line of --view top.", min=1)] = 3,
    digits: shared.Digits = 2,
    scale: Annotated[Scale, typer.Option(help="row: each row's largest is full.")] = "fixed",
    format: Annotated[
        Literal["text", "json", "csv", "npz", "html", "svg", "png", "pdf"] | None,
        typer.Option(
            help="What to write.",
            metavar="[text|csv|npz|html|svg|png|pdf]",  # json, too; --json is its documented name
            show_default="by the ending of -o, else text",
        ),
    ] = None,
    output: Annotated[Path | None, shared.output_option("A file.")] = None,
    show: Annotated[
        bool, typer.Option("--open", help="Write the HTML page and open it in the browser.")
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Of a text longer than the context, use the end.")
    ] = False,
    unknown: shared.Unknown = "error",
    ascii_only: shared.Ascii = False,
    color: shared.Color = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    config: shared.ConfigFile = None,
    as_json: shared.Json = False,
) -> None:
    """Show what attention heads do with a text: every stage, every number checked."""
    from gpt.view.files import exports
    from gpt.view.selection import select

    if show and output is None:
        output = _own_page()
    if as_json and format not in (None, "json"):
        raise ConfigError(f"--json and --format {format}: give one of them")
    form = "json" if as_json else format or exports.form_of(output)
    if show and form != "html":
        raise ConfigError(f"--open: opens the HTML page, not {form}")
    _refuse_what_would_be_ignored(view, form, layer, head, stage, key)
    _say_what_is_ignored(
        view, form, {"--layer": layer, "--head": head, "--query": query, "--key": key}
    )
    opened = _opened(checkpoints, run, diff, step)
    first = opened[0].model
    chosen = shared.text_or_example(first, {"TEXT": text, "--file": file})
    if unknown == "skip":
        chosen = shared.known_text(first, chosen, unknown)
    drawing: Drawing | Literal["lens"] = "auto" if view == "rollout" else view
    if "rollout" in (view, head):
        head, layer = "rollout", layer or str(first.config.n_layer - 1)
    default = "all" if view == "heads" else "0"
    looks = []
    for name, each in zip(_names(opened), opened, strict=True):
        attention = each.model.attention(chosen, unknown=unknown, truncate=truncate)
        places = (layer or default, head or default, stage, query, key)
        looks.append(select(attention, *places, name))
    if form == "text":
        answer = console.Output(output, ascii_only, color)
        page = answer.page(precision=digits, scale=scale, top=top)
        answer.lines(_lines(opened, looks, drawing, page))
    else:
        asked = (layer, head)
        console.deliver(_written(opened, looks, form, asked, view, scale, ascii_only), output)
    if show and output:
        shown = webbrowser.open(output.resolve().as_uri())
        console.say(f"page: {output}" + ("" if shown else " (no browser found to open it)"))
    failed = {check.name for look in looks for check in look.attention.checks if not check.passed}
    if failed:
        raise NumericsError(
            f"a check failed: {', '.join(sorted(failed))}; do not trust these numbers"
        )


def _own_page() -> Path:
    """Where --open writes without -o: over nothing but a page of ours. Raises ConfigError."""
    page = Path("attention.html")
    ours = b"gptx attention</title>"
    if os.path.lexists(page) and not (os.path.isfile(page) and ours in page.read_bytes()[:4096]):
        raise ConfigError(f"--open: {page} is there and not from gptx; name another file with -o")
    return page


def _refuse_what_would_be_ignored(
    view: View, form: str, layer: str | None, head: str | None, stage: Stage, key: str | None
) -> None:
    """Raises ConfigError for options that contradict each other."""
    from gpt.heads.attention_map import LAYER_STAGES

    if view == "rollout" and head not in (None, "rollout"):
        raise ConfigError("--view rollout: is of all heads together; leave out --head")
    if stage in LAYER_STAGES and head not in (None, "all"):
        raise ConfigError(f"--stage {stage}: is of all heads together; leave out --head")
    if view == "lens" and form not in ("text", "json", "html"):
        raise ConfigError(f"--view lens: goes into text, json and html, not into {form}")
    narrowed = any((layer, head, key)) or stage != "weights"
    if view == "lens" and form == "text" and narrowed:
        raise ConfigError(
            "--view lens: shows every layer, and no head; leave out --layer, --head, --stage, --key"
        )


def _say_what_is_ignored(view: View, form: str, given: dict[str, str | None]) -> None:
    """Notes options that have no effect on the format."""
    without = [option for option in _NOT_FOR.get(form, ()) if given[option]]
    if without:
        console.say(f"note: {form} has all rows, columns and heads, whatever {without[0]} says")
    if view in ("numbers", "heat", "top") and form != "text":
        console.say(f"note: --view {view} is how a terminal shows it; {form} knows no such thing")


def _opened(checkpoints: Path, run: str | None, diff: str | None, step: str) -> list[Saved]:
    """One checkpoint, or the two to compare."""
    first, colon, second = step.partition(":")
    if not colon and diff is None:
        return [shared.open_run(checkpoints, run, step)]
    first = first or "best"
    opened = [shared.open_run(checkpoints, run, first)]
    against = diff or run or opened[0].name  # the newest run may have changed since
    opened.append(shared.open_run(checkpoints, against, (second or "best") if colon else first))
    one, other = (each.stored for each in opened)
    if one.source.resolve() == other.source.resolve():
        option = "--step" if diff is None else "--diff"
        raise ConfigError(f"{option}: both are step {one.step:,} of the same run")
    return opened


def _names(opened: list[Saved]) -> list[str]:
    """A name for each checkpoint: its step if all are of one run, else run and step."""
    if len({each.name for each in opened}) == 1 < len(opened):
        return [f"step {each.stored.step:,}" for each in opened]
    return [each.title for each in opened]


def _lines(
    opened: list[Saved], looks: list[Selection], view: Drawing | Literal["lens"], page: Page
) -> list[Text]:
    """What the terminal shows."""
    from rich.text import Text

    from gpt.view.terminal.attention import compare, render
    from gpt.view.terminal.next_character import lens_lines

    if view == "lens":
        lines = []
        for each, look in zip(opened, looks, strict=True):
            lens, characters = each.model.lens(look.attention), each.model.vocabulary.characters
            lines += [Text(look.name)] if len(looks) > 1 else []
            lines += lens_lines(look, lens, characters, page)
        return lines
    if len(looks) > 1:
        return compare(looks, view, page)
    return render(looks[0], view, page)


def _written(
    opened: list[Saved],
    looks: list[Selection],
    form: Literal["json", "csv", "npz", "html"] | Figure,
    asked: tuple[str | None, str | None],
    view: View,
    scale: Scale,
    ascii_only: bool,
) -> bytes:
    """What a file gets. Raises ConfigError where two checkpoints do not go into the form."""
    from gpt.view.files import exports
    from gpt.view.terminal.next_character import lens_record

    if form == "npz":
        return exports.to_npz([look.attention for look in looks])
    if form == "csv":
        return exports.to_csv(looks).encode()
    if form == "html":
        return _page(opened, looks, *asked).encode()
    if form == "json":
        records = []
        for each, look in zip(opened, looks, strict=True):
            records.append(exports.record(look, each.origin))
            if view == "lens":
                lens = each.model.lens(look.attention)
                records[-1]["lens"] = lens_record(lens, each.model.vocabulary.characters)
        return exports.to_json(records).encode()
    return _figure(looks, form, scale, ascii_only)


def _page(opened: list[Saved], looks: list[Selection], layer: str | None, head: str | None) -> str:
    """layer and head: as the user gave them; without them, `opening` chooses."""
    from gpt.view.page.page import Start, Subject, build_page, opening

    subjects = []
    for each, look in zip(opened, looks, strict=True):
        model, attention = each.model, look.attention
        found = (attention, model.lens(attention), model.vocabulary.characters)
        subjects.append(Subject(look.name, *found, model.measures(attention), each.origin))
    chosen = looks[0]
    first = chosen.heads[0]
    if first == "mean" or first == "rollout":
        start = Start(chosen.layers[0], first, chosen.stage)
    else:
        # Of two models, the one with fewer heads, as both need the head; if equal, the second.
        fewest = min(reversed(subjects), key=_count_heads)
        wanted = [int(each) if each and each.isdecimal() else None for each in (layer, head)]
        start = opening(fewest.measures, wanted[0], wanted[1], chosen.stage)
        if start.why and len(subjects) > 1:
            start = replace(start, why=f"in {fewest.name}, {start.why}")
    title = " and ".join(look.name for look in looks)
    run = opened[0].name
    return build_page(subjects, start, title if title.startswith(run) else f"{run} {title}")


def _count_heads(subject: Subject) -> int:
    return sum(len(layer.weights) for layer in subject.attention.layers)


def _figure(looks: list[Selection], form: Figure, scale: Scale, ascii_only: bool) -> bytes:
    from gpt.view.figure.figure import to_figure

    if len(looks) > 1:
        raise ConfigError(f"--format: {form} shows one checkpoint; compare with html, text or json")
    drawn, warnings = to_figure(looks[0], form, scale, ascii_only)
    for warning in warnings:
        console.say(f"warning: {warning}")
    return drawn
