"""`gptx why`."""

from __future__ import annotations

from typing import Annotated, Any

from gpt.commands import shared
from gpt.commands.options import options_of
from gpt.config import WhyConfig
from gpt.config.fields import Range


class Why(shared.DrawingCommand):
    """Show what each part of the model adds to the next character's logit: the exact sum.

    The parts are those of the GPT alone, without counting.
    """

    text: shared.Preceding = None
    file: shared.TextFile = None
    asked: Annotated[dict[str, Any], options_of(WhyConfig)]
    show: Annotated[int, "Parts to show.", Range(1)] = 16
    checks: Annotated[bool, "Name every check of the numbers, with its error."] = False

    def execute(self) -> None:
        from gpt.view.terminal.blocks import lines_of

        given = shared.one_text({"TEXT": self.text, "--file": self.file}, self.encoding)
        model = self.opened
        text = self.text_for(model, given, self.asked.get("truncate", False))
        found = model.why(text, unknown=self.unknown, **self.asked)
        if self.as_json:
            self.write_record(found.records(), {"text": text, **model.origin})
        else:
            self.write_lines(lines_of(found.blocks(self.show), self.page(checks=self.checks)))
            shared.note_on_counting(model)
        shared.require_passed(check.name for check in found.checks if not check.passed)
