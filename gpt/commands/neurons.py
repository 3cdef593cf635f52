"""`gptx neurons`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from gpt.commands import shared
from gpt.commands.options import options_of
from gpt.config import NeuronsConfig
from gpt.config.train import Data

FORMS = ("text", "json", "csv")


class Neurons(shared.DrawingCommand):
    """Rank every unit by the feature that it follows, compared with random directions."""

    file: shared.Measured = None
    step: shared.SeveralSteps = "best"
    given: Annotated[dict[str, Any], options_of(NeuronsConfig)]
    output: Annotated[Path | None, shared.output_option("File: .txt, .json, .csv.")] = None
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.commands.progress import progress_bar

        form, several = self.form(FORMS), self.several_steps is not None
        model = self.open(self.run, "last" if several else self.step).prove()
        text, name = self.text_or_split(model, self.file, self.data)
        if self.given.get("on"):
            self.given["on"] = self.known_text(model, self.given["on"])
        steps = self.numbers_of_steps(model)
        with progress_bar() as done:
            found = model.neurons(text, steps=steps, name=name, done=done, **self.given)
        if form == "text":
            sort: dict[str, Any] = {"sort": self.given.get("sort")} if several else {}
            self.write_blocks(found.blocks(**sort))
        elif form == "json":
            origin = {"run": model.name} if several else model.origin
            self.write_record(found.records(), origin)
        else:
            self.write_csv(found.records())
