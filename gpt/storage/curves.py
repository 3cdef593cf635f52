"""The losses of one run over its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import Arrays
from gpt.show.result import Line, Result
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run
from gpt.words import measured_on

Losses = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class Curve(Arrays, Result):
    """A run's losses at its N evaluations, in nats per character; each array is (N,).

    steps: the step of each evaluation. train: the mean loss of the training steps since the
    evaluation before. val: the loss on the validation split. characters: how many characters of the
    split's `of` it was measured on. gpt: in a run with counting, the validation loss of the GPT
    alone, NaN where it was not recorded.
    """

    name: str
    steps: npt.NDArray[np.int64]
    train: Losses
    val: Losses
    characters: npt.NDArray[np.int64]
    of: int
    gpt: Losses | None = None

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def title(self) -> str:
        if not len(self):
            return f"{self.name}: no evaluations yet"
        best = int(self.val.argmin())
        part = measured_on(int(self.characters[best]), self.of)
        lowest = f"{self.val[best]:.4f} nats at step {self.steps[best]:,}{part}"
        return f"{self.name}: {len(self)} evaluations, the lowest loss {lowest}"

    @property
    def _arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays by the names that programs get."""
        gpt = {} if self.gpt is None else {"gpt": self.gpt}
        losses = {"step": self.steps, "train": self.train, "val": self.val}
        return {**losses, **gpt, "val_characters": self.characters}

    def curves(self) -> Sequence[Line]:
        names = {"val": "validation", "train": "training", "gpt": "GPT alone"}
        arrays, steps = self._arrays, self.steps.tolist()
        return [Line(names[name], steps, arrays[name].tolist()) for name in names if name in arrays]

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row for each evaluation."""
        arrays = self._arrays
        values = zip(*(array.tolist() for array in arrays.values()), strict=True)
        return [dict(zip(arrays, row, strict=True)) for row in values]

    def shown(self, all: bool = False) -> Sequence[Mapping[str, Any]]:
        return ()

    def record(self) -> Mapping[str, Any]:
        return {"run": self.name}


def curve_of(run: Run, manifest: Manifest | None = None) -> Curve:
    """The losses of a run so far. manifest: the newest one, if the caller has read it. Raises
    CheckpointError.
    """
    read, of = (manifest or run.last().manifest).part
    records = [record for record in run.records("metrics") if "val_loss" in record]

    def column(name: str, missing: float = np.nan) -> Losses:
        return np.array([record.get(name, missing) for record in records], np.float64)

    gpt = column("gpt_loss")
    return Curve(
        name=run.name,
        steps=column("step").astype(np.int64),
        train=column("train_loss"),
        val=column("val_loss"),
        characters=column("val_characters", read).clip(0, of).astype(np.int64),
        of=of,
        gpt=gpt if np.isfinite(gpt).any() else None,
    )
