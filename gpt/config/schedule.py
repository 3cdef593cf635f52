"""When a run evaluates and on how many characters, its progress and learning rate, and how a run
with a time budget ends on time: pure functions of options and measured times.

A run with a time budget changes its number of steps while it trains. The option `step_plan` records
every change, so progress, learning rate and evaluations depend only on step and options. The
trainer reads the clock; this module only gets its times, so a resumed run decides as an
uninterrupted run does. All times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpt.config import ModelConfig, TrainConfig
from gpt.config.train import StepPlan

RECORDS = 500  # most records of the training between two evaluations, see is_recorded
LATER_CYCLE_PEAK = 0.5  # a later cycle raises the rate to this share of `learning_rate`


def cycle_of(config: TrainConfig, step: int) -> tuple[StepPlan, ...]:
    """The plans of the cycle that contains step number `step` (the first step has number 1). A run
    has one cycle, and another one each time that `resume` with `minutes` gives it more time.
    """
    plans = config.step_plans
    begins = [n for n, each in enumerate(plans) if each.cycle]
    first = max((n for n in begins if plans[n].start < step), default=0)
    return plans[first : min((n for n in begins if n > first), default=None)]


def progress(config: TrainConfig, step: int, since: int = 0) -> float:
    """The share of a cycle that is done after `step` steps, in [0, 1]. The cycle is the one of
    `step`; counting begins `since` steps after the cycle's start.

    Piecewise linear: when the number of steps changes, the remaining progress is distributed over
    the remaining steps.
    """
    return _progress(cycle_of(config, step), step, since)


def _progress(plans: Sequence[StepPlan], step: int, since: int = 0) -> float:
    """`progress` in the cycle with these plans."""
    done, at, steps = 0.0, plans[0].start + since, plans[0].steps
    for plan in plans[1:]:
        if plan.start >= step:
            break
        if plan.start > at:
            done, at = _between(done, at, plan.start, steps), plan.start
        steps = plan.steps
    return _between(done, at, step, steps)


def _between(done: float, at: int, step: int, steps: int) -> float:
    """Progress at `step`, linear from `done` at step `at` to 1 at step `steps`."""
    if step <= at:
        return done
    return min(1.0, done + (1 - done) * (step - at) / (steps - at)) if step < steps else 1.0


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of the step that follows `step` steps: linear warm-up, then a decay to min_lr.

    A later cycle starts from the last rate of the cycle before, and rises to LATER_CYCLE_PEAK of
    `learning_rate` if that is higher. If a time budget ends the cycle within the warm-up, the rate
    falls linearly to min_lr from the step at which the trainer shortens the plan.
    """
    plans = cycle_of(config, step + 1)
    begin, first, peak, warmup = plans[0].start, 0.0, config.learning_rate, config.warmup_steps
    if plans[0].cycle:
        first = learning_rate(begin - 1, config)
        peak = max(first, config.min_lr, LATER_CYCLE_PEAK * peak)
        warmup = min(warmup, (plans[0].steps - begin) // 10) if first < peak else 0
    if step < begin + warmup:
        rate = first + (peak - first) * (step - begin + 1) / (warmup + 1)
        start, steps, *_ = [plan for plan in plans if plan.start <= step][-1]
        if start == begin or steps > begin + warmup:
            return rate
        return rate + (step - start) / (steps - start) * (config.min_lr - rate)
    done = _progress(plans, step, since=warmup)
    if config.schedule == "cosine":
        done = 0.5 - 0.5 * math.cos(math.pi * done)
    return peak + done * (config.min_lr - peak)


def replan_steps(
    config: TrainConfig, step: int, steps: int, evaluations: int = 0, cycle: bool = False
) -> TrainConfig:
    """The options with `steps` as the new end, planned after `step` steps, beside earlier plans.

    evaluations: how many follow from there on; 0: as planned before. cycle: whether a new cycle
    begins there.
    """
    plans = [plan for plan in config.step_plans if plan.start <= step]
    if plans[-1].start == step:
        last = plans.pop()
        evaluations, cycle = evaluations or last.evaluations, cycle or last.cycle
    plans.append(StepPlan(step, steps, evaluations, cycle and step > 0))
    texts = (
        f"{plan.start}{'+' * plan.cycle}:{plan.steps}"
        + f":{plan.evaluations}" * (plan.evaluations > 0)
        for plan in plans
    )
    return replace(config, steps=steps, step_plan=" ".join(texts))


def is_due(config: TrainConfig, step: int) -> bool:
    """Whether an evaluation follows this step. One always follows the last step."""
    plans = cycle_of(config, step)
    if step == plans[-1].steps:
        return True
    if config.eval_interval:
        return step > 0 and step % config.eval_interval == 0
    since, count = _evaluations(config, step)
    passed, before = (_passed(plans, each, since, count) for each in (step, step - 1))
    return step > 0 and passed > before


def is_recorded(config: TrainConfig, step: int) -> bool:
    """Whether a record of the training follows this step: at most RECORDS in a cycle, evenly
    distributed, with one after its last step.
    """
    plans = cycle_of(config, step)
    written, before = (int(RECORDS * _progress(plans, n) + 1e-9) for n in (step, step - 1))
    return step > 0 and written > before


def evaluations_left(config: TrainConfig, step: int = 0) -> int:
    """How many evaluations come after this step."""
    steps = max(0, config.steps - step)
    if steps and config.eval_interval:
        return -(-config.steps // config.eval_interval) - step // config.eval_interval
    since, count = _evaluations(config, step + 1)
    passed = _passed(cycle_of(config, step + 1), step, since, count)
    return min(steps, max(count - passed, int(steps > 0)))


def _evaluations(config: TrainConfig, step: int) -> tuple[int, int]:
    """The plan that contains step `step`: its first step and its number of evaluations."""
    plans = cycle_of(config, step)
    known = ((it.start, it.evaluations) for it in reversed(plans) if it.evaluations)
    first = plans[0].start, config.evaluations
    return next((plan for plan in known if plan[0] < step), first)


def _passed(plans: Sequence[StepPlan], step: int, since: int, count: int) -> int:
    """How many of `count` evaluations, spread evenly from step `since` on, are done."""
    begun = _progress(plans, since)
    share = (_progress(plans, step) - begun) / (1 - begun)
    passed = int(count * share + 1e-9)  # without 1e-9, 0.7 * 10 may be below 7
    return min(passed, count - (step < plans[-1].steps))


def step_characters(model: ModelConfig, train: TrainConfig) -> int:
    """How many characters a step learns to predict."""
    return train.batch_size * model.block_size


def characters_read(total: int, block: int, most: int) -> int:
    """How many of the `total` characters an evaluation predicts, at most `most` (0: all).

    A part consists of whole windows of `block` characters, or of a part of one window.
    """
    if not 0 < most < total:
        return total
    return most // block * block or most


CHECK_SHARE = 0.02  # the trainer checks its plan whenever steps have taken this share of the time
FIRST_STEPS, FIRST_LOOK = 10, 0.1  # first check after this many steps, or this share of the time
NEWEST_WEIGHT = 0.3  # weight of the newest steps in the estimate of a step's time
#: A forecast error that changes no plan: a share of the whole time, plus a share of the rest.
TOLERANCE, DRIFT = 0.02, 0.05
#: Evaluations but the last, and their saves, take at most this share of the time that is left.
MOST_PAUSE_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The time that a run may take, and its speed so far.

    seconds: from the start of training to the last save, including evaluations and saves. since:
    the run's time at the start of the cycle that the budget is for.
    per_step, evaluating, saving: estimated times; a save and a sample follow every evaluation.
    last: the time of the final evaluation of the whole validation split, in steps that take as
    long; 0 if it comes after the budget. most_steps: a limit that the corpus sets; 0: none. steps,
    stepping: the number of steps since the last check, and the time that they took. estimated: no
    step has been timed yet. Raises ValueError for a negative time.
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
    since: float = 0.0

    def __post_init__(self) -> None:
        times = (self.seconds, self.per_step, self.evaluating, self.saving)
        if min(*times, self.last, self.stepping, self.since) < 0:
            raise ValueError("budget: a time is negative")

    @property
    def ends(self) -> float:
        """The run's time at which its last cycle ends."""
        return self.since + self.seconds

    def after_step(self, seconds: float, left: int) -> Budget:
        """Returns the budget after one more step, with `left` steps to do. When a check of the plan
        is due, it updates the speed and sets `steps` to 0. A check is due when steps have taken
        CHECK_SHARE of the time, or half of the steps that were left at the last check are done. So
        a run whose steps become faster at its end gets more of them. The first check replaces an
        estimated speed; it waits for FIRST_STEPS, so that a few slow steps do not end a short run.
        If steps are k times as slow as estimated, and no evaluation has been timed yet, the
        estimated time of an evaluation is multiplied by √k: a busy machine slows evaluations less
        than steps.
        """
        steps, stepping = self.steps + 1, self.stepping + seconds
        looks = FIRST_LOOK / CHECK_SHARE if self.estimated and steps < FIRST_STEPS else 1.0
        if stepping < looks * CHECK_SHARE * self.seconds and not 0 < left <= steps:
            return replace(self, steps=steps, stepping=stepping)
        weight = 1.0 if self.estimated else NEWEST_WEIGHT
        per_step = (1 - weight) * self.per_step + weight * (stepping / steps)
        slower = per_step / max(self.per_step, 1e-9) if self.estimated else 1.0
        return replace(
            self,
            per_step=per_step,
            evaluating=self.evaluating * slower**0.5,
            last=self.last / slower**0.5,  # in steps
            steps=0,
            stepping=0.0,
            estimated=False,
        )

    def evaluated(self, fitting: float, reading: float, share: float) -> Budget:
        """Returns the budget after an evaluation. fitting: the time that it took to fit the gate of
        counting; reading: the time to read this share of the characters that the last evaluation
        reads.
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
        """The options with as many steps as the time left allows. If all evaluations but the last
        would take more than MOST_PAUSE_SHARE of it, there are fewer of them.

        If the forecast misses the budget only by little, the number of steps does not change. A
        plan has at least 1 % more steps than are done, so that the learning rate can fall.
        """
        left = self.ends - elapsed
        most = 1 + int(max(0.0, MOST_PAUSE_SHARE * left / max(self.evaluating + self.saving, 1e-9)))
        if not config.eval_interval and evaluations_left(config, step) > most:
            if step:
                config = replan_steps(config, step, config.steps, most)
            else:
                config = replace(config, evaluations=most)
        remaining = self.remaining(config, step)
        tolerated = TOLERANCE * self.seconds + DRIFT * remaining
        if abs(remaining - left) <= max(tolerated, self.per_step):
            return config
        each, pauses = self.per_step, self._pauses(config, step)
        if config.eval_interval:  # more steps then mean more evaluations
            each += (self.evaluating + self.saving) / config.eval_interval
            pauses = self.last * self.per_step
        steps = step + max(1, step // 100, round((left - pauses) / max(each, 1e-9)))
        if remaining > left:  # late: never add steps
            steps = min(steps, config.steps)
        elif self.most_steps:
            steps = max(config.steps, min(steps, self.most_steps))
        return config if steps == config.steps else replan_steps(config, step, steps)
