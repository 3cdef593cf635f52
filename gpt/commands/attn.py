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
    from gpt.view.exports import Form

OURS = b"gptx</title>"
#: Options that have no effect on these formats, which contain everything.
IGNORED_OPTIONS = {"npz": ("layer", "head", "query", "key"), "html": ("query", "key")}
Digits = Annotated[int, Meta(ge=0, le=9)]


@dataclass(frozen=True, kw_only=True)
class AttnOptions(AttnConfig):
    """Which part of the computation to show."""

    layer: Annotated[
        str | None,
        option(
            "A number, or all.",
            "of the head nearest to a named kind; all with --head all; 0 with mean",
        ),
    ] = None
    head: Annotated[
        str | None,
        option("A number, all or mean.", "the one nearest to a named kind"),
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

    def chosen_form(self) -> Form:
        """The format that the options choose. Raises ConfigError."""
        from gpt.view.exports import Form

        other = self.json and self.format not in (None, "json")
        refuse_if(other, f"--json and --format {self.format}: give one of them")
        return self.format or self.form(get_args(Form), "; choose one, or name the `format`")


def command(
    source: TextOptions, asked: AttnOptions, output: AttnOutput, reading: DeviceOptions
) -> None:
    """Show what attention heads do with a text: every stage, every number checked.

    The heads are those of the GPT alone; counting has none.
    """
    from gpt.heads.measures import choose_head
    from gpt.view.exports import require_memory_for
    from gpt.view.selection import select

    if output.open and output.path is None:
        output = replace(output, output=default_file("attention.html", OURS, "--open"))
    form = output.chosen_form()
    _check(asked, output, form)
    given = source.given(reading.encoding)
    model = reading.open()
    model = model.on(reading.device_for(model.config.block_size, model))
    text = reading.text_for(model, given, asked.truncate)
    attention = model.attn(text, unknown=reading.unknown, truncate=asked.truncate)
    every = "all" in (asked.layer, asked.head) or output.view == "heads" or form == "html"
    default = "all" if every else "0"
    layer, head = asked.layer or default, asked.head or default
    selection = select(attention, layer, head, asked.stage, asked.query, asked.key)
    if _chooses_head(asked, output.view, form):
        measures = model.measures(attention)
        start = choose_head(measures, _number(asked.layer), _number(asked.head), asked.stage)
        why = start.why and f"{start.why}; --layer and --head choose another"
        selection = replace(selection, layers=(start.layer,), heads=(start.head,), why=why)
    require_memory_for(selection, form)
    if form == "text":
        from gpt.view.terminal.attention import render

        page = output.page(precision=output.digits, top=output.top, checks=output.all)
        output.write_lines(render(selection, output.view, page))
        note_on_counting(model)
    else:
        from gpt.view.notebook.saving import file_of

        content, warnings = file_of(selection, form, model.origin, output.ascii)
        for warning in warnings:
            console.say(f"warning: {warning}")
        if isinstance(content, str):
            output.write_text(content)
        else:
            console.write_bytes(content, output.path)
    if output.open and output.path:
        open_in_browser(output.path)
    checks = attention.checks_of(asked.stage)
    require_passed(check.name for check in checks if not check.passed)


def _chooses_head(asked: AttnOptions, view: View, form: Form) -> bool:
    """Whether gptx chooses the head to show first, because the user has not named one."""
    if form in ("npz", "html") or asked.head == "mean" or None not in (asked.layer, asked.head):
        return False
    several = view == "heads" or "all" in (asked.layer, asked.head)
    return not several and asked.stage in HEAD_STAGES


def _number(name: str | None) -> int | None:
    """The number of a layer or a head; None for "all"."""
    return int(name) if name and name.isdecimal() else None


def _check(asked: AttnOptions, output: AttnOutput, form: Form) -> None:
    """Raises ConfigError for options that contradict each other; notes unused ones."""
    stage, view = asked.stage, output.view
    refuse_if(output.open and form != "html", f"--open: opens the HTML page, not {form}")
    refuse_if(
        stage not in HEAD_STAGES and asked.head not in (None, "all"),
        f"--stage {stage}: combines all heads; leave out --head",
    )
    unused = [f"--{name}" for name in IGNORED_OPTIONS.get(form, ()) if getattr(asked, name)]
    if unused:
        console.say(f"note: {form} ignores {', '.join(unused)}: it has all rows, columns and heads")
    if view in ("numbers", "heat", "top") and form != "text":
        console.say(f"note: --view {view} only affects text output, not {form}")
