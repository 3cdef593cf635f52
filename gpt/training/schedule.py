"""What follows from the progress of a training: the learning rate, evaluations, records.

Progress is the share of the steps or, with a time budget, of the time (Manifest.progress). Without
a budget, all of this is a function of step and options, so that a run repeats bit for bit.
"""

from __future__ import annotations

import math

from gpt.config import TrainConfig
from gpt.storage.manifest import Clock, Manifest

RECORDS = 500  # most records of the training between two evaluations


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
    done = _done(config, step) if clock is None else clock.progress
    if config.schedule == "cosine":
        done = 0.5 - 0.5 * math.cos(math.pi * done)
    return peak + done * (config.min_lr - peak)


def _done(config: TrainConfig, step: int) -> float:
    """The share of the decay that is done after `step` of all steps."""
    if step <= config.warmup_steps:
        return 0.0
    if step >= config.steps:
        return 1.0
    return (step - config.warmup_steps) / (config.steps - config.warmup_steps)


def is_due(before: float, now: Manifest) -> bool:
    """Whether an evaluation follows a step. before: the progress before this step."""
    config = now.train
    if now.progress >= 1:
        return True
    if config.eval_interval:
        return now.step > 0 and now.step % config.eval_interval == 0
    return _passed(config.evaluations, now.progress) > _passed(config.evaluations, before)


def is_recorded(before: float, now: Manifest) -> bool:
    """Whether a record of the training follows a step: at most RECORDS, evenly distributed, with
    one after the last step.
    """
    return _passed(RECORDS, now.progress) > _passed(RECORDS, before)


def _passed(count: int, progress: float) -> int:
    """How many of `count` evenly distributed events are done."""
    return int(count * progress + 1e-9)  # without 1e-9, 0.7 * 10 may be below 7
