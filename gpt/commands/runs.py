"""`gptx runs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpt.commands import console, shared
from gpt.errors import CheckpointError

if TYPE_CHECKING:
    from gpt.storage.run import Run


def runs(
    name: Annotated[str | None, typer.Argument(help="One run's story.", show_default=False)] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte, prove every model's numbers.")
    ] = False,
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    as_json: shared.Json = False,
) -> None:
    """The runs; or one run's options, loss curve and samples."""
    from gpt.storage.runs import all_runs, find_run
    from gpt.view.terminal import runs as view
    from gpt.view.terminal.training_lines import result
    from gpt.view.words import counted

    if verify:
        chosen = [find_run(checkpoints, name)] if name else all_runs(checkpoints)
        _verify(chosen or [find_run(checkpoints)], as_json)
        return
    if name is None:
        found = all_runs(checkpoints) or [find_run(checkpoints)]
        rows, broken = view.readable(found)
        for problem in broken:
            console.say(f"warning: {problem}")
        if as_json:
            for run, manifest in rows:
                console.write_json(result(run.name, manifest, ""))
        else:
            console.show(view.runs_table(rows, console.page_width()))
        return
    run = find_run(checkpoints, name)
    manifest = run.last().manifest
    logs = {}
    for log in ("metrics", "samples"):
        logs[log], damaged = run.read_log(log)
        if damaged:
            what = counted(damaged, "damaged line")
            console.say(f"warning: {run.path / log}.jsonl: {what} left out")
    metrics, samples = logs["metrics"], logs["samples"]
    if as_json:
        story = {**result(run.name, manifest, ""), "metrics": metrics, "samples": samples}
        console.write_json(story)
        return
    console.show(view.story(run, manifest, metrics, samples))


def _verify(runs: list[Run], as_json: bool) -> None:
    """A line a checkpoint. Raises CheckpointError if one is damaged."""
    from gpt.loading import open_model

    found, damaged = 0, 0
    for run in runs:
        for path in run.step_paths():
            step, problem = int(path.name[5:]), ""
            try:
                stored = run.verify(path)
                if stored is None:  # a training has removed this step meanwhile
                    continue
                open_model(stored)
            except CheckpointError as error:
                problem = str(error)
            found, damaged = found + 1, damaged + bool(problem)
            if as_json:
                record = {"run": run.name, "step": step, "whole": not problem, "problem": problem}
                console.write_json(record)
            else:
                console.stream(f"{run.name}  step {step:,}  {problem or 'whole'}")
    if damaged:
        raise CheckpointError(
            f"{damaged} of {found} checkpoints damaged; gptx train --resume goes on from the "
            "newest whole one"
        )
