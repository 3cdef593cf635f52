"""`gptx runs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import OutputOptions, note, refuse_if
from gpt.config.fields import option
from gpt.config.train import Checkpoints
from gpt.errors import CheckpointError

if TYPE_CHECKING:
    from gpt.storage.manifest import Manifest
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
    options: Annotated[bool, option("Show every option of a run with what it means.")] = False
    checkpoints: Checkpoints = Path("checkpoints")


def command(asked: RunsOptions) -> None:
    """List the runs, show one run's options, loss curve and samples, or compare several.

    A comparison shows the options that differ, the losses and their curves. Runs that differ only
    in --seed are one row: the mean, the standard deviation (±), and n, the number of seeds.
    """
    from gpt.storage.runs import all_runs, find_run, find_runs, is_pattern, read_manifests

    names, output = asked.names, asked.path
    refuse_if(output is not None and not names, "-o is for comparisons: name the runs, '*' for all")
    form: Form = asked.form(get_args(Form))
    if names:
        found = find_runs(asked.checkpoints, names)
    else:
        found = all_runs(asked.checkpoints) or [find_run(asked.checkpoints)]
    if len(names) == 1 and not is_pattern(names[0]) and output is None:
        _show(asked, found[0])
        return
    rows, damaged = read_manifests(found)
    for problem in damaged:
        note(f"warning: {problem}")
    if names:
        _compare(asked, rows, form)
    else:
        _list(asked, rows)


def _list(asked: RunsOptions, rows: Sequence[tuple[Run, Manifest]]) -> None:
    """Prints a table with a row for each run, or a line of JSON for each."""
    from gpt.storage.overview import RunTable, overview_of
    from gpt.view.records import to_record

    if asked.json:
        console.write_json(*(to_record(overview_of(*row).records(), {}) for row in rows))
    else:
        asked.write_blocks(RunTable(tuple(rows)).blocks())


def _show(asked: RunsOptions, run: Run) -> None:
    """Prints one run: its facts, options, losses and samples."""
    from gpt.storage.overview import overview_of
    from gpt.view.records import to_record

    found = overview_of(run)
    if asked.json:
        logs = {log: run.records(log) for log in ("metrics", "samples", "training")}
        console.write_json(to_record(found.records(), {}) | logs)
    else:
        *blocks, options = found.blocks()
        asked.write_blocks([*blocks, options] if asked.options else blocks)


def _compare(asked: RunsOptions, rows: Sequence[tuple[Run, Manifest]], form: Form) -> None:
    """Prints a table of several runs, or writes it into a file."""
    from gpt.storage.comparison import compare_runs

    if not rows:
        raise CheckpointError("no undamaged run is left to compare")
    found = compare_runs(rows)
    if form == "text":
        asked.write_blocks(found.blocks())
    elif form == "json":
        asked.write_record(found.records())
    else:
        asked.write_csv(found.records())
