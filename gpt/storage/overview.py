"""Runs as data: the losses of one run over its training, the training itself, a list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.checks import TableResult
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run
from gpt.words import counted, measured_on


@dataclass(frozen=True, repr=False)
class Curve(TableResult):
    """A run's losses at its N evaluations, in nats per character, all (N,).

    steps: the step of each evaluation. train: the mean loss of the training steps since the
    evaluation before. val: on the validation split. gpt: of a run with counting, the validation
    loss of the GPT alone, NaN where it was not recorded. name: the run's. characters: those of the
    split's `of` that each of `val` was measured on; the best step's loss in a list of runs may be
    that of the whole split.
    """

    steps: npt.NDArray[np.int64]
    train: npt.NDArray[np.float64]
    val: npt.NDArray[np.float64]
    gpt: npt.NDArray[np.float64] | None = None
    name: str = ""
    characters: npt.NDArray[np.int64] | None = None
    of: int = 0

    def __repr__(self) -> str:
        of = f" of {self.name}" if self.name else ""
        if not len(self):
            return f"<Curve{of}: no evaluations>"
        return f"<Curve{of}: {len(self)} evaluations, lowest {self.lowest}>"

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def lowest(self) -> str:
        """The lowest validation loss and its step; on how many characters, if not on all. Raises
        ValueError for no evaluations.
        """
        best = int(np.argmin(np.nan_to_num(self.val, nan=np.inf)))
        read = self.of if self.characters is None else int(self.characters[best])
        return f"{self.val[best]:.4f} nats at step {self.steps[best]:,}{measured_on(read, self.of)}"


def curve_of(run: Run, manifest: Manifest | None = None) -> Curve:
    """The losses of a run so far. manifest: its newest, if it has been read. Raises
    CheckpointError.
    """
    read, of = (manifest or run.last().manifest).part
    records = [record for record in run.records("metrics") if "val_loss" in record]
    gpt = [record.get("gpt_loss") for record in records]
    return Curve(
        steps=np.array([record["step"] for record in records], np.int64),
        train=np.array([record["train_loss"] for record in records], np.float64),
        val=np.array([record["val_loss"] for record in records], np.float64),
        gpt=np.array(gpt, np.float64) if any(value is not None for value in gpt) else None,
        name=run.name,
        characters=np.array(
            [min(max(0, record.get("val_characters", read)), of) for record in records], np.int64
        ),
        of=of,
    )


@dataclass(frozen=True, repr=False)
class TrainingCurve(TableResult):
    """What the steps of a training did, in N records of equally many steps, all (N,).

    steps: the last step of each record. loss: the mean loss of its batches, nats per character.
    gradient_norm: the mean norm of the gradient before clipping. learning_rate: of the next step.
    speed: characters per second, NaN where it is unknown. name: the run's.
    """

    steps: npt.NDArray[np.int64]
    loss: npt.NDArray[np.float64]
    gradient_norm: npt.NDArray[np.float64]
    learning_rate: npt.NDArray[np.float64]
    speed: npt.NDArray[np.float64]
    name: str = ""

    def __repr__(self) -> str:
        of = f" of {self.name}" if self.name else ""
        if not len(self):
            return f"<TrainingCurve{of}: no records>"
        last = f"the last at step {self.steps[-1]:,}: loss {self.loss[-1]:.4f} nats"
        return f"<TrainingCurve{of}: {len(self)} records, {last}>"

    def __len__(self) -> int:
        return len(self.steps)


def training_curve_of(run: Run) -> TrainingCurve:
    """The records of a run's training so far; empty for an imported run.

    Raises CheckpointError.
    """
    records = run.records("training")

    def column(name: str) -> npt.NDArray[np.float64]:
        return np.array([record.get(name, np.nan) for record in records], np.float64)

    return TrainingCurve(
        steps=np.array([record["step"] for record in records], np.int64),
        loss=column("train_loss"),
        gradient_norm=column("gradient_norm"),
        learning_rate=column("learning_rate"),
        speed=column("characters_per_second"),
        name=run.name,
    )


@dataclass(frozen=True, repr=False)
class RunTable(TableResult):
    """Runs, each with the manifest of its newest checkpoint, the most recently saved last."""

    rows: tuple[tuple[Run, Manifest], ...]

    def __repr__(self) -> str:
        if not self.rows:
            return "<no runs>"
        names = ", ".join(run.name for run in [*self][-5:])
        return f"<{counted(len(self), 'run')}: {'… ' * (len(self) > 5)}{names}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Run]:
        return (run for run, _ in self.rows)
