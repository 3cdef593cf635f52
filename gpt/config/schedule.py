"""When a run evaluates, on how many characters, its progress and its learning rate: pure functions
of the options.

A run with a time budget changes its number of steps while it trains. The option `step_plan` records
every change, so progress, learning rate and evaluations depend only on step and options. Uses no
clock and no torch.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gpt.config import ModelConfig, TrainConfig

RECORDS = 500  # most records of the training between evaluations, see is_recorded


def progress(config: TrainConfig, step: int, since: int = 0) -> float:
    """The share of the run from step `since` on that is done after `step` steps, in [0, 1].

    Piecewise linear: when the number of steps changes, the remaining progress is distributed over
    the remaining steps.
    """
    done, at, steps = 0.0, since, config.horizons[0][1]
    for start, changed, _ in config.horizons[1:]:
        if start >= step:
            break
        if start > at:
            done, at = _between(done, at, start, steps), start
        steps = changed
    return _between(done, at, step, steps)


def _between(done: float, at: int, step: int, steps: int) -> float:
    """Progress at `step`: linear from `done` at step `at` to 1 at step `steps`."""
    if step <= at:
        return done
    return min(1.0, done + (1 - done) * (step - at) / (steps - at)) if step < steps else 1.0


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of the step after `step` steps: linear warm-up, then down to min_lr.

    If a time budget ends the run within the warm-up, the rate falls linearly to min_lr from the
    step at which the trainer shortens the plan.
    """
    if step < config.warmup_steps:
        rate = config.learning_rate * (step + 1) / (config.warmup_steps + 1)
        start, steps, _ = [plan for plan in config.horizons if plan[0] <= step][-1]
        if start == 0 or steps > config.warmup_steps:
            return rate
        return rate + (step - start) / (steps - start) * (config.min_lr - rate)
    done = progress(config, step, since=config.warmup_steps)
    if config.schedule == "cosine":
        done = 0.5 - 0.5 * math.cos(math.pi * done)
    return config.learning_rate + done * (config.min_lr - config.learning_rate)


def replanned(config: TrainConfig, step: int, steps: int, evaluations: int = 0) -> TrainConfig:
    """The options with `steps` as the new end, planned after `step` steps; earlier plans stay.

    evaluations: from there on; 0: as planned before.
    """
    plans = [plan for plan in config.horizons if plan[0] <= step]
    if plans[-1][0] == step:
        evaluations = evaluations or plans.pop()[2]
    plans.append((step, steps, evaluations))
    texts = (f"{start}:{end}" + f":{count}" * (count > 0) for start, end, count in plans)
    return replace(config, steps=steps, step_plan=" ".join(texts))


def is_due(config: TrainConfig, step: int) -> bool:
    """Whether an evaluation follows this step; one always follows the last."""
    if step == config.steps:
        return True
    if config.eval_interval:
        return step > 0 and step % config.eval_interval == 0
    since, count = _evaluations(config, step)
    passed, before = (_passed(config, each, since, count) for each in (step, step - 1))
    return step > 0 and passed > before


def is_recorded(config: TrainConfig, step: int) -> bool:
    """Whether a record of the training follows this step: at most RECORDS in a run, evenly
    distributed, with one after the last step.
    """
    return step > 0 and _records(config, step) > _records(config, step - 1)


def _records(config: TrainConfig, step: int) -> int:
    """How many records are written after this step, if each of them comes after several steps."""
    return int(RECORDS * progress(config, step) + 1e-9)


def evaluations_left(config: TrainConfig, step: int = 0) -> int:
    """How many evaluations come after this step."""
    steps = max(0, config.steps - step)
    if steps and config.eval_interval:
        return -(-config.steps // config.eval_interval) - step // config.eval_interval
    since, count = _evaluations(config, step + 1)
    return min(steps, max(count - _passed(config, step, since, count), int(steps > 0)))


def _evaluations(config: TrainConfig, step: int) -> tuple[int, int]:
    """The plan that step `step` is in: the step since which it has so many evaluations."""
    plans = ((start, count) for start, _, count in reversed(config.horizons) if count)
    return next((plan for plan in plans if plan[0] < step), (0, config.evaluations))


def _passed(config: TrainConfig, step: int, since: int, count: int) -> int:
    """How many of the `count` evaluations, evenly distributed since that step, are done."""
    begun = progress(config, since)
    share = (progress(config, step) - begun) / (1 - begun)
    passed = int(count * share + 1e-9)  # 0.7 * 10 may be below 7
    return min(passed, count - (step < config.steps))


def step_characters(model: ModelConfig, train: TrainConfig, mean_length: float = 0.0) -> int:
    """Characters that a step learns to predict; of pairs, whose targets have a mean length, their
    mean number.
    """
    return max(1, round(train.batch_size * (mean_length or model.block_size)))


def characters_read(total: int, block: int, most: int) -> int:
    """Number of the `total` characters that an evaluation predicts, at most `most` (0: all).

    A part consists of whole windows of `block` characters, or of a part of one window.
    """
    if not 0 < most < total:
        return total
    return most // block * block or most
