"""`gptx exercise`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpt.commands import console, shared
from gpt.config.fields import Range, flag_of
from gpt.errors import ConfigError, NumericsError, TextError
from gpt.lessons import exercises

ABOUT = {"attention": "From one head to a GPT that learns and writes, in seven stages."}
LEAST, MOST = 1000, 2**22  # characters in a text to learn


class Exercise(shared.Drawing):
    """Practise attention: fill the gaps of a file; it is checked, and slips are named.

    --check runs the file in a separate process; the exit code is 7 unless all stages are right.
    """

    exercise: Annotated[
        str | None, typer.Argument(help=", ".join(ABOUT), show_default="their list")
    ] = None
    output: Annotated[Path | None, shared.output_option("The file to write.")] = None
    check: Annotated[Path | None, "The file with your code, to check; - reads stdin."] = None
    train: Annotated[Path | None, "A text that your GPT learns if all stages are right."] = None
    seed: Annotated[int, "Seed of --train.", Range(0, below=2**63)] = 1
    time_limit: Annotated[int, "Seconds for --check and --train.", Range(1, 86_400)] = 60

    def execute(self) -> None:
        name, checks, given = self.exercise, self.check is not None, self.typed()
        fits = {"output": bool(name) and not checks, "check": bool(name), "checkpoints": False}
        fits |= dict.fromkeys(("train", "seed", "time_limit"), checks)
        usage = "no effect here; gptx exercise NAME -o FILE, or: gptx exercise NAME --check FILE"
        shared.refuse_if(
            (name not in (None, *ABOUT), f"{name!r} is no exercise; gptx exercise lists them"),
            *((it in given and not fit, f"{flag_of(it)}: {usage}") for it, fit in fits.items()),
        )
        if self.check is not None:
            self._check(self.check)
        elif name is not None:
            self._write(self.output if "output" in given else Path(f"{name}.py"))
        elif self.as_json:
            self.write_json(*({"exercise": each, "about": ABOUT[each]} for each in ABOUT))
        else:
            self.write_text("".join(f"{each}  {about}\n" for each, about in ABOUT.items()))
            console.say("next   gptx exercise attention")

    def _write(self, path: Path | None) -> None:
        """Writes the file with gaps. Raises ConfigError if a file with this name exists."""
        if path and os.path.lexists(path):
            raise ConfigError(f"--output: {path} exists and is not overwritten; name another file")
        template = Path(exercises.__file__).with_name(f"{self.exercise}.py")
        console.write(template.read_text(encoding="utf-8"), path)
        if path:
            console.say(f"next   fill its gaps, then: gptx exercise attention --check {path}")

    def _check(self, path: Path) -> None:
        """Shows the stages of a file. Raises TextError, and NumericsError unless all are right."""
        from gpt.lessons.exercises.report import blocks_of, check
        from gpt.view.selection import select
        from gpt.view.terminal.attention import render

        source, text = console.read_text(str(path), MOST), None
        if self.train is not None:
            text = console.read_text(str(self.train), MOST)
            if len(text) < LEAST:
                raise TextError(f"{self.train}: training needs at least {LEAST:,} characters")
        stages = check(source, self.time_limit, text, self.seed)
        label = shared.text_label(str(path))
        right = sum(each.status == "passed" for each in stages)
        if self.as_json:
            found = {"passed": right == len(stages), "stages": [asdict(each) for each in stages]}
            self.write_json({"schema": 1, "exercise": self.exercise, "file": label, **found})
        else:
            self.write_blocks(blocks_of(stages, label))
            if trained := stages[-1].trained:
                chosen = select(trained.heads, "all", "all")
                self.write_lines(render(chosen, "heads", self.page()))
        if right < len(stages):
            raise NumericsError(f"{label}: {right} of {len(stages)} stages are right")
