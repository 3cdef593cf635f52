"""The course of a training: its events, the records of its evaluations, its learning rate, and the
time that its parts take. Imports no torch.

Progress is the share of the steps or, with a time budget, of the time (Manifest.progress). Without
a budget, learning rate and evaluations depend only on step and options, so a run can be repeated
bit for bit.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from statistics import median
from typing import Any

from gpt.config import TrainConfig
from gpt.config.train import Tracker
from gpt.errors import ConfigError
from gpt.storage.checkpoint_files import Clock, Manifest
from gpt.storage.run import Checkpoint, Run
from gpt.training import ranks
from gpt.words import missing_package

NO_CURVES = frozenset({"step", "best_step"})  # keys of a record that are no measurements
NEWEST, ENOUGH = 31, 5  # most and fewest newest steps whose median time is used
MOST_MEDIANS = 20  # if a step takes more median times, the machine was suspended
PAUSES_SHARE = 0.1  # largest share of the time so far for evaluations, samples and saves
END_SHARE = 0.05  # largest share of a time budget for the last evaluation
MOST_RESERVED = 0.5  # largest share of a time budget that is kept for the end


@dataclass(frozen=True)
class Stepped:
    """An optimizer step was made. loss: the mean over its batch, in nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """A step was evaluated. val_loss: in nats per character. At the end of a training, the best
    step is evaluated on the whole validation split, or on a larger part of it.
    """

    step: int
    val_loss: float


@dataclass(frozen=True)
class Evaluating:
    """The evaluation at the end begins. It may take long."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written to the disk. Only the first rank yields this event."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Sampled:
    """The model of the newest checkpoint has written a text."""

    step: int
    text: str


@dataclass(frozen=True)
class Stopped:
    """The training has ended. reason: "finished", "patience", or the argument of Trainer.stop.
    spent: name of a part of the training -> its seconds, see Timing.
    """

    step: int
    reason: str
    spent: Mapping[str, float] = field(default_factory=dict, compare=False)  # differs each time


Event = Stepped | Evaluated | Evaluating | Saved | Sampled | Stopped


class Records:
    """Writes the evaluations of a run to metrics.jsonl and, after `track`, for TensorBoard."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._tracker: Any = None  # tensorboardX.SummaryWriter

    def track(self, step: int) -> None:
        """Also writes all records after this step to the run's folder tensorboard."""
        from tensorboardX import SummaryWriter

        # A resumed run repeats the steps after its last save; purge_step hides their older records.
        purge = step + 1 if step else None
        self._tracker = SummaryWriter(logdir=str(self.run.path / "tensorboard"), purge_step=purge)

    def add(self, record: Mapping[str, float]) -> None:
        """Writes the record of an evaluation. Raises StorageError."""
        self.run.append("metrics", record)
        if self._tracker is not None:
            for name in record.keys() - NO_CURVES:
                self._tracker.add_scalar(name, record[name], record["step"])

    def close(self) -> None:
        """Closes TensorBoard's files."""
        if self._tracker is not None:
            self._tracker.close()


def check_tracker(name: Tracker | None) -> None:
    """Raises ConfigError, with a command that helps, if the package of a tracker is missing."""
    if name is not None and find_spec("tensorboardX") is None:
        raise ConfigError(f"log {name}", f"needs {missing_package('tensorboardX')}")


def learning_rate(config: TrainConfig, step: int, clock: Clock | None = None) -> float:
    """Returns the learning rate of the step after `step` steps: it warms up and decays to min_lr.

    Without a clock, the decay begins after the warm-up. With a clock, the decay begins at once and
    overlaps the warm-up, so that the rate ends at min_lr however few steps the time allows.
    """
    start, first, peak = 0, 0.0, config.learning_rate
    if clock is not None:
        start, peak = clock.start_step, max(config.min_lr, clock.peak * config.learning_rate)
        first = config.min_lr if start else 0.0
    warmup = config.warmup_steps
    if step < start + warmup:
        peak = first + (peak - first) * (step - start + 1) / (warmup + 1)
    if clock is not None:
        done = clock.progress
    else:
        done = min(1.0, max(0, step - warmup) / max(1, config.steps - warmup))
    if config.schedule == "cosine":
        done = 0.5 - 0.5 * math.cos(math.pi * done)
    return peak + done * (config.min_lr - peak)


@dataclass(frozen=True)
class Speed:
    """The seconds that parts of a training take: a step, the evaluation of one character, a save,
    and the fit of counting's gate, which comes before every evaluation.
    """

    step: float = 0.0
    character: float = 0.0
    saving: float = 0.0
    fitting: float = 0.0


UNKNOWN = Speed()


class Timing:
    """Measures the parts of a training in this process. spent: the seconds of the start, of
    counting, of steps, of evaluations and of saves.

    speed: estimates, which measurements replace. began: the time on `clock` at which the process
    began. is_shared: whether all ranks use the times of the first rank, as with a time budget.
    """

    def __init__(self, speed: Speed, began: float | None, is_shared: bool) -> None:
        self.clock = time.perf_counter
        self.speed, self.is_shared = speed, is_shared
        self.spent: dict[str, float] = defaultdict(float)
        self._mark = self.clock() if began is None else began
        self._newest: deque[float] = deque(maxlen=NEWEST)
        self._left_out = 0.0  # seconds of the last step that did not count
        self._planned, self._measured = speed.step, set[str]()

    def lap(self, what: str) -> float:
        """Returns the seconds since the last call. what: the part of the training in this time."""
        now = self.clock()
        seconds, self._mark = now - self._mark, now
        if self.is_shared:
            seconds = ranks.reduce(seconds if ranks.is_first() else 0.0, "SUM")
        self.spent[what] += seconds
        return seconds

    def step(self) -> float:
        """Returns the seconds of the step since the last call, at most MOST_MEDIANS medians. In a
        longer step, the machine was suspended. If the next step is as long, steps have become
        slower; then the next step also gets the seconds that did not count.
        """
        seconds, most = self.lap("steps"), math.inf
        if len(self._newest) >= ENOUGH:
            most = MOST_MEDIANS * median(self._newest)
        counted = min(seconds, most)
        left_out = seconds - counted
        if left_out and self._left_out:
            counted, left_out = seconds + self._left_out, 0.0
        self._left_out = left_out
        self.spent["steps"] += counted - seconds
        self._newest.append(min(seconds, most))
        return counted

    def replace_estimates(self, **seconds: float) -> None:
        """Replaces estimates by measurements. seconds: field of Speed -> measured seconds."""
        self.speed = replace(self.speed, **seconds)
        self._measured |= seconds.keys()

    @property
    def slowdown(self) -> float:
        """The time of a step divided by the planned time; 1 until enough steps are measured."""
        if len(self._newest) < ENOUGH or not self._planned:
            return 1.0
        return median(self._newest) / self._planned

    def is_evaluation_due(self, before: float, now: Manifest) -> bool:
        """Whether an evaluation follows a step. before: the progress before the step."""
        train = now.train
        if now.progress >= 1:
            return True
        if train.eval_interval:
            return now.step % train.eval_interval == 0
        # rounding may bring 0.7 * 10 below 7
        earlier, passed = (int(train.evaluations * at + 1e-9) for at in (before, now.progress))
        if earlier == passed or now.clock is None:
            return earlier < passed
        working = sum(self.spent.values()) - self.spent["start"]
        pauses = working - self.spent["steps"]
        return pauses + self._pause(now.evaluated_characters[0]) <= PAUSES_SHARE * working

    def affordable_at_end(self, characters: int, budget: float) -> int:
        """Returns how many of the characters can be evaluated in END_SHARE of a budget."""
        seconds, share = self._expected("character") * characters, END_SHARE * budget
        return characters if seconds <= share else int(characters * share / seconds)

    def reserve(self, now: Manifest, budget: float) -> float:
        """Returns the seconds of a budget to keep for the last evaluations and the last save."""
        read, of = now.evaluated_characters
        at_end, seconds = self.affordable_at_end(of, budget), self._pause(read)
        if at_end > read:
            seconds += self._expected("character") * at_end
        return min(seconds, MOST_RESERVED * budget)

    def _pause(self, characters: int) -> float:
        reading = self._expected("character") * characters
        return self._expected("fitting") + reading + self._expected("saving")

    def _expected(self, what: str) -> float:
        """Returns measured seconds, or estimated ones times `slowdown` if steps are slow."""
        seconds: float = getattr(self.speed, what)
        return seconds if what in self._measured else seconds * max(1.0, self.slowdown)
