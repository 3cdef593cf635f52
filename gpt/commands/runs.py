"""`gptx runs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from gpt.commands import console, shared
from gpt.config.fields import with_flags
from gpt.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from gpt.storage.manifest import Manifest
    from gpt.storage.run import Run

Form = Literal["text", "json", "csv"]


class Runs(shared.Writing):
    """List the runs, show one run's options, loss curve and samples, or compare several.

    A comparison shows the options that differ, the losses and their curves. Runs that differ only
    in --seed are one row: the mean, the standard deviation (±), and n, the number of seeds.
    """

    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="A run to show; or several to compare, as names or patterns such as 'lr-*'.",
            show_default=False,
        ),
    ] = None
    output: Annotated[
        Path | None, shared.output_option("File for the comparison: .csv, .json or .txt.")
    ] = None
    options: Annotated[bool, "Show every option of a run with what it means."] = False

    def execute(self) -> None:
        from gpt.storage.runs import all_runs, find_run, find_runs, is_pattern

        names = self.names or []
        compares = len(names) > 1 or any(map(is_pattern, names)) or self.output is not None
        if self.output is not None and not names:
            raise ConfigError("-o is for comparisons: name the runs, '*' for all")
        form: Form = self.form(get_args(Form))
        if not names:
            found = all_runs(self.checkpoints) or [find_run(self.checkpoints)]
        else:
            found = find_runs(self.checkpoints, names)
        if compares:
            self._compare(self._readable(found), form)
        elif names:
            self._show(found[0])
        else:
            self._list(self._readable(found))

    def _readable(self, found: list[Run]) -> list[tuple[Run, Manifest]]:
        """The runs with their manifests, without damaged runs; warns of each of these."""
        from gpt.storage.runs import read_manifests

        rows, broken = read_manifests(found)
        for problem in broken:
            console.say(f"warning: {with_flags(problem)}")
        return rows

    def _list(self, rows: list[tuple[Run, Manifest]]) -> None:
        """Prints a table with a row for each run, or a line of JSON for each."""
        from gpt.storage.overview import RunTable, overview_of
        from gpt.view.records import to_record

        if self.as_json:
            self.write_json(*(to_record(overview_of(*row).records(), {}) for row in rows))
        else:
            self.write_blocks(RunTable(tuple(rows)).blocks())

    def _show(self, run: Run) -> None:
        """Prints one run: its facts, options, losses and samples."""
        from gpt.storage.overview import overview_of
        from gpt.view.records import to_record

        found = overview_of(run)
        logs = {log: self._log(run, log) for log in ("metrics", "samples")}
        if self.as_json:
            record = to_record(found.records(), {})
            self.write_json({**record, **logs, "training": run.records("training")})
        else:
            *blocks, options = found.blocks()
            self.write_blocks([*blocks, options] if self.options else blocks)

    def _compare(self, rows: list[tuple[Run, Manifest]], form: Form) -> None:
        """Prints a table of several runs, or writes it into a file."""
        from gpt.storage.comparison import compare_runs

        if not rows:
            raise CheckpointError("no undamaged run is left to compare")
        for run, _ in rows:
            self._log(run, "metrics")
        found = compare_runs(rows)
        if form == "text":
            self.write_blocks(found.blocks())
        elif form == "json":
            self.write_record(found.records())
        else:
            self.write_csv(found.records())

    def _log(self, run: Run, log: str) -> list[dict[str, object]]:
        """The valid lines of a log; prints a warning if other lines are damaged."""
        from gpt.words import counted

        records, damaged = run.read_log(log)
        if damaged:
            what = counted(damaged, "damaged line")
            console.say(f"warning: {run.path / log}.jsonl: {what} left out")
        return records
