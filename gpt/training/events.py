"""What a training reports: events, which the trainer yields and commands show; and records, in
metrics.jsonl and, if asked for, in TensorBoard's files. Imports no torch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from gpt.config.train import Tracker
from gpt.devices import reason_of
from gpt.errors import ConfigError
from gpt.storage.manifest import Manifest
from gpt.storage.run import Checkpoint, Run
from gpt.training.schedule import RECORDS, learning_rate, passes
from gpt.words import absent

NO_CURVES = frozenset({"step", "best_step"})  # values of a record that are not measurements


@dataclass(frozen=True)
class Stepped:
    """One optimizer step is done. loss: the mean of its batch, in nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """Losses in nats per character; train_loss is the mean since the last evaluation.

    since_best: evaluations since the best one. characters: how many of the split's `of` were read.
    gpt_loss: in a run with counting, the loss of the GPT alone.
    """

    step: int
    train_loss: float
    val_loss: float
    best_step: int | None
    since_best: int
    characters: int
    of: int
    gpt_loss: float | None = None


@dataclass(frozen=True)
class Evaluating:
    """Progress of the evaluation at the end, which may take long. share: done so far, 0 to 1."""

    share: float


@dataclass(frozen=True)
class EvaluatedAtEnd:
    """The loss of the best step's weights on the whole split, or on `characters` of its `of`."""

    step: int
    val_loss: float
    characters: int
    of: int
    gpt_loss: float | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written to the disk. Of several ranks, only the first yields this."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Sampled:
    """A text that the model of the newest checkpoint has written."""

    step: int
    text: str


@dataclass(frozen=True)
class Stopped:
    """Training has ended. reason: "finished", "patience", or the reason given to `stop`. spent:
    the seconds that its parts took (Timing).
    """

    step: int
    reason: str
    spent: Mapping[str, float] = field(default_factory=dict, compare=False)  # differs each time


Event = Stepped | Evaluated | Evaluating | EvaluatedAtEnd | Saved | Sampled | Stopped


class Records:
    """The records of a run; only the first rank writes. track: adds a tracker."""

    def __init__(self, run: Run, writes: bool = True) -> None:
        self.run, self.writes = run, writes
        self._tracker: Any = None  # tensorboardX.SummaryWriter
        self._steps, self._seconds = 0, 0.0  # since the last record, or since the training resumed

    def track(self, name: Tracker | None, manifest: Manifest) -> None:
        """Also sends later records to a tracker: event files in the run's folder tensorboard."""
        if name is not None and self.writes:
            from tensorboardX import SummaryWriter

            # A resumed run repeats the steps after the last save; TensorBoard hides the older ones.
            purge = manifest.step + 1 if manifest.step else None
            self._tracker = SummaryWriter(logdir=str(self.run.path / name), purge_step=purge)

    def after_step(
        self, before: Manifest, now: Manifest, loss: float, norm: float, seconds: float
    ) -> tuple[float, float, int]:
        """Counts a step and writes a record if one is due, at most RECORDS in a training; returns
        the manifest's new `recording`. before, now: the manifest before and after the step.

        The record has means over the steps since the last one: the loss in nats per character, and
        the norm of the gradient before clipping.
        """
        losses, norms, count = before.recording
        losses, norms, count = losses + loss, norms + norm, count + 1
        self._steps, self._seconds = self._steps + 1, self._seconds + seconds
        if not passes(RECORDS, before.progress, now.progress):
            return losses, norms, count
        record: dict[str, float] = {
            "train_loss": losses / count,
            "gradient_norm": norms / count,
            "learning_rate": learning_rate(now.train, now.step, now.clock),
        }
        if self._seconds > 0:
            speed = self._steps * now.step_characters / self._seconds
            record["characters_per_second"] = speed
        self._steps, self._seconds = 0, 0.0
        short = {name: float(f"{number:.6g}") for name, number in record.items()}
        self.add("training", {"step": now.step, **short})
        return 0.0, 0.0, 0

    def add(self, log: Literal["metrics", "training"], record: Mapping[str, Any]) -> None:
        """Writes a record of an evaluation or of the training. Raises StorageError."""
        if not self.writes:
            return
        self.run.append(log, record)
        if self._tracker is not None:
            kind = "training" if log == "training" else "evaluation"
            try:
                for name in record.keys() - NO_CURVES:
                    self._tracker.add_scalar(f"{kind}/{name}", record[name], record["step"])
            except Exception as error:  # of another program; the training goes on without it
                self._tracker = None
                warning = "warning: tensorboard failed (%s); metrics.jsonl has all records"
                logging.getLogger("gpt").warning(warning, reason_of(error))

    def close(self) -> None:
        """Ends the tracker's log."""
        if self._tracker is not None:
            self._tracker.close()


def check_tracker(name: Tracker | None) -> None:
    """Raises ConfigError, with the command to install it, if a tracker's package is missing."""
    if name is not None and find_spec("tensorboardX") is None:
        raise ConfigError(f"log {name}", f"needs {absent('tensorboardX')}")
