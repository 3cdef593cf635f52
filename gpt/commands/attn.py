"""`gptx attn`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from msgspec import Meta

from gpt.commands import console
from gpt.commands.options import (
    DeviceOptions,
    DrawingOptions,
    TextOptions,
    default_page_path,
    note_on_counting,
    open_in_browser,
    refuse_if,
    require_passed_checks,
)
from gpt.config import DrawnStage
from gpt.config.fields import Count, option
from gpt.config.model import HEAD_STAGES, Truncate

if TYPE_CHECKING:
    from gpt.heads.attention_map import AttentionMap, Form

View = Literal["auto", "numbers", "heat", "top", "heads"]
LIKELIEST = "that of the head that adds most to the likeliest next character"


@dataclass(frozen=True, kw_only=True)
class AttnOptions(DrawingOptions):
    layer: Annotated[str | None, option("A number, or all.", LIKELIEST)] = None
    head: Annotated[str | None, option("A number, all or mean.", LIKELIEST)] = None
    stage: Annotated[DrawnStage, option("Which stage of the computation to show.")] = "weights"
    query: Annotated[str | None, option("Rows A:B, or one row.", "all")] = None
    key: Annotated[str | None, option("Columns A:B, or one column.", "all")] = None
    view: Annotated[View, option("How to draw weights; heads: a small picture of every head.")] = (
        "auto"
    )
    top: Annotated[Count, option("Number of keys per row in --view top.")] = 3
    digits: Annotated[int, Meta(ge=0, le=9), option("Digits after the point.")] = 2
    all: Annotated[bool, option("Show every check of the numbers with its error.")] = False
    format: Annotated[
        Literal["text", "json", "csv", "npz", "html", "svg", "png", "pdf"] | None,
        option("What to write.", "by the ending of -o, else text"),
    ] = None
    output: Annotated[Path | None, option("The file to write.")] = None
    open: Annotated[bool, option("Write the HTML page and open it in the browser.")] = False
    truncate: Truncate = False


def command(source: TextOptions, options: AttnOptions, reading: DeviceOptions) -> None:
    """Show what attention heads do with a text, stage by stage, and check every number.

    The heads are those of the GPT alone; counting has none.
    """
    from gpt.heads.attention_map import Form, select_matrices

    if options.open and options.path is None:
        options = replace(options, output=default_page_path("attention.html", "--open"))
    form: Form = options.format or options.output_format(get_args(Form))
    refuse_if(options.json and form != "json", f"--json and --format {form}: give only one")
    refuse_if(options.open and form != "html", f"--open: opens the HTML page, not {form}")
    refuse_if(
        options.stage not in HEAD_STAGES and options.head not in (None, "all"),
        f"--stage {options.stage}: combines all heads; leave out --head",
    )
    typed, model = source.read(reading.encoding), reading.open_on_device()
    text = reading.text_for_model(model, typed, options.truncate)
    attention = model.attn(text, unknown=reading.unknown, truncate=options.truncate)
    if form != "html":
        _write(attention, options, form)
    else:
        from gpt.heads.contributions import head_that_adds_most
        from gpt.page.live import live_page

        layer, head = _number(options.layer), _number(options.head)
        if typed is None and layer is None and head is None:  # the page shows its own example
            page = live_page(model)
        else:
            select_matrices(
                attention, options.layer or "all", options.head or "all"
            )  # checks the options
            summary = head_that_adds_most(attention, layer, head)
            page = live_page(model, attention.text, summary.layer, summary.head)
        console.write(page, options.path)
    if form == "text":
        note_on_counting(model)
    if options.open and options.path:
        open_in_browser(options.path)
    require_passed_checks(attention.list_checks(options.stage))


def _write(attention: AttentionMap, options: AttnOptions, form: Form) -> None:
    """Writes the part of an attention map that the options select. Without --layer and --head, this
    is the head that adds most to the likeliest next character.
    """
    from gpt.heads.attention_map import select_matrices
    from gpt.heads.contributions import head_that_adds_most

    has_several = "all" in (options.layer, options.head) or options.view == "heads"
    default = "all" if has_several else "0"
    layer, head = options.layer or default, options.head or default
    selection = select_matrices(
        attention, layer, head, options.stage, query=options.query, key=options.key
    )
    summary = None
    if (
        not has_several
        and options.head != "mean"
        and options.stage in HEAD_STAGES
        and form != "npz"
    ):
        summary = head_that_adds_most(attention, _number(options.layer), _number(options.head))
        selection = replace(selection, panels=[(summary.layer, summary.head)])
    if form == "text":
        screen = options.screen(options.all)
        data = selection.draw(
            screen, options.view, digits=options.digits, top=options.top, summary=summary
        ).encode()
    else:
        data = selection.to_bytes(form, attention.model.origin, options.ascii)
    console.write_bytes(data, options.path)


def _number(name: str | None) -> int | None:
    """The number of a layer or a head; None if the name is None, "all" or "mean"."""
    return int(name) if name and name.isdecimal() else None
