"""When a run evaluates, on how many characters, and its progress: pure functions of the options.

A run with a time budget changes its number of steps while it trains. The option `step_plan` records
every change, so progress, learning rate and evaluations depend only on step and options. Uses no
clock and no torch.
"""

from __future__ import annotations

from dataclasses import replace

from gpt.config import TrainConfig


def progress(config: TrainConfig, step: int, since: int = 0) -> float:
    """The share of the run from step `since` on that is done after `step` steps, in [0, 1].

    Piecewise linear: when the number of steps changes, the remaining progress is distributed over
    the remaining steps.
    """
    done, at, steps = 0.0, since, config.horizons[0][1]
    for start, changed in config.horizons[1:]:
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


def replanned(config: TrainConfig, step: int, steps: int) -> TrainConfig:
    """The options with `steps` as the new end, planned after `step` steps; earlier plans stay."""
    plan = [(start, old) for start, old in config.horizons if start < step] + [(step, steps)]
    text = " ".join(f"{start}:{number}" for start, number in plan)
    return replace(config, steps=steps, step_plan=text)


def is_due(config: TrainConfig, step: int) -> bool:
    """Whether an evaluation follows this step; one always follows the last."""
    if step == config.steps:
        return True
    if config.eval_interval:
        return step > 0 and step % config.eval_interval == 0
    return step > 0 and _passed(config, step) > _passed(config, step - 1)


def evaluations_left(config: TrainConfig, step: int = 0) -> int:
    """How many evaluations come after this step."""
    steps = max(0, config.steps - step)
    if steps and config.eval_interval:
        return -(-config.steps // config.eval_interval) - step // config.eval_interval
    return min(steps, max(config.evaluations - _passed(config, step), int(steps > 0)))


def _passed(config: TrainConfig, step: int) -> int:
    """How many of the evenly distributed evaluations are done after this step."""
    passed = int(config.evaluations * progress(config, step) + 1e-9)  # 0.7 * 10 may be below 7
    return min(passed, config.evaluations - (step < config.steps))


def characters_read(total: int, block: int, most: int) -> int:
    """Number of the `total` characters that an evaluation predicts, at most `most` (0: all).

    A part consists of whole windows of `block` characters, or of a part of one window.
    """
    if not 0 < most < total:
        return total
    return most // block * block or most
