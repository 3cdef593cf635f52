"""What follows from the progress of a training: the learning rate and evaluations, whose records it
writes; how long its parts take; and the events that the trainer yields. Imports no torch.

Progress is the share of the steps or, with a time budget, of the time (Manifest.progress). Without
a budget, all of this is a function of step and options, so that a run repeats bit for bit.
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
from gpt.storage.manifest import Clock, Manifest
from gpt.storage.run import Checkpoint, Run
from gpt.training import ranks
from gpt.words import missing_package

NO_CURVES = frozenset({"step", "best_step"})  # values of a record that are not measurements
NEWEST, ENOUGH = 31, 5  # newest steps whose median is known; fewer say too little
MOST_MEDIANS = 20  # a step counts at most this many median ones: the machine was suspended
PAUSES_SHARE = 0.1  # most of the time so far that evaluations, samples and saves take
END_SHARE = 0.05  # most of a time budget for reading the split at the end
MOST_RESERVED = 0.5  # most of a time budget that is kept for the end


@dataclass(frozen=True)
class Stepped:
    """One optimizer step is done. loss: the mean of its batch, in nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """The validation loss of a step in nats per character; at the end, that of the best one on the
    whole split, or on a larger part of it.
    """

    step: int
    val_loss: float


@dataclass(frozen=True)
class Evaluating:
    """The evaluation at the end begins, which may take long."""


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


Event = Stepped | Evaluated | Evaluating | Saved | Sampled | Stopped


class Records:
    """The evaluations of a run in metrics.jsonl and, if asked for, in TensorBoard's files."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._tracker: Any = None  # tensorboardX.SummaryWriter

    def track(self, step: int) -> None:
        """Also writes the records after this step to the run's folder tensorboard."""
        from tensorboardX import SummaryWriter

        # A resumed run repeats the steps after the last save; TensorBoard hides the older ones.
        purge = step + 1 if step else None
        self._tracker = SummaryWriter(logdir=str(self.run.path / "tensorboard"), purge_step=purge)

    def add(self, record: Mapping[str, float]) -> None:
        """Writes the record of an evaluation. Raises StorageError."""
        self.run.append("metrics", record)
        if self._tracker is not None:
            for name in record.keys() - NO_CURVES:
                self._tracker.add_scalar(name, record[name], record["step"])

    def close(self) -> None:
        """Ends TensorBoard's files."""
        if self._tracker is not None:
            self._tracker.close()


def check_tracker(name: Tracker | None) -> None:
    """Raises ConfigError, with the command to install it, if a tracker's package is missing."""
    if name is not None and find_spec("tensorboardX") is None:
        raise ConfigError(f"log {name}", f"needs {missing_package('tensorboardX')}")


def learning_rate(config: TrainConfig, step: int, clock: Clock | None = None) -> float:
    """The rate of the step that follows `step` steps: linear warm-up, and a decay to min_lr.

    Without a clock, the decay begins after the warm-up. With a clock, it begins at once, and both
    factors apply, so that the rate ends at min_lr however few steps the time allows.
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
    """Seconds of a step, of evaluating one character, of a save, and of fitting the gate of
    counting, which comes with each evaluation.
    """

    step: float = 0.0
    character: float = 0.0
    saving: float = 0.0
    fitting: float = 0.0


UNKNOWN = Speed()


class Timing:
    """The seconds that a training takes, in this process: of the start up to the first step, of
    counting (waiting for the counts and fitting the gate), of steps, evaluations and saves
    (`spent`).

    speed: estimates, which measurements replace. began: the time, by the clock, at which the
    process began. With a time budget, all ranks get the times of the first one.
    """

    def __init__(self, speed: Speed, began: float | None, is_shared: bool) -> None:
        self.clock = time.perf_counter
        self.speed, self.is_shared = speed, is_shared
        self.spent: dict[str, float] = defaultdict(float)
        self._mark = self.clock() if began is None else began
        self._newest: deque[float] = deque(maxlen=NEWEST)
        self._left_out = 0.0  # seconds of the last step
        self._planned, self._measured = speed.step, set[str]()

    def lap(self, what: str) -> float:
        """Seconds since the last call. what: the name of what took this time."""
        now = self.clock()
        seconds, self._mark = now - self._mark, now
        if self.is_shared:
            seconds = ranks.reduce(seconds if ranks.is_first() else 0.0, "SUM")
        self.spent[what] += seconds
        return seconds

    def step(self) -> float:
        """Seconds since the last call, for a step: at most MOST_MEDIANS median ones, as the machine
        was suspended if it took longer. If the next step is as long, steps have become slower, and
        what was left out counts after all.
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

    def measured(self, **seconds: float) -> None:
        """Replaces estimates, by their names in Speed."""
        self.speed = replace(self.speed, **seconds)
        self._measured |= seconds.keys()

    @property
    def slowdown(self) -> float:
        """How many times as long as planned a step takes; 1 if it is not known yet."""
        if len(self._newest) < ENOUGH or not self._planned:
            return 1.0
        return median(self._newest) / self._planned

    def is_due(self, before: float, now: Manifest) -> bool:
        """Whether an evaluation follows a step. before: the progress before it."""
        train = now.train
        if now.progress >= 1:
            return True
        if train.eval_interval:
            return now.step % train.eval_interval == 0
        # without 1e-9, 0.7 * 10 may be below 7
        earlier, passed = (int(train.evaluations * at + 1e-9) for at in (before, now.progress))
        if earlier == passed or now.clock is None:
            return earlier < passed
        working = sum(self.spent.values()) - self.spent["start"]
        pauses = working - self.spent["steps"]
        return pauses + self._pause(now.evaluated_characters[0]) <= PAUSES_SHARE * working

    def affordable(self, characters: int, budget: float) -> int:
        """How many of these characters can be read at the end, in END_SHARE of the budget."""
        seconds, share = self._expected("character") * characters, END_SHARE * budget
        return characters if seconds <= share else int(characters * share / seconds)

    def reserve(self, now: Manifest, budget: float) -> float:
        """The seconds of a budget kept for the last evaluation, its save and the final reading."""
        read, of = now.evaluated_characters
        at_end, seconds = self.affordable(of, budget), self._pause(read)
        if at_end > read:
            seconds += self._expected("character") * at_end
        return min(seconds, MOST_RESERVED * budget)

    def _pause(self, characters: int) -> float:
        reading = self._expected("character") * characters
        return self._expected("fitting") + reading + self._expected("saving")

    def _expected(self, what: str) -> float:
        """Seconds, as measured; an estimate is as wrong as that of a step, if steps are slower."""
        seconds: float = getattr(self.speed, what)
        return seconds if what in self._measured else seconds * max(1.0, self.slowdown)
