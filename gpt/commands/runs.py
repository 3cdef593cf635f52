"""`gptx runs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import OutputOptions, note, refuse_if
from gpt.config.fields import option
from gpt.config.train import Checkpoints
from gpt.errors import CheckpointError

if TYPE_CHECKING:
    from gpt.storage.run import Run

Form = Literal["text", "json", "csv"]


@dataclass(frozen=True, kw_only=True)
class RunsOptions(OutputOptions):
    """Which runs to show, and what of them."""

    names: Annotated[
        tuple[str, ...],
        argument("A run to show; or several to compare, as names or patterns such as 'lr-*'."),
    ] = ()
    output: Annotated[Path | None, option("File for the comparison: .csv, .json or .txt.")] = None
    use: Annotated[
        str | None,
        option("Pin this run: every command takes it unless --run names another; newest: unpin."),
    ] = None
    options: Annotated[bool, option("Show every option of a run with what it means.")] = False
    checkpoints: Checkpoints = Path("checkpoints")


def command(asked: RunsOptions) -> None:
    """List the runs, show one run's losses and samples, or compare several.

    Losses are in nats per character, of the best step, on the validation text. counting: the loss
    that counting letter sequences reaches, without a model.
    """
    from gpt.storage.overview import read_runs
    from gpt.storage.runs import find_run, is_pattern, pin_run

    names = asked.names
    if asked.use is not None:
        refuse_if(bool(names), "--use: takes one name, and shows no run")
        pin_run(asked.checkpoints, asked.use)
        console.say(f"every command takes {find_run(asked.checkpoints).name}; --run takes another")
        return
    refuse_if(asked.path is not None and not names, "-o needs names of runs; '*' is all")
    form: Form = asked.form(get_args(Form))
    if len(names) == 1 and not is_pattern(names[0]) and asked.path is None:
        _show(asked, find_run(asked.checkpoints, names[0]))
        return
    runs, damaged = read_runs(asked.checkpoints, names)
    for problem in damaged:
        note(f"warning: {problem}")
    if not names:
        if asked.json:
            console.write_json(*map(_record, runs))
        else:
            asked.write_result(runs)
        return
    if not runs:
        raise CheckpointError("no undamaged run is left to compare")
    comparison = runs.compare()
    if form == "text":
        asked.write_result(comparison)
    else:
        asked.write_text(comparison.to_json() if form == "json" else comparison.to_csv())


def _show(asked: RunsOptions, run: Run) -> None:
    """Prints one run: its losses and samples, and perhaps every option."""
    from gpt.storage.overview import Overview

    overview = Overview(run, run.last().manifest)
    if asked.json:
        logs = {log: run.records(log) for log in ("metrics", "samples", "training")}
        console.write_json({**_record(overview), **logs})
        return
    asked.write_result(overview, all=asked.options)


def _record(result: Any) -> dict[str, Any]:
    from gpt.show.result import to_record

    return to_record(result)
