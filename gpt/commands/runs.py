"""`gptx runs`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpt.commands.common import console
from gpt.commands.common.options import Command
from gpt.errors import CheckpointError

if TYPE_CHECKING:
    from gpt.storage.run import Run


class Runs(Command):
    """List the runs, or show one run's options, loss curve and samples."""

    name: Annotated[str | None, typer.Argument(help="A run to show.", show_default=False)] = None
    verify: Annotated[bool, "Read every byte, and check every model's numbers."] = False

    def execute(self) -> None:
        from gpt.storage.runs import all_runs, find_run, readable
        from gpt.view.terminal import runs as view
        from gpt.view.terminal.training_lines import result
        from gpt.view.words import counted

        if self.name is None:
            found = all_runs(self.checkpoints) or [find_run(self.checkpoints)]
        else:
            found = [find_run(self.checkpoints, self.name)]
        if self.verify:
            self._verify(found)
            return
        if self.name is None:
            rows, broken = readable(found)
            for problem in broken:
                console.say(f"warning: {problem}")
            if self.as_json:
                console.write_json(*(result(run.name, manifest, "") for run, manifest in rows))
            else:
                console.show(view.runs_table(rows, console.width(sys.stdout)))
            return
        (run,) = found
        manifest = run.last().manifest
        logs = {}
        for log in ("metrics", "samples"):
            logs[log], damaged = run.read_log(log)
            if damaged:
                what = counted(damaged, "damaged line")
                console.say(f"warning: {run.path / log}.jsonl: {what} left out")
        if self.as_json:
            console.write_json({**result(run.name, manifest, ""), **logs})
        else:
            console.show(view.story(run, manifest, logs["metrics"], logs["samples"]))

    def _verify(self, runs: list[Run]) -> None:
        """A line for each checkpoint. Raises CheckpointError if one is damaged."""
        from gpt.loading import open_model

        found, damaged = 0, 0
        for run in runs:
            for path in run.step_paths():
                step, problem = int(path.name[5:]), ""
                try:
                    stored = run.verify(path)
                    if stored is None:  # a trainer removed this step in the meantime
                        continue
                    open_model(stored)
                except CheckpointError as error:
                    problem = str(error)
                found, damaged = found + 1, damaged + bool(problem)
                if self.as_json:
                    about = {"run": run.name, "step": step}
                    console.write_json({**about, "whole": not problem, "problem": problem})
                else:
                    console.stream(f"{run.name}  step {step:,}  {problem or 'whole'}")
        if damaged:
            raise CheckpointError(
                f"{damaged} of {found} checkpoints damaged; gptx train --resume continues from the "
                "newest whole one"
            )
