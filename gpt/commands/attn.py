"""`gptx attn`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from msgspec import Meta

from gpt.commands import console
from gpt.commands.shared import (
    DeviceOptions,
    DrawingOptions,
    TextOptions,
    default_page,
    note_on_counting,
    open_in_browser,
    refuse_if,
    require_passed,
)
from gpt.config import AttnConfig, DrawnStage
from gpt.config.fields import Count, option
from gpt.config.model import HEAD_STAGES

if TYPE_CHECKING:
    from gpt.heads.attention_map import AttentionMap, Form

View = Literal["auto", "numbers", "heat", "top", "heads"]
LIKELIEST = "of the head that adds most to what is likeliest next"


@dataclass(frozen=True, kw_only=True)
class AttnOptions(AttnConfig, DrawingOptions):
    """Which part of the computation to show, and how."""

    layer: Annotated[str | None, option("A number, or all.", LIKELIEST)] = None
    head: Annotated[str | None, option("A number, all or mean.", LIKELIEST)] = None
    stage: Annotated[DrawnStage, option("Which stage of the computation to show.")] = "weights"
    query: Annotated[str | None, option("Rows A:B, or one.", "all")] = None
    key: Annotated[str | None, option("Columns A:B, or one.", "all")] = None
    view: Annotated[View, option("heads: all heads, drawn small.")] = "auto"
    top: Annotated[Count, option("Keys in a line of --view top.")] = 3
    digits: Annotated[int, Meta(ge=0, le=9), option("Digits after the point.")] = 2
    all: Annotated[bool, option("Name every check of the numbers, with its error.")] = False
    format: Annotated[
        Literal["text", "json", "csv", "npz", "html", "svg", "png", "pdf"] | None,
        option("What to write.", "by the ending of -o, else text"),
    ] = None
    output: Annotated[Path | None, option("A file.")] = None
    open: Annotated[bool, option("Write the HTML page and open it in the browser.")] = False


def command(source: TextOptions, asked: AttnOptions, reading: DeviceOptions) -> None:
    """Show what attention heads do with a text: every stage, every number checked.

    The heads are those of the GPT alone; counting has none.
    """
    from gpt.heads.attention_map import Form, select_matrices

    if asked.open and asked.path is None:
        asked = replace(asked, output=default_page("attention.html", "--open"))
    form: Form = asked.format or asked.form(get_args(Form))
    refuse_if(asked.json and form != "json", f"--json and --format {form}: give one of them")
    refuse_if(asked.open and form != "html", f"--open: opens the HTML page, not {form}")
    refuse_if(
        asked.stage not in HEAD_STAGES and asked.head not in (None, "all"),
        f"--stage {asked.stage}: combines all heads; leave out --head",
    )
    typed, model = source.read(reading.encoding), reading.open_on_device()
    text = reading.text_for(model, typed, asked.truncate)
    attention = model.attn(text, unknown=reading.unknown, truncate=asked.truncate)
    if form != "html":
        _write(attention, asked, form)
    else:
        from gpt.heads.contributions import head_that_adds_most
        from gpt.page.live import live_page

        layer, head = _number(asked.layer), _number(asked.head)
        if typed is None and layer is None and head is None:  # an example: the page's own
            page = live_page(model)
        else:
            select_matrices(
                attention, asked.layer or "all", asked.head or "all"
            )  # checks the options
            summary = head_that_adds_most(attention, layer, head)
            page = live_page(model, attention.text, summary.layer, summary.head)
        console.write(page, asked.path)
    if form == "text":
        note_on_counting(model)
    if asked.open and asked.path:
        open_in_browser(asked.path)
    require_passed(attention.list_checks(asked.stage))


def _write(attention: AttentionMap, asked: AttnOptions, form: Form) -> None:
    """Writes the chosen part of a map; without --layer and --head, the head that matters most."""
    from gpt.heads.attention_map import select_matrices
    from gpt.heads.contributions import head_that_adds_most

    is_several = "all" in (asked.layer, asked.head) or asked.view == "heads"
    default = "all" if is_several else "0"
    layer, head = asked.layer or default, asked.head or default
    selection = select_matrices(
        attention, layer, head, asked.stage, query=asked.query, key=asked.key
    )
    summary = None
    if not is_several and asked.head != "mean" and asked.stage in HEAD_STAGES and form != "npz":
        summary = head_that_adds_most(attention, _number(asked.layer), _number(asked.head))
        selection = replace(selection, panels=[(summary.layer, summary.head)])
    if form == "text":
        screen = asked.screen(asked.all)
        drawn = selection.draw(
            screen, asked.view, digits=asked.digits, top=asked.top, summary=summary
        )
        data = drawn.encode()
    else:
        data = selection.to_bytes(form, attention.model.origin, asked.ascii)
    console.write_bytes(data, asked.path)


def _number(name: str | None) -> int | None:
    """The number of a layer or a head; None if it is not one."""
    return int(name) if name and name.isdecimal() else None
