"""The runs of a folder as a table from which each run can be opened: `gpt.runs`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import SupportsIndex, overload

from gpt.errors import CheckpointError
from gpt.interface.trained import TrainedGPT, load
from gpt.storage.comparison import Comparison, compare_runs
from gpt.storage.curves import Curve, curve_of
from gpt.storage.manifest import Manifest
from gpt.storage.overview import RunTable, overview_of
from gpt.storage.run import Run
from gpt.storage.runs import all_runs, is_pattern, read_manifests
from gpt.vocabulary import log_note


@dataclass(frozen=True)
class SavedRun(Run):
    """A run as it was when the list was made. manifest: the one of its newest checkpoint."""

    manifest: Manifest

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        done = f", {self.manifest.progress:.0%} done" if self.manifest.progress < 1 else ""
        return f"<run {self.name}: step {self.step:,}{done}{loss}>"

    def _repr_html_(self) -> str:
        return overview_of(self, self.manifest)._repr_html_()

    @property
    def step(self) -> int:
        """The newest step."""
        return self.manifest.step

    @property
    def loss(self) -> float | None:
        """The best step's validation loss, in nats per character, on the largest part of the split
        on which it was measured; None if nothing was evaluated.
        """
        return self.manifest.shown_loss[0]

    @property
    def curve(self) -> Curve:
        """The losses at each evaluation so far, nats per character."""
        return curve_of(self)

    def load(self, *, step: str | SupportsIndex = "best", device: str = "cpu") -> TrainedGPT:
        """Opens the run, as `gpt.load` does. Raises CheckpointError, ConfigError."""
        return load(self.path, step=step, device=device)


class Runs(RunTable):
    """The runs of a folder, the most recently saved last; `runs["name"]` or `runs[-1]` is one."""

    def __iter__(self) -> Iterator[SavedRun]:
        return (SavedRun(run.path, manifest) for run, manifest in self.entries)

    def compare(self, *names: str) -> Comparison:
        """Compares these runs: their losses, and the options that differ.

        names: of runs, or patterns such as "lr-*"; none: all runs. Raises KeyError for a name or
        pattern without a run, ValueError if there are no runs.
        """
        runs = [run for name in names for run in self._matching(name)] if names else [*self]
        if not runs:
            raise ValueError("no runs to compare")
        return compare_runs((run, run.manifest) for run in runs)

    def _matching(self, name: str) -> list[SavedRun]:
        if not is_pattern(name):
            return [self[name]]
        matching = [run for run in self if fnmatchcase(run.name, name)]
        if not matching:
            raise KeyError(f"no run matches {name!r}")
        return matching

    @overload
    def __getitem__(self, which: str | SupportsIndex) -> SavedRun: ...

    @overload
    def __getitem__(self, which: slice) -> Runs: ...

    def __getitem__(self, which: str | SupportsIndex | slice) -> SavedRun | Runs:
        if isinstance(which, slice):
            return Runs(self.entries[which])
        if not isinstance(which, str):
            run, manifest = self.entries[which]
            return SavedRun(run.path, manifest)
        for run in self:
            if run.name == which:
                return run
        raise KeyError(f"no run {which!r}; there are: {', '.join(run.name for run in self)}")


def runs(checkpoints: str | Path = "checkpoints") -> Runs:
    """Lists the runs of a folder, as `gptx runs` does; returns a sequence that names can index,
    too.

    Runs whose newest checkpoint is damaged are left out, and a warning is logged for each.
    CheckpointError if there is no run.
    """
    saved = all_runs(Path(checkpoints))
    if not saved:
        raise CheckpointError(f"no run in {checkpoints}; train one with: gpt.train(…)")
    entries, problems = read_manifests(saved)
    for problem in problems:
        log_note(f"note: {problem}")
    return Runs(tuple(entries))
