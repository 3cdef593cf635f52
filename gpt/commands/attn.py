"""`gptx attn`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.commands.shared import refuse_if
from gpt.config import AttnConfig, DrawnStage, View
from gpt.config.fields import Range
from gpt.config.model import HEAD_STAGES
from gpt.config.train import OnDevice

if TYPE_CHECKING:
    from gpt.heads.measures import Measure, StartHead
    from gpt.interface.trained import TrainedGPT
    from gpt.view.exports import Form
    from gpt.view.selection import Selection

OURS = b"gptx attention</title>"
#: Options that have no effect on these formats, which contain everything.
IGNORED_OPTIONS = {"npz": ("layer", "head", "query", "key"), "html": ("query", "key")}

#: Bytes of memory for each number of a matrix that an output shows; for npz: for each number of all
#: matrices; for html: for each number of a layer's matrices (benchmarks/LOG.md).
BYTES_PER_NUMBER = {"text": 80, "json": 70, "csv": 90, "npz": 37, "html": 45}
BYTES_PER_NUMBER |= dict.fromkeys(("svg", "png", "pdf"), 130)


class Attn(shared.DrawingCommand):
    """Show what attention heads do with a text: every stage, every number checked.

    The heads are those of the GPT alone; counting has none.
    """

    text: Annotated[
        str | None,
        typer.Argument(help="Text to show; - reads stdin.", show_default="from validation"),
    ] = None
    file: shared.TextFile = None
    layer: Annotated[
        str | None,
        "A number, or all.",
        "of the head nearest to a named kind; all with --head all; 0 with mean",
    ] = None
    head: Annotated[str | None, "A number, all or mean.", "the one nearest to a named kind"] = None
    stage: Annotated[DrawnStage, "Which stage of the computation to show."] = "weights"
    query: Annotated[str | None, "Rows A:B, or one.", "all"] = None
    key: Annotated[str | None, "Columns A:B, or one.", "all"] = None
    view: Annotated[View, "heads: all heads, drawn small."] = "auto"
    top: Annotated[int, "Keys in a line of --view top.", Range(1)] = 3
    digits: Annotated[int, "Digits after the point.", Range(0, 9)] = 2
    checks: Annotated[bool, "Name every check of the numbers, with its error."] = False
    format: Annotated[
        Literal["text", "json", "csv", "npz", "html", "svg", "png", "pdf"] | None,
        "What to write.",
        "by the ending of -o, else text",
    ] = None
    output: Annotated[Path | None, shared.output_option("A file.")] = None
    show: Annotated[
        bool, typer.Option("--open", help="Write the HTML page and open it in the browser.")
    ] = False
    given: Annotated[dict[str, Any], options_of(AttnConfig)]
    device: OnDevice = "auto"

    def execute(self) -> None:
        from gpt.view.exports import Form
        from gpt.view.selection import select

        if self.show and self.output is None:
            self.output = shared.default_file("attention.html", OURS, "--open")
        other_form = self.as_json and self.format not in (None, "json")
        refuse_if((other_form, f"--json and --format {self.format}: give one of them"))
        form = self.format or self.form(get_args(Form), "; choose one, or name the `format`")
        self._check_options(form)
        given = shared.one_text({"TEXT": self.text, "--file": self.file}, self.encoding)
        text = self.text_for(self.opened, given, self.given.get("truncate", False))
        attention = self.opened.attn(text, unknown=self.unknown, **self.given)
        default = "all" if "all" in (self.layer, self.head) or self.view == "heads" else "0"
        selection = select(
            attention, self.layer or default, self.head or default, self.stage, self.query, self.key
        )
        start, measures = self._opening(selection, form)
        if measures is not None and form != "html":
            why = start.why and f"{start.why}; --layer and --head choose another"
            selection = replace(selection, layers=(start.layer,), heads=(start.head,), why=why)
        self._write(selection, form, start, measures)
        if self.show and self.output:
            shared.open_in_browser(self.output)
        checks = attention.checks_of(self.stage)
        shared.require_passed(check.name for check in checks if not check.passed)

    def _opening(
        self, selection: Selection, form: Form
    ) -> tuple[StartHead, Sequence[Measure] | None]:
        """What to show first; if the user gives no layer or no head, the head that `choose_head`
        returns, and the measures that chose it.
        """
        from gpt.heads.measures import StartHead, choose_head

        given, stage = (self.layer, self.head), self.stage
        several = self.view == "heads" or "all" in given or stage not in HEAD_STAGES
        named = self.head == "mean" or None not in given
        if named or form == "npz" or (several and form != "html"):
            return StartHead(selection.layers[0], selection.heads[0], stage), None  # type: ignore[arg-type]
        measures = self.opened.measures(selection.attention)
        layer, head = (int(number) if number and number.isdecimal() else None for number in given)
        return choose_head(measures, layer, head, stage), measures

    def _check_options(self, form: Form) -> None:
        """Raises ConfigError for options that contradict each other; notes unused ones."""
        stage, head = self.stage, self.head
        refuse_if(
            (self.show and form != "html", f"--open: opens the HTML page, not {form}"),
            (
                stage not in HEAD_STAGES and head not in (None, "all"),
                f"--stage {stage}: combines all heads; leave out --head",
            ),
        )
        unused = ", ".join(
            f"--{name}" for name in IGNORED_OPTIONS.get(form, ()) if getattr(self, name)
        )
        if unused:
            console.say(f"note: {form} ignores {unused}: it has all rows, columns and heads")
        if self.view in ("numbers", "heat", "top") and form != "text":
            console.say(f"note: --view {self.view} only affects text output, not {form}")

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint, on its device."""
        opened = self.open(self.run, self.step)
        return self.on_device(opened, opened.config.block_size)

    def _write(
        self,
        selection: Selection,
        form: Form,
        start: StartHead,
        measures: Sequence[Measure] | None,
    ) -> None:
        """Writes the output. Raises OutOfMemory, StorageError."""
        from gpt.devices import require_memory
        from gpt.view import exports

        attention = selection.attention
        every = sum(layer.weights.size for layer in attention.layers)
        shown = (
            len(selection.layers)
            * len(selection.heads)
            * len(selection.queries)
            * len(selection.keys)
        )
        numbers = {"npz": every, "html": every / len(attention.layers)}.get(form, shown)
        need, longest = numbers * BYTES_PER_NUMBER[form], len(attention.text)
        require_memory("writing", longest, lambda n: need * (n / longest) ** 2)
        if form == "text":
            from gpt.view.terminal.attention import render

            page = self.page(precision=self.digits, top=self.top, checks=self.checks)
            self.write_lines(render(selection, self.view, page))
            shared.note_on_counting(self.opened)
        elif form == "npz":
            console.write_bytes(exports.to_npz(attention), self.output)
        elif form == "csv":
            self.write_text(exports.to_csv(selection))
        elif form == "html":
            from gpt.view.page.page import build_page, make_subject

            self.write_text(build_page(make_subject(attention, measures), start))
        elif form == "json":
            record = exports.selection_record(selection, self.opened.origin)
            self.write_text(exports.to_json(record))
        else:
            from gpt.view.figure.figure import draw
            from gpt.view.figure.sheet import to_bytes

            figure, warnings = draw(selection, self.ascii_only)
            for warning in warnings:
                console.say(f"warning: {warning}")
            console.write_bytes(to_bytes(figure, form), self.output)
