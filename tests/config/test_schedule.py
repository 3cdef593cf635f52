"""Progress and evaluations of a run, also after a change of its number of steps."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.config.schedule import (
    LATER_CYCLE_PEAK,
    characters_read,
    evaluations_left,
    is_due,
    learning_rate,
    progress,
    replan_steps,
)
from gpt.errors import ConfigError

CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 400)), max_size=6)


def changed(config: TrainConfig, changes: list[tuple[float, int]]) -> TrainConfig:
    """A run that is replanned at these shares of its steps, each time with a new number of further
    steps.
    """
    at = 0
    for share, more in changes:
        at += int(share * (config.steps - 1 - at))
        config = replan_steps(config, at, at + more)
    return config


def test_progress_is_piecewise_linear() -> None:
    config = replan_steps(TrainConfig(steps=100), 50, 150)
    assert (config.steps, config.step_plan) == (150, "0:100 50:150")
    assert [progress(config, step) for step in (0, 25, 50, 100, 150)] == [0, 0.25, 0.5, 0.75, 1]
    shorter = replan_steps(config, 100, 110)
    assert [progress(shorter, step) for step in (100, 106, 110)] == pytest.approx([0.75, 0.9, 1])
    assert progress(TrainConfig(steps=100), 40, since=20) == 0.25
    assert progress(config, 30, since=50) == 0


@settings(deadline=None)
@given(st.integers(1, 300), CHANGES, st.sampled_from([0, 20, 1000]))
def test_schedule_progress_never_falls_and_ends_at_one(
    steps: int, changes: list[tuple[float, int]], since: int
) -> None:
    config = changed(TrainConfig(steps=steps), changes)
    way = [progress(config, step, since) for step in range(config.steps + 1)]
    assert way == sorted(way)
    assert way[-1] == (since < config.steps)
    assert all(0 <= share <= 1 for share in way)


@settings(deadline=None)
@given(st.integers(1, 300), CHANGES)
def test_a_new_plan_does_not_change_the_past(steps: int, changes: list[tuple[float, int]]) -> None:
    before = changed(TrainConfig(steps=steps), changes)
    at = before.steps // 2
    after = replan_steps(before, at, at + 77)
    for step in range(at + 1):
        assert progress(after, step) == progress(before, step)
        assert step == before.steps or is_due(after, step) == is_due(before, step)


@settings(deadline=None)
@given(st.integers(1, 300), CHANGES, st.integers(1, 12), st.sampled_from([0, 0, 7, 1000]))
@example(52, [(1.0, 55), (1.0, 57), (1.0, 59), (1.0, 104)], 1, 0)  # planned again at the last step
def test_number_of_evaluations_equals_the_announced_number(
    steps: int, changes: list[tuple[float, int]], evaluations: int, interval: int
) -> None:
    options = TrainConfig(steps=steps, evaluations=evaluations, eval_interval=interval)
    config = changed(options, changes)
    due = [step for step in range(config.steps + 1) if is_due(config, step)]
    assert due[-1] == config.steps
    assert 0 not in due
    for step in (config.step_plans[-1][0], (config.step_plans[-1][0] + config.steps) // 2):
        assert evaluations_left(config, step) == sum(each > step for each in due)


def test_ten_evaluations_are_evenly_spaced() -> None:
    config = TrainConfig(steps=2000)
    assert [step for step in range(2001) if is_due(config, step)] == [*range(200, 2001, 200)]
    config = TrainConfig(steps=20, eval_interval=7)
    assert [step for step in range(21) if is_due(config, step)] == [7, 14, 20]


def test_a_new_cycle_has_its_own_progress_and_evaluations_and_keeps_those_before() -> None:
    before = TrainConfig(steps=100, evaluations=4, warmup_steps=10, learning_rate=1.0)
    config = replan_steps(before, 100, 300, 2, cycle=True)
    config = replan_steps(config, 200, 260)  # a busy machine
    assert config.step_plan == "0:100 100+:300:2 200:260"
    assert [progress(config, step) for step in (50, 100, 150, 200, 230)] == [
        0.5,
        1,
        0.25,
        0.5,
        0.75,
    ]
    due = [step for step in range(261) if is_due(config, step)]
    assert due == [25, 50, 75, 100, 200, 260]
    assert [evaluations_left(config, step) for step in (100, 200)] == [2, 1]
    rates = [learning_rate(step, config) for step in range(261)]
    assert rates[:100] == [learning_rate(step, before) for step in range(100)]
    assert rates[99] < rates[100] < rates[109] < rates[110] == LATER_CYCLE_PEAK
    assert rates[110:] == sorted(rates[110:], reverse=True)
    assert rates[260] == 0
    early = replan_steps(before, 40, 140, cycle=True)  # the rate has not fallen that far
    assert [learning_rate(step, early) for step in range(39, 140)] == sorted(
        (learning_rate(step, early) for step in range(39, 140)), reverse=True
    )
    assert learning_rate(40, early) == learning_rate(39, before) > LATER_CYCLE_PEAK


@pytest.mark.parametrize(
    "plan",
    [
        "0+:2000",
        "0:9 5-:2000",
        "x",
        "0:5",
        "0:2000 5",
        "3:2000",
        "0:9 9:2000 9:2000",
        "0:9 10:2000 5:2000",
        "0:3 4:4",
    ],
)
def test_invalid_step_plan_is_refused(plan: str) -> None:
    with pytest.raises(ConfigError, match=r"^step_plan: "):
        TrainConfig(step_plan=plan)


def test_evaluated_part_is_whole_windows_or_less_than_one() -> None:
    assert [characters_read(1000, 64, most) for most in (0, 1000, 2000, 999, 130, 64, 63, 1)] == [
        *(1000, 1000, 1000, 960, 128, 64, 63, 1)
    ]
