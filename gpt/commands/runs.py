"""`gptx runs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import OutputOptions, refuse_if
from gpt.config.fields import option
from gpt.config.train import Checkpoints


@dataclass(frozen=True, kw_only=True)
class RunsOptions(OutputOptions):
    """Which run to show, and what of it."""

    name: Annotated[str | None, argument("A run to show.", "a list of all")] = None
    use: Annotated[
        str | None,
        option("Pin this run: every command takes it unless --run names another; newest: unpin."),
    ] = None
    options: Annotated[bool, option("Show every option of a run with what it means.")] = False
    checkpoints: Checkpoints = Path("checkpoints")


def command(asked: RunsOptions) -> None:
    """List the runs, or show one run's losses and samples.

    Losses are in nats per character, of the best step, on the validation text. counting: the loss
    that counting letter sequences reaches, without a model.
    """
    from gpt.show.result import to_record
    from gpt.storage.overview import Overview, read_runs
    from gpt.storage.run import find_run, pin_run
    from gpt.vocabulary import log_note

    if asked.use is not None:
        refuse_if(asked.name is not None, "--use: takes one name, and shows no run")
        pin_run(asked.checkpoints, asked.use)
        newest = "the newest run again, now " if asked.use == "newest" else ""
        name = find_run(asked.checkpoints).name
        console.say(f"every command takes {newest}{name}; --run takes another")
        return
    if asked.name is not None:
        run = find_run(asked.checkpoints, asked.name)
        logs = {log: run.records(log) for log in ("metrics", "samples")}
        asked.write_result(Overview(run, run.last().manifest), logs, asked.options)
        return
    runs, damaged = read_runs(asked.checkpoints)
    for problem in damaged:
        log_note(f"warning: {problem}")
    if asked.json:
        console.write_json(*map(to_record, runs))
    else:
        asked.write_result(runs)
