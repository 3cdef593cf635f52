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
from gpt.config import AttnConfig, DrawnStage, Scale, View
from gpt.config.fields import Range
from gpt.config.model import HEAD_STAGES
from gpt.config.train import OnDevice
from gpt.errors import ConfigError, TextError

if TYPE_CHECKING:
    from rich.text import Text

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
    """Show what attention heads do with a text: every stage, every number checked."""

    text: Annotated[
        str | None,
        typer.Argument(help="Text to show; - reads stdin.", show_default="from validation"),
    ] = None
    file: shared.TextFile = None
    step: Annotated[
        str, "best, last, a kept step's number; several side by side: 0:200:800, or all."
    ] = "best"
    diff: Annotated[str | None, "Compare with this run or model file."] = None
    layer: Annotated[
        str | None,
        "A number, or all.",
        "of the head nearest to a named kind; all with --head all; 0 with mean",
    ] = None
    head: Annotated[
        str | None, "A number, all, mean or rollout.", "the one nearest to a named kind"
    ] = None
    stage: Annotated[DrawnStage, "Which stage of the computation to show."] = "weights"
    query: Annotated[str | None, "Rows A:B, or one.", "all"] = None
    key: Annotated[str | None, "Columns A:B, or one.", "all"] = None
    view: Annotated[View, "heads: all heads, drawn small."] = "auto"
    top: Annotated[int, "Keys in a line of --view top.", Range(1)] = 3
    digits: shared.Digits = 2
    scale: Annotated[Scale, "row: full colour is each row's largest value."] = "fixed"
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
        if form == "html" and len(self.sides) > 2:
            raise ConfigError(
                f"--format: html compares two checkpoints, not {len(self.sides)}; other formats "
                "compare any number"
            )
        given = shared.one_text({"TEXT": self.text, "--file": self.file})
        text = self.text_for(self.sides[0], given, self.given.get("truncate", False))
        if "rollout" in (self.view, self.head):
            last = str(self.sides[0].config.n_layer - 1)
            self.head, self.layer = "rollout", self.layer or last
        default = "all" if "all" in (self.layer, self.head) or self.view == "heads" else "0"
        chosen = (self.layer or default, self.head or default, self.stage, self.query, self.key)
        selections = []
        for name, each in zip(_names(self.sides), self.sides, strict=True):
            found = each.attn(text, unknown=self.unknown, **self.given)
            selections.append(select(found, *chosen, name))
        start, measured = self._opening(selections, form)
        self._write(selections, form, start, measured)
        if self.show and self.output:
            shared.open_in_browser(self.output)
        checks = [check for selection in selections for check in selection.attention.checks]
        shared.require_passed(check.name for check in checks if not check.passed)

    def _opening(
        self, selections: list[Selection], form: Form
    ) -> tuple[StartHead, dict[int, list[Measure]]]:
        """What to show first; also the measures that chose it, if any, by the checkpoint's
        number.

        If the user gives no layer or no head, selects the head that `choose_head` returns. If there
        are several checkpoints, it chooses in the one with the fewest heads, or in the last of
        these, because all checkpoints must have the head.
        """
        from gpt.heads.measures import StartHead, choose_head

        given, chosen, stage = (self.layer, self.head), selections[0], self.stage
        several = self.view in ("heads", "lens") or "all" in given or stage not in HEAD_STAGES
        named = self.head in ("mean", "rollout") or None not in given
        if named or form == "npz" or (several and form != "html"):
            return StartHead(chosen.layers[0], chosen.heads[0], stage), {}  # type: ignore[arg-type]
        layers = [each.attention.layers for each in selections]
        sizes = [(len(each), len(each[0].q)) for each in layers]
        n = min(reversed(range(len(sizes))), key=lambda n: sizes[n][0] * sizes[n][1])
        measured = self.sides[n].measures(selections[n].attention)
        layer, head = (int(each) if each and each.isdecimal() else None for each in given)
        start = choose_head(measured, layer, head, stage)
        place = start.layer, int(start.head)
        if any(place[0] >= size[0] or place[1] >= size[1] for size in sizes):
            return StartHead(layer or 0, head or 0, stage), {n: measured}
        if start.why and len(sizes) > 1:
            start = replace(start, why=f"in {selections[n].name}, {start.why}")
        if form != "html":
            why = start.why and f"{start.why}; --layer and --head choose another"
            selections[:] = [
                replace(each, layers=place[:1], heads=place[1:], why=why) for each in selections
            ]
        return start, {n: measured}

    def _check_options(self, form: Form) -> None:
        """Raises ConfigError for options that contradict each other; notes unused ones."""
        view, stage, head, lens = self.view, self.stage, self.head, self.view == "lens"
        chosen = any((self.layer, head, self.key)) or stage != "weights"
        of_all = "combines all heads; leave out --head"
        refuse_if(
            (self.show and form != "html", f"--open: opens the HTML page, not {form}"),
            (view == "rollout" and head not in (None, "rollout"), f"--view rollout: {of_all}"),
            (stage not in HEAD_STAGES and head not in (None, "all"), f"--stage {stage}: {of_all}"),
            (lens and form in ("csv", "npz"), f"--view lens: not for {form}; json has its numbers"),
            (
                lens and form not in ("json", "html") and chosen,
                "--view lens: shows all layers and no head; leave out --layer, --head, --stage, "
                "--key",
            ),
        )
        unused = ", ".join(
            f"--{name}" for name in IGNORED_OPTIONS.get(form, ()) if getattr(self, name)
        )
        if unused:
            console.say(f"note: {form} ignores {unused}: it has all rows, columns and heads")
        if view in ("numbers", "heat", "top") and form != "text":
            console.say(f"note: --view {view} only affects text output, not {form}")

    @cached_property
    def sides(self) -> list[TrainedGPT]:
        """One checkpoint, or several to compare, each on its device."""
        chosen = self._chosen()
        windows = sum(each.stored.config.block_size for each in chosen)
        return [self.on_device(each, windows) for each in chosen]

    def _chosen(self) -> list[TrainedGPT]:
        """One checkpoint, or several to compare: steps of one run, or a step of another run."""
        from gpt.storage.runs import run_of, step_numbers

        steps = self.several_steps
        if steps is None and self.diff is None:
            return [self.opened]
        if steps == "all":
            run = run_of(self.open(self.run, "last").stored)
            steps = [str(number) for number in step_numbers(run, "all", "step")]
        steps = steps or [self.step] * 2
        too_many = len(steps) > 2 and self.diff is not None
        refuse_if((too_many, "--diff: compares two checkpoints; give one step, or two as A:B"))
        first = self.open(self.run, steps[0])
        against = self.diff or self.run or first.name  # by now another run may be the newest
        sides = [first, *(self.open(against, step) for step in steps[1:])]
        sources = [each.stored.source.resolve() for each in sides]
        for each, source in zip(sides, sources, strict=True):
            if sources.count(source) > 1:
                option = "--step" if self.diff is None else "--diff"
                step = f"step {each.stored.step:,} of the same run"
                raise ConfigError(f"{option}: gives {step} more than once")
        return sides

    def _write(
        self,
        selections: Sequence[Selection],
        form: Form,
        start: StartHead,
        measured: dict[int, list[Measure]],
    ) -> None:
        """Writes the output. Raises ConfigError if the format cannot show so many checkpoints."""
        from gpt.devices import require_memory
        from gpt.view import exports

        every = sum(layer.weights.size for it in selections for layer in it.attention.layers)
        layers = len(selections[0].attention.layers)
        shown = sum(
            len(it.layers) * len(it.heads) * len(it.queries) * len(it.keys) for it in selections
        )
        numbers = {"npz": every, "html": every / layers}.get(form, shown)
        need, longest = numbers * BYTES_PER_NUMBER.get(form, 0), len(selections[0].attention.text)
        require_memory("writing", longest, lambda n: need * (n / longest) ** 2)
        if form == "text":
            self.write_lines(self._lines(selections))
        elif form == "npz":
            console.write_bytes(exports.to_npz([it.attention for it in selections]), self.output)
        elif form == "csv":
            self.write_text(exports.to_csv(selections))
        elif form == "html":
            self.write_text(self._page(selections, start, measured))
        elif form == "json":
            self.write_text(exports.to_json(self._records(selections)))
        else:
            from gpt.view.figure import figure, lens

            runs = dict.fromkeys(each.name for each in self.sides)
            name = " and ".join(runs) if len(selections) > 1 else selections[0].name
            if self.view == "lens":
                pairs = zip(selections, self.sides, strict=True)
                lenses = {each.name: side.lens(each.attention) for each, side in pairs}
                queries = selections[0].queries
                drawn, warnings = lens.draw(lenses, queries, self.ascii_only, name)
            else:
                drawn, warnings = figure.draw(selections, self.scale, self.ascii_only, name)
            self.write_figure(drawn, form, warnings)

    def _lines(self, selections: Sequence[Selection]) -> list[Text]:
        """The lines of text output."""
        from rich.text import Text

        asked = {"precision": self.digits, "scale": self.scale, "top": self.top}
        page = self.page(**asked, checks=self.checks)
        if self.view == "lens":
            from gpt.view.terminal.blocks import lines_of
            from gpt.view.terminal.lines import check_lines

            lines = []
            for each, selection in zip(self.sides, selections, strict=True):
                attention = selection.attention
                lens = each.lens(attention).blocks(selection.queries)
                lines += [Text(selection.name)] if len(selections) > 1 else []
                lines += [*lines_of(lens, page), *check_lines(attention.checks, page)]
            return lines
        from gpt.view.terminal.attention import compare, render

        drawing = "auto" if self.view == "rollout" else self.view
        if len(selections) > 1:
            return compare(selections, drawing, page)
        return render(selections[0], drawing, page)

    def _records(self, selections: Sequence[Selection]) -> list[dict[str, Any]]:
        """The JSON of each checkpoint."""
        from gpt.view.exports import selection_record
        from gpt.view.records import to_record

        records = []
        for each, selection in zip(self.sides, selections, strict=True):
            records.append(selection_record(selection, each.origin))
            if self.view == "lens":
                lens = each.lens(selection.attention)
                records[-1]["lens"] = to_record(lens.records(), {})["rows"]
        return records

    def _page(
        self, selections: Sequence[Selection], start: StartHead, measured: dict[int, list[Measure]]
    ) -> str:
        """Writes the HTML page. Raises TextError if the checkpoints read different texts."""
        from gpt.view.page.page import build_page, make_subject

        if len({each.attention.text for each in selections}) > 1:
            raise TextError(
                "--format: html compares two checkpoints on one text, and these read different "
                "ones; shorten it, leave out what one cannot read, or take another format"
            )
        subjects = [
            make_subject(each.attention, each.name, measured.get(n), side.origin)
            for n, (side, each) in enumerate(zip(self.sides, selections, strict=True))
        ]
        title = " and ".join(selection.name for selection in selections)
        run = self.sides[0].name
        return build_page(subjects, start, title if title.startswith(run) else f"{run} {title}")


def _names(opened: Sequence[TrainedGPT]) -> list[str]:
    """A name for each checkpoint: its step if all belong to one run, else run and step."""
    if len({each.name for each in opened}) == 1 < len(opened):
        return [f"step {each.stored.step:,}" for each in opened]
    return [each.title for each in opened]
