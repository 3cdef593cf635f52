"""How many steps and evaluations fit a time: pure functions of measurements before the run.

The last evaluation reads the whole validation split. Those before it read a part, so small that
they take a few hundredths of the training's time. Knows no clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from gpt.config import TrainConfig
from gpt.config.budget import Budget
from gpt.config.schedule import characters_read, evaluations_left
from gpt.training.fit import Recipe

SHARE = 0.04  # of a training's time, for all evaluations before the last whole one
LEAST = 2_000  # characters that an evaluation reads, if the split has them
SAVES = 0.1  # of the time, for the saves that come with evaluations
LAST = 0.25  # of the time, for the last evaluation; a longer one comes after the time
SAVED = 10**8  # bytes per second that a save hashes and writes: a low estimate before the first
ROUNDS = 12  # iterations until the number of steps converges


@dataclass(frozen=True)
class Validation:
    """The number of characters to predict, in windows of `block`."""

    characters: int
    block: int

    def read(self, most: int) -> int:
        """How many of them an evaluation reads that may read at most `most` (0: all)."""
        return characters_read(self.characters, self.block, most)


@dataclass(frozen=True)
class Measurement:
    """Seconds of a step, of evaluating one character and of a save; the most bytes used."""

    seconds_per_step: float
    seconds_per_character: float
    memory: int
    saving: float = 0.0

    def evaluating(self, config: TrainConfig, split: Validation) -> float:
        """Seconds of each evaluation before the last whole one."""
        return self.seconds_per_character * split.read(config.eval_part or config.eval_chars)

    def last(self, config: TrainConfig, split: Validation) -> float:
        """Seconds of the last, whole evaluation, if the others read a part."""
        return self.seconds_per_character * split.read(config.eval_chars) * (config.eval_part > 0)

    def total_seconds(self, config: TrainConfig, split: Validation, step: int = 0) -> float:
        """Seconds from `step` on, with evaluations and saves, without the last whole evaluation."""
        pauses = evaluations_left(config, step)
        each = self.evaluating(config, split) + self.saving
        return (config.steps - step) * self.seconds_per_step + pauses * each + self.saving


def fit_evaluations(
    recipe: Recipe, given: Collection[str], measured: Measurement, split: Validation
) -> Recipe:
    """Evaluations that read as much of the split as SHARE of the training's time allows.

    The cost of an evaluated character, as a multiple of a trained one's, is rounded up to a power
    of two, so that repeated measurements give the same part.
    """
    if "eval_chars" in given and "eval_part" not in given:
        return recipe.changed({"eval_part": 0}, given)
    trained = measured.seconds_per_step / recipe.step_characters  # seconds for one character
    cost = 2.0 ** math.ceil(math.log2(max(measured.seconds_per_character / trained, 1e-3)))
    evaluations = max(1, evaluations_left(recipe.train))
    allowed = SHARE * recipe.train.steps * recipe.step_characters / (evaluations * cost)
    part = max(LEAST, split.block, int(allowed))
    whole = split.read(recipe.train.eval_chars) <= part
    return recipe.changed({"eval_part": 0 if whole else part}, given)


def fit_time(
    recipe: Recipe,
    given: Collection[str],
    measured: Measurement,
    split: Validation,
    seconds: float,
    most_steps: int = 0,
) -> Recipe:
    """The number of steps, at least one, that fits the time with their evaluations and saves.

    There are ten evaluations, or fewer if their saves would take more than SAVES of the time.
    most_steps, if not 0, may end the run earlier. At least half of the time is for steps.
    """
    if not recipe.train.eval_interval:
        used = min(seconds, (most_steps or math.inf) * measured.seconds_per_step)
        most = SAVES * used / max(measured.saving, 1e-9)
        recipe = recipe.changed({"evaluations": max(1, min(10, int(most)))}, given)
    least = seconds / 2 / measured.seconds_per_step
    steps = 2 * least
    for _ in range(ROUNDS):
        recipe = recipe.changed({"steps": max(1, int(steps))}, ())
        recipe = fit_evaluations(recipe, given, measured, split)
        last = measured.last(recipe.train, split)
        total = measured.total_seconds(recipe.train, split) + last * (last <= LAST * seconds)
        steps = max(least, recipe.train.steps * seconds / total)
    return recipe


def budget_of(
    recipe: Recipe, measured: Measurement, split: Validation, seconds: float, most_steps: int
) -> Budget:
    """The trainer's budget. It includes the last evaluation if that is short."""
    last = measured.last(recipe.train, split)
    return Budget(
        seconds=seconds,
        per_step=measured.seconds_per_step,
        evaluating=measured.evaluating(recipe.train, split),
        saving=measured.saving,
        last=last / measured.seconds_per_step if last <= LAST * seconds else 0.0,
        most_steps=most_steps,
    )
