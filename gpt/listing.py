"""The runs of a folder as a table from which each can be opened: `gpt.runs`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsIndex, overload

from gpt.errors import CheckpointError
from gpt.loading import load
from gpt.storage.manifest import Manifest
from gpt.storage.overview import Curve, RunTable, curve_of
from gpt.storage.run import Run
from gpt.storage.runs import all_runs, readable
from gpt.trained import TrainedGPT


@dataclass(frozen=True)
class SavedRun(Run):
    """A run as it was when the list was made. manifest: of its newest checkpoint."""

    manifest: Manifest

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", best {self.loss:.4f} nats"
        return f"<run {self.name}: step {self.step:,} of {self.manifest.train.steps:,}{loss}>"

    @property
    def step(self) -> int:
        """The newest step."""
        return self.manifest.step

    @property
    def loss(self) -> float | None:
        """The lowest validation loss, nats per character; None if nothing was evaluated."""
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
        return (SavedRun(run.path, manifest) for run, manifest in self.rows)

    @overload
    def __getitem__(self, which: str | SupportsIndex) -> SavedRun: ...

    @overload
    def __getitem__(self, which: slice) -> Runs: ...

    def __getitem__(self, which: str | SupportsIndex | slice) -> SavedRun | Runs:
        if isinstance(which, slice):
            return Runs(self.rows[which])
        if not isinstance(which, str):
            run, manifest = self.rows[which]
            return SavedRun(run.path, manifest)
        for run in self:
            if run.name == which:
                return run
        raise KeyError(f"no run {which!r}; there are: {', '.join(run.name for run in self)}")


def runs(checkpoints: str | Path = "checkpoints") -> Runs:
    """The runs of a folder, as `gptx runs` lists them: a sequence that names can index.

    Leaves out runs whose newest checkpoint is damaged, and logs a warning for each. Raises
    CheckpointError if there is no run.
    """
    found = all_runs(Path(checkpoints))
    if not found:
        raise CheckpointError(f"no run in {checkpoints}; train one with: gpt.train(…)")
    rows, problems = readable(found)
    for problem in problems:
        logging.getLogger("gpt").warning("note: %s", problem)
    return Runs(tuple(rows))
