"""`gptx runs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import OutputOptions, argument, refuse_if
from gpt.config.fields import option
from gpt.config.train import Checkpoints


@dataclass(frozen=True, kw_only=True)
class RunsOptions(OutputOptions):
    name: Annotated[str | None, argument("A run to show.", "a list of all")] = None
    use: Annotated[
        str | None,
        option(
            "Pin this run: commands open it unless --run names another. "
            "--use newest removes the pin."
        ),
    ] = None
    options: Annotated[bool, option("Show every option of a run.")] = False
    checkpoints: Checkpoints = Path("checkpoints")


def command(choice: RunsOptions) -> None:
    """List the runs, or show one run's losses and samples.

    The loss is that of the run's best step on the validation text, in nats per character. counting:
    the loss of predictions by counted letter sequences alone.
    """
    from gpt.show.result import to_record
    from gpt.storage.overview import Overview, read_runs
    from gpt.storage.run import find_run, pin_run
    from gpt.vocabulary import log_note

    if choice.use is not None:
        refuse_if(
            choice.name is not None, "--use: pins a run and shows none; leave out the other name"
        )
        pin_run(choice.checkpoints, choice.use)
        newest = "the newest run again, which is " if choice.use == "newest" else ""
        name = find_run(choice.checkpoints).name
        console.say(f"commands now open {newest}{name}; --run names another run")
        return
    if choice.name is not None:
        run = find_run(choice.checkpoints, choice.name)
        logs = {log: run.records(log) for log in ("metrics", "samples")}
        choice.write_result(Overview(run, run.last().manifest), logs, choice.options)
        return
    runs, damaged = read_runs(choice.checkpoints)
    for problem in damaged:
        log_note(f"warning: {problem}")
    if choice.json:
        console.write_json(*map(to_record, runs))
    else:
        choice.write_result(runs)
