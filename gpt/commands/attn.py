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
    default_file,
    note_on_counting,
    open_in_browser,
    refuse_if,
    require_passed,
)
from gpt.config import AttnConfig, DrawnStage, View
from gpt.config.fields import Count, option
from gpt.config.model import HEAD_STAGES

if TYPE_CHECKING:
    from gpt.heads.attention_map import AttentionMap, Form
    from gpt.interface.trained import TrainedGPT

OURS = b"gptx</title>"
Digits = Annotated[int, Meta(ge=0, le=9)]


@dataclass(frozen=True, kw_only=True)
class AttnOptions(AttnConfig):
    """Which part of the computation to show."""

    layer: Annotated[
        str | None,
        option(
            "A number, or all.",
            "that of the head that adds most to what is likeliest next",
        ),
    ] = None
    head: Annotated[
        str | None,
        option("A number, all or mean.", "the one that adds most to what is likeliest next"),
    ] = None
    stage: Annotated[DrawnStage, option("Which stage of the computation to show.")] = "weights"
    query: Annotated[str | None, option("Rows A:B, or one.", "all")] = None
    key: Annotated[str | None, option("Columns A:B, or one.", "all")] = None


@dataclass(frozen=True, kw_only=True)
class AttnOutput(DrawingOptions):
    """How to show it."""

    view: Annotated[View, option("heads: all heads, drawn small.")] = "auto"
    top: Annotated[Count, option("Keys in a line of --view top.")] = 3
    digits: Annotated[Digits, option("Digits after the point.")] = 2
    all: Annotated[bool, option("Name every check of the numbers, with its error.")] = False
    format: Annotated[
        Literal["text", "json", "csv", "npz", "html", "svg", "png", "pdf"] | None,
        option("What to write.", "by the ending of -o, else text"),
    ] = None
    output: Annotated[Path | None, option("A file.")] = None
    open: Annotated[bool, option("Write the HTML page and open it in the browser.")] = False


def command(
    source: TextOptions, asked: AttnOptions, output: AttnOutput, reading: DeviceOptions
) -> None:
    """Show what attention heads do with a text: every stage, every number checked.

    The heads are those of the GPT alone; counting has none.
    """
    if output.open and output.path is None:
        output = replace(output, output=default_file("attention.html", OURS, "--open"))
    form = _form(asked, output)
    given = source.given(reading.encoding)
    model = reading.open()
    model = model.on(reading.device_for(model.config.block_size, model))
    text = reading.text_for(model, given, asked.truncate)
    attention = model.attn(text, unknown=reading.unknown, truncate=asked.truncate)
    if form == "html":
        output.write_text(_page(model, attention, asked, given is None))
    else:
        _write(attention, asked, output, form)
    if form == "text":
        note_on_counting(model)
    if output.open and output.path:
        open_in_browser(output.path)
    checks = attention.checks_of(asked.stage)
    require_passed(check.name for check in checks if not check.passed)


def _form(asked: AttnOptions, output: AttnOutput) -> Form:
    """The format to write. Raises ConfigError for options that contradict each other."""
    from gpt.heads.attention_map import Form

    other = output.json and output.format not in (None, "json")
    refuse_if(other, f"--json and --format {output.format}: give one of them")
    form: Form = output.format or output.form(get_args(Form), "; choose one, or name the `format`")
    refuse_if(output.open and form != "html", f"--open: opens the HTML page, not {form}")
    refuse_if(
        asked.stage not in HEAD_STAGES and asked.head not in (None, "all"),
        f"--stage {asked.stage}: combines all heads; leave out --head",
    )
    return form


def _write(attention: AttentionMap, asked: AttnOptions, output: AttnOutput, form: Form) -> None:
    """Writes the chosen part of a map; without --layer and --head, the head that matters most."""
    from gpt.heads.attention_map import select
    from gpt.heads.contributions import glance_at

    several = "all" in (asked.layer, asked.head) or output.view == "heads"
    default = "all" if several else "0"
    layer, head = asked.layer or default, asked.head or default
    selection = select(attention, layer, head, asked.stage, asked.query, asked.key)
    glance = None
    if not several and asked.head != "mean" and asked.stage in HEAD_STAGES and form != "npz":
        glance = glance_at(attention, _number(asked.layer), _number(asked.head))
        selection = replace(selection, panels=[(glance.layer, glance.head)])
    if form == "text":
        screen = output.screen(output.all)
        data = selection.draw(screen, output.view, output.digits, output.top, glance).encode()
    else:
        assert attention.model is not None
        data, warnings = selection.to_bytes(form, attention.model.origin, output.ascii)
        for warning in warnings:
            console.say(f"warning: {warning}")
    console.write_bytes(data, output.path)


def _page(model: TrainedGPT, attention: AttentionMap, asked: AttnOptions, is_example: bool) -> str:
    """The page, opened at this text and head; for an example, at the page's own."""
    from gpt.heads.attention_map import select
    from gpt.heads.contributions import glance_at
    from gpt.page.live import live_page

    layer, head = _number(asked.layer), _number(asked.head)
    if is_example and layer is None and head is None:
        return live_page(model)
    select(attention, asked.layer or "all", asked.head or "all")  # checks the options
    glance = glance_at(attention, layer, head)
    return live_page(model, attention.text, glance.layer, glance.head)


def _number(name: str | None) -> int | None:
    """The number of a layer or a head; None if it is not one."""
    return int(name) if name and name.isdecimal() else None
