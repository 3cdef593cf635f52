"""Records a training while it runs: in metrics.jsonl and, if asked for, with a tracker.

A tracker is another program's log of the same records: TensorBoard, through an optional package
that is imported only for a training that uses it. If a tracker fails, gptx warns and stops using
it; the training goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Literal

from gpt.config.train import Tracker
from gpt.errors import ConfigError
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run
from gpt.training.schedule import is_recorded, learning_rate
from gpt.words import absent

NO_CURVES = frozenset({"step", "best_step"})  # values of a record that are not measurements


class Records:
    """The records of a run; only the first rank writes. track: adds a tracker."""

    def __init__(self, run: Run, writes: bool = True) -> None:
        self.run, self.writes = run, writes
        self._tracker: Any = None  # tensorboardX.SummaryWriter; its methods may raise anything
        self._steps, self._seconds = 0, 0.0  # since the last record, or since the training resumed

    def track(self, name: Tracker | None, manifest: Manifest) -> None:
        """Also sends later records to a tracker: event files in the run's folder tensorboard."""
        if name is None or not self.writes:
            return
        # A resumed run repeats the steps after the last save; TensorBoard then hides the older
        # ones.
        repeats = {"purge_step": manifest.step + 1} if manifest.step else {}
        with self._tracking():
            from tensorboardX import SummaryWriter

            self._tracker = SummaryWriter(logdir=str(self.run.path / name), **repeats)

    def after_step(
        self, before: Manifest, now: Manifest, loss: float, norm: float, seconds: float
    ) -> tuple[float, float, int]:
        """Counts a step and writes a record if one is due; returns the manifest's new
        `recording`. before, now: the manifest before and after the step.

        The record has means over the steps since the last one: the loss in nats per character, and
        the norm of the gradient before clipping.
        """
        losses, norms, count = before.recording
        losses, norms, count = losses + loss, norms + norm, count + 1
        self._steps, self._seconds = self._steps + 1, self._seconds + seconds
        if not is_recorded(before.progress, now):
            return losses, norms, count
        record = {
            "step": now.step,
            "train_loss": _short(losses / count),
            "gradient_norm": _short(norms / count),
            "learning_rate": _short(learning_rate(now.train, now.step, now.clock)),
        }
        if self._seconds > 0:
            speed = self._steps * now.step_characters / self._seconds
            record["characters_per_second"] = _short(speed)
        self._steps, self._seconds = 0, 0.0
        self.add("training", record)
        return 0.0, 0.0, 0

    def add(self, log: Literal["metrics", "training"], record: Mapping[str, Any]) -> None:
        """Writes a record of an evaluation or of the training. Raises StorageError."""
        if not self.writes:
            return
        self.run.append(log, record)
        kind = "training" if log == "training" else "evaluation"
        if self._tracker is not None:
            with self._tracking():
                for name in record.keys() - NO_CURVES:
                    self._tracker.add_scalar(f"{kind}/{name}", record[name], record["step"])

    def close(self) -> None:
        """Ends the tracker's log."""
        if self._tracker is not None:
            with self._tracking():
                self._tracker.close()
            self._tracker = None

    @contextmanager
    def _tracking(self) -> Iterator[None]:
        """Warns of an error of the tracker, and stops using it."""
        try:
            yield
        except Exception as error:
            self._tracker = None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            logging.getLogger("gpt").warning(
                "warning: tensorboard failed (%s); training goes on without it, and metrics.jsonl "
                "has all records",
                reason,
            )


def _short(number: float) -> float:
    """The number with six significant digits, so that the file stays small."""
    return float(f"{number:.6g}")


def check_tracker(name: Tracker | None) -> None:
    """Raises ConfigError, with the command to install it, if a tracker's package is missing."""
    if name is not None and find_spec("tensorboardX") is None:
        raise ConfigError(f"log {name}", f"needs {absent('tensorboardX')}")
