"""How a run with a time budget ends on time: its measured speed, and when its plan changes.

The trainer reads the clock. This module has pure functions of those times only, so a resumed run
decides as an uninterrupted one does. All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpt.config import TrainConfig
from gpt.config.schedule import evaluations_left, replanned

LOOK = 0.02  # the trainer checks its plan whenever steps have taken this share of the time
FIRST_STEPS, FIRST_LOOK = 10, 0.1  # the first check: after so many steps, or this share at most
NEWEST = 0.3  # weight of the steps since the last check in the estimate of a step's time
#: Error of a forecast that changes no plan: as a share of the whole time, plus one of what remains.
TOLERANCE, DRIFT = 0.02, 0.05
PAUSES = 0.2  # largest share of the time left for evaluations but the last, and their saves


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The time that a run may take, and its speed so far.

    seconds: from the start of training to the last save, evaluations and saves included.
    per_step, evaluating, saving: estimates; every evaluation is followed by a save and a sample.
    last: time of the final evaluation of the whole validation split, as a number of steps that
    take as long; 0 if it comes after the budget. most_steps: limit that the corpus sets; 0: none.
    steps, stepping: number of steps since the last check, and the time that they took. estimated:
    no step has been timed yet. Raises ValueError for a negative time.
    """

    seconds: float
    per_step: float
    evaluating: float
    saving: float
    last: float = 0.0
    most_steps: int = 0
    steps: int = 0
    stepping: float = 0.0
    estimated: bool = False

    def __post_init__(self) -> None:
        times = (self.seconds, self.per_step, self.evaluating, self.saving)
        if min(*times, self.last, self.stepping) < 0:
            raise ValueError("budget: a time is negative")

    def stepped(self, seconds: float, left: int) -> Budget:
        """Returns the budget after one more step, with `left` steps to do. When a check of the plan
        is due, the speed is updated and `steps` is set to 0: whenever steps have taken LOOK of the
        time, or after half of the steps that the last check has left, so that a run whose steps
        become faster at its end gets more of them. The first check replaces an estimated speed; it
        waits for FIRST_STEPS, so that a few slow steps do not end a short run. Until an evaluation
        is timed, steps k times as slow as estimated multiply its estimate by √k: a busy machine
        slows evaluations less than steps.
        """
        steps, stepping = self.steps + 1, self.stepping + seconds
        looks = FIRST_LOOK / LOOK if self.estimated and steps < FIRST_STEPS else 1.0
        if stepping < looks * LOOK * self.seconds and not 0 < left <= steps:
            return replace(self, steps=steps, stepping=stepping)
        weight = 1.0 if self.estimated else NEWEST
        per_step = (1 - weight) * self.per_step + weight * (stepping / steps)
        slower = per_step / max(self.per_step, 1e-9) if self.estimated else 1.0
        return replace(
            self,
            per_step=per_step,
            evaluating=self.evaluating * slower**0.5,
            last=self.last / slower**0.5,  # as a number of steps
            steps=0,
            stepping=0.0,
            estimated=False,
        )

    def evaluated(self, fitting: float, reading: float, share: float) -> Budget:
        """Returns the budget after an evaluation. fitting: the time to fit the gate of counting;
        reading: to read this share of the characters that the last evaluation reads.
        """
        last = reading / share / max(self.per_step, 1e-9) if self.last else 0.0
        return replace(self, evaluating=fitting + reading, last=last)

    def remaining(self, config: TrainConfig, step: int) -> float:
        """The time that the rest of the run takes, as planned."""
        return (config.steps - step) * self.per_step + self._pauses(config, step)

    def _pauses(self, config: TrainConfig, step: int) -> float:
        each = self.evaluating + self.saving
        return evaluations_left(config, step) * each + self.last * self.per_step

    def replan(self, config: TrainConfig, step: int, elapsed: float) -> TrainConfig:
        """The options with as many steps as the time that is left allows. There are fewer
        evaluations if all but the last would take more than PAUSES of it.

        If the forecast misses the budget only by little, the number of steps does not change. Plans
        at least 1 % more steps than those done, so that the learning rate can fall.
        """
        left = self.seconds - elapsed
        most = 1 + int(max(0.0, PAUSES * left / max(self.evaluating + self.saving, 1e-9)))
        if not config.eval_interval and evaluations_left(config, step) > most:
            if step:
                config = replanned(config, step, config.steps, most)
            else:
                config = replace(config, evaluations=most)
        remaining = self.remaining(config, step)
        tolerated = TOLERANCE * self.seconds + DRIFT * remaining
        if abs(remaining - left) <= max(tolerated, self.per_step):
            return config
        each, pauses = self.per_step, self._pauses(config, step)
        if config.eval_interval:  # then more steps mean more evaluations
            each += (self.evaluating + self.saving) / config.eval_interval
            pauses = self.last * self.per_step
        steps = step + max(1, step // 100, round((left - pauses) / max(each, 1e-9)))
        if remaining > left:  # late: never add steps
            steps = min(steps, config.steps)
        elif self.most_steps:
            steps = max(config.steps, min(steps, self.most_steps))
        return config if steps == config.steps else replanned(config, step, steps)
