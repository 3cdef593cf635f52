"""`gptx circuits`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from gpt.commands import shared
from gpt.config import Scale
from gpt.config.fields import Range
from gpt.config.model import CircuitName

Form = Literal["text", "csv", "json", "svg", "png", "pdf"]
AS_NUMBERS, AS_SHADES, IN_FILES = 12, 32, 128  # how many of the most frequent characters to show


class Circuits(shared.DrawingCommand):
    """Show which character a head looks for (qk), and which one it then writes (ov)."""

    of: Annotated[
        CircuitName, "qk: the score of a query and a key; ov: what the head adds to a logit."
    ] = "qk"
    layer: Annotated[
        int, "Layer; above layer 0, only the part that comes from the embedding.", Range(0)
    ] = 0
    head: Annotated[int, "Head.", Range(0)] = 0
    distance: Annotated[int, "Distance from key to query, in characters.", Range(0)] = 1
    chars: Annotated[
        str | None, "The characters of rows and columns.", "the most frequent ones"
    ] = None
    view: Annotated[Literal["auto", "numbers", "heat", "top"], "How to draw it."] = "auto"
    top: Annotated[int, "Columns in a line of --view top.", Range(1)] = 3
    digits: shared.Digits = 2
    scale: Annotated[Scale, "row: full colour is each row's largest value."] = "fixed"
    output: Annotated[
        Path | None, shared.output_option("A file: .txt, .csv, .json, .svg, .png or .pdf.")
    ] = None

    def execute(self) -> None:
        from gpt.view.selection import Selection

        form: Form = self.form(get_args(Form))
        model = self.opened.prove()
        if self.chars is None:
            most = AS_NUMBERS if self.view in ("auto", "numbers") else AS_SHADES
            most = most if form == "text" else IN_FILES
            common = Counter(model.stored.excerpt).most_common(most)
            chars = "".join(sorted(each for each, _ in common))
        else:
            chars = self.known_text(model, self.chars, "--chars")
        found = model.circuit(self.of, self.layer, self.head, distance=self.distance, chars=chars)
        whole = range(len(found.text))
        drawn: Any = found  # has the attributes by which an attention map is drawn
        stage: Any = self.of
        selection = Selection(drawn, (self.layer,), (self.head,), stage, whole, whole)
        if form == "json":
            self.write_record(found.records(), model.origin)
        elif form == "csv":
            self.write_csv(found.records())
        elif form == "text":
            from gpt.view.terminal.attention import render
            from gpt.view.terminal.lines import DIM, wrap_styled

            page = self.page(precision=self.digits, scale=self.scale, top=self.top)
            notes = wrap_styled(found.note.split(" · "), page, DIM)
            self.write_lines([*render(selection, self.view, page), *notes])
        else:
            from gpt.view.figure.figure import draw

            figure, warnings = draw(selection, self.scale, self.ascii_only, model.title)
            self.write_figure(figure, form, warnings)
        shared.require_passed(check.name for check in found.checks if not check.passed)
