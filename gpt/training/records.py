"""What a training writes down while it runs: metrics.jsonl and, if asked for, a tracker.

A tracker is another program's log of the same records: TensorBoard or Trackio. They are optional
packages, imported when a training that uses them begins. A tracker that fails is given up with a
warning; the training goes on.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from gpt.config.schedule import is_recorded, learning_rate
from gpt.config.train import Tracker
from gpt.errors import ConfigError
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run

PROJECT = "gptx"  # of Trackio
#: Tracker -> the package that it needs.
PACKAGES: dict[Tracker, str] = {"tensorboard": "tensorboardX", "trackio": "trackio"}
NO_CURVES = frozenset({"step", "best_step"})  # values of a record that are no measurements


class OpenTracker(Protocol):
    """A log outside metrics.jsonl. Its methods may raise anything."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a record: values by names such as training/train_loss."""

    def close(self) -> None:
        """Writes what is left."""


class Records:
    """The records of a run; only the first rank writes. track: adds a tracker."""

    def __init__(self, run: Run, writes: bool = True) -> None:
        self.run, self.writes = run, writes
        self._tracker: OpenTracker | None = None
        self._name = ""
        self._steps, self._seconds = 0, 0.0  # since the last record, or since training resumed

    def track(self, name: Tracker | None, manifest: Manifest) -> None:
        """Sends the records after the manifest's step to a tracker, too."""
        if name is not None and self.writes:
            self._name = name
            try:
                self._tracker = OPEN[name](self.run, manifest)
            except Exception as error:
                self._give_up(error)

    def stepped(
        self, before: Manifest, step: int, loss: float, norm: float, seconds: float
    ) -> tuple[float, float, int]:
        """Counts a step and writes a record if one is due -> the manifest's new `recording`.

        The record has means over the steps since the last one: loss in nats per character, and norm
        of the gradient before clipping.
        """
        losses, norms, count = before.recording
        losses, norms, count = losses + loss, norms + norm, count + 1
        self._steps, self._seconds = self._steps + 1, self._seconds + seconds
        if not is_recorded(before.train, step):
            return losses, norms, count
        record = {
            "step": step,
            "train_loss": _short(losses / count),
            "gradient_norm": _short(norms / count),
            "learning_rate": _short(learning_rate(step, before.train)),
        }
        if self._seconds > 0:
            speed = self._steps * before.step_characters / self._seconds
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
        values = {f"{kind}/{name}": value for name, value in record.items()}
        for name in NO_CURVES:
            values.pop(f"{kind}/{name}", None)
        if self._tracker is not None:
            try:
                self._tracker.add(record["step"], values)
            except Exception as error:
                self._give_up(error)

    def close(self) -> None:
        """Ends the tracker's log."""
        if self._tracker is not None:
            try:
                self._tracker.close()
            except Exception as error:
                self._give_up(error)
            self._tracker = None

    def _give_up(self, error: Exception) -> None:
        self._tracker = None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        logging.getLogger("gpt").warning(
            "warning: %s failed (%s); training goes on without it, and metrics.jsonl has all "
            "records",
            *(self._name, reason),
        )


def _short(number: float) -> float:
    """With six significant digits, so that the file stays small."""
    return float(f"{number:.6g}")


def check_tracker(name: Tracker | None) -> None:
    """Raises ConfigError, with the command to install it, if a tracker's package is missing."""
    if name is not None and find_spec(PACKAGES[name]) is None:
        package = PACKAGES[name]
        raise ConfigError(
            f"log {name}", f"needs {package}, which is not installed: pip install {package}"
        )


class TensorBoard:
    """Event files in the run's folder tensorboard."""

    def __init__(self, run: Run, manifest: Manifest) -> None:
        from tensorboardX import SummaryWriter

        # A resumed run repeats steps after the last save: TensorBoard then hides the older ones.
        repeats = {"purge_step": manifest.step + 1} if manifest.step else {}
        self._writer = SummaryWriter(logdir=str(run.path / "tensorboard"), **repeats)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Trackio:
    """A run of the project PROJECT on this machine, unless the user's TRACKIO_SPACE_ID or
    TRACKIO_SERVER_URL sends it elsewhere.
    """

    def __init__(self, run: Run, manifest: Manifest) -> None:
        import trackio

        with redirect_stdout(sys.stderr):  # stdout is for data
            self._run = trackio.init(
                PROJECT,
                name=run.name,
                config={**vars(manifest.model), **vars(manifest.train)},
                resume="allow" if manifest.step else "never",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._run.finish()


OPEN: dict[Tracker, Any] = {"tensorboard": TensorBoard, "trackio": Trackio}
