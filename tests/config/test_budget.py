"""A run with a time budget ends in time and finishes its schedule at any speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.config.schedule import CHECK_SHARE, Budget, is_due, learning_rate, progress, replan_steps
from gpt.config.train import StepPlan

SECONDS = 120.0
CONFIG = TrainConfig(steps=1080, step_plan="0:1080")
BUDGET = Budget(seconds=SECONDS, per_step=0.1, evaluating=0.4, saving=0.6, last=20.0)


def ends(
    slower: Callable[[float], float],
    budget: Budget = BUDGET,
    config: TrainConfig = CONFIG,
    saving: float = 0.6,
) -> tuple[float, TrainConfig]:
    """(seconds, options at the end) of a run on a machine whose speed changes with time."""
    elapsed, step = 0.0, 0
    config = budget.replan(config, step, elapsed)
    while step < config.steps:
        took = 0.1 * slower(elapsed)
        elapsed, step = elapsed + took, step + 1
        budget = budget.after_step(took, config.steps - step)
        if budget.steps == 0 and step < config.steps:
            config = budget.replan(config, step, elapsed)
        if is_due(config, step):
            elapsed += (0.4 + saving) * slower(elapsed)
    return elapsed + 2.0 * slower(elapsed), config


@pytest.mark.parametrize(
    "slower",
    [
        lambda now: 1.0,
        lambda now: 3.0,
        lambda now: 1 / 3,
        lambda now: 3.0 if now < 30 else 1.0,
        lambda now: 3.0 if now > 110 else 1.0,
        lambda now: 1 / 3 if now > 100 else 1.0,
        lambda now: 3.0 if int(now / 7) % 2 else 1.0,
        lambda now: 1 + now / 60,
    ],
)
def test_run_ends_within_a_tenth_of_its_time(slower: Callable[[float], float]) -> None:
    seconds, config = ends(slower)
    assert seconds == pytest.approx(SECONDS, rel=0.1)
    assert progress(config, config.steps) == 1
    assert sum(is_due(config, step) for step in range(config.steps + 1)) == 10
    assert len(config.step_plans) <= 2 + 1 / CHECK_SHARE


@settings(deadline=None, max_examples=50)
@given(
    st.floats(0.3, 3),
    st.floats(0.3, 3),
    st.floats(0, 0.9),
    st.sampled_from([0, 25, 200]),
)
def test_run_ends_in_time_if_the_speed_changes(
    before: float, after: float, share: float, interval: int
) -> None:
    """Within a tenth for a change by a factor of up to four, within a fifth up to ten: a late
    change of that size (3 to 0.3 after 78 % of the time) leaves too little time to adapt."""
    config = TrainConfig(steps=1080, step_plan="0:1080", eval_interval=interval)
    seconds, _ = ends(lambda now: before if now < share * SECONDS else after, BUDGET, config)
    sudden = max(before, after) > 2 or min(before, after) < 0.5
    assert seconds == pytest.approx(SECONDS, rel=0.2 if sudden else 0.1)


@pytest.mark.parametrize("wrong", [0.1, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("last", [0.0, 20.0])
def test_a_wrong_estimate_of_the_speed_is_corrected_by_the_first_check(
    wrong: float, last: float
) -> None:
    steps = int(1080 * wrong)
    config = TrainConfig(steps=steps, step_plan=f"0:{steps}")
    guess = replace(BUDGET, per_step=0.1 / wrong, evaluating=0.4 / wrong, estimated=True, last=last)
    budget = guess
    for _ in range(int(CHECK_SHARE * SECONDS / 0.1) + 1):
        budget = budget.after_step(0.1, 1080)
    assert budget.per_step == pytest.approx(0.1)
    assert budget.evaluating == pytest.approx(0.4 / wrong**0.5)
    assert budget.last == pytest.approx(last / wrong**0.5)
    assert not budget.estimated
    assert budget.stepping < CHECK_SHARE * SECONDS / 2
    seconds, config = ends(lambda now: 1.0, guess, config)
    assert seconds == pytest.approx(SECONDS, rel=0.2)
    assert progress(config, config.steps) == 1


def test_two_slow_steps_do_not_replace_the_estimate() -> None:
    budget = replace(BUDGET, estimated=True).after_step(2.0, 99).after_step(2.0, 98)
    assert (budget.estimated, budget.per_step, budget.steps) == (True, 0.1, 2)
    for _ in range(8):
        budget = budget.after_step(0.1, 1080)
    assert (budget.estimated, budget.per_step) == (False, pytest.approx(0.48))
    assert not replace(BUDGET, estimated=True).after_step(0.1 * SECONDS, 99).estimated


def test_an_evaluation_tells_how_long_the_last_one_takes() -> None:
    budget = BUDGET.evaluated(fitting=0.5, reading=0.25, share=0.125)
    assert (budget.evaluating, budget.last * budget.per_step) == (0.75, pytest.approx(2))
    after = replace(BUDGET, last=0.0).evaluated(0.5, 0.25, 0.125)
    assert after.last == 0  # it does not belong to the time


@pytest.mark.parametrize(("saving", "evaluations"), [(1.0, 10), (3.0, 7), (6.0, 4), (30.0, 1)])
def test_slow_saves_make_fewer_evaluations_instead_of_fewer_steps(
    saving: float, evaluations: int
) -> None:
    seconds, config = ends(lambda now: 1.0, replace(BUDGET, saving=saving), saving=saving)
    assert seconds == pytest.approx(SECONDS, rel=0.1)
    assert sum(is_due(config, step) for step in range(config.steps + 1)) == evaluations
    assert progress(config, config.steps) == 1
    assert config.steps * 0.1 > 0.2 * SECONDS


def simulated(
    slower: Mapping[str, tuple[float, float, float]], costs: Mapping[str, float], last: float
) -> tuple[float, TrainConfig, list[int]]:
    """(share of the time, options, steps of evaluations) of a run in which each kind of work, step,
    evaluation or save, is (factor, from, to) slower from one second to another.
    """

    def took(kind: str) -> float:
        factor, start, end = slower.get(kind, (1.0, 0.0, 0.0))
        return costs[kind] * (factor if start <= elapsed < end else 1.0)

    elapsed, step, due = 0.0, 0, list[int]()
    steps = int((SECONDS - 10 * (costs["evaluation"] + costs["save"]) - last) / costs["step"])
    config = TrainConfig(steps=steps, step_plan=f"0:{steps}")
    elapsed += took("save")
    budget = Budget(
        seconds=SECONDS,
        per_step=costs["step"],
        evaluating=costs["evaluation"],
        saving=elapsed,
        last=last / costs["step"],
        estimated=True,
    )
    config = budget.replan(config, 0, elapsed)
    while step < config.steps:
        seconds = took("step")
        elapsed, step = elapsed + seconds, step + 1
        budget = budget.after_step(seconds, config.steps - step)
        if budget.steps == 0 and step < config.steps:
            config = budget.replan(config, step, elapsed)
        if is_due(config, step):
            due.append(step)
            seconds = took("evaluation")
            elapsed += seconds
            budget = budget.evaluated(0.0, seconds, costs["evaluation"] / last if last else 1.0)
            saving = took("save")
            elapsed, budget = elapsed + saving, replace(budget, saving=saving)
    elapsed += took("evaluation") / costs["evaluation"] * last
    assert due == [step for step in range(1, step + 1) if is_due(config, step)]  # as repeated
    return elapsed / SECONDS, config, due


TEXT = {"step": 0.1, "evaluation": 0.4, "save": 0.6}, 2.0
PAIRS = {"step": 0.1, "evaluation": 1.5, "save": 0.3}, 0.0


@pytest.mark.parametrize("costs", [TEXT, PAIRS])
@pytest.mark.parametrize("kind", ["step", "evaluation", "save"])
@pytest.mark.parametrize("since", [0.0, 10.0, 60.0])
def test_work_that_becomes_twenty_times_slower_leaves_training_most_of_the_time(
    costs: tuple[dict[str, float], float], kind: str, since: float
) -> None:
    used, config, due = simulated({kind: (20.0, since, 1e9)}, *costs)
    assert 0.9 < used < 1.15  # the last evaluation is whole, also if it has become slow
    assert due[-1] == config.steps
    assert progress(config, config.steps) == 1
    slow = costs[0]["step"] * (20 if kind == "step" else 1)
    assert config.steps * slow > 0.35 * (SECONDS - since)


@pytest.mark.parametrize("costs", [TEXT, PAIRS])
def test_steps_that_are_slow_for_a_while_or_fast_at_the_end_use_the_time(
    costs: tuple[dict[str, float], float],
) -> None:
    for slower in ((20.0, 0.0, 30.0), (20.0, 30.0, 60.0), (0.05, 90.0, 110.0), (0.05, 100.0, 1e9)):
        used, *_ = simulated({"step": slower}, *costs)
        assert 0.9 < used < 1.1, slower


@pytest.mark.parametrize("costs", [TEXT, PAIRS])
def test_evaluations_that_were_slow_do_not_end_the_run_after_a_few_steps(
    costs: tuple[dict[str, float], float],
) -> None:
    """The last one is reserved as long as the slow ones took, so some of the time is left."""
    for kind in ("evaluation", "save"):
        used, config, _ = simulated({kind: (20.0, 0.0, 30.0)}, *costs)
        assert used > 0.7
        assert config.steps > 500


def test_time_that_is_over_before_the_first_step_leaves_one_step_and_one_evaluation() -> None:
    late = BUDGET.replan(CONFIG, 0, 10 * SECONDS)  # counting a large text took so long
    assert (late.steps, late.evaluations) == (1, 1)


def test_slow_saves_do_not_change_the_interval_that_the_user_gave() -> None:
    config = TrainConfig(steps=1080, step_plan="0:1080", eval_interval=200)
    after = replace(BUDGET, saving=30.0).replan(config, 0, 0.0)
    assert (after.eval_interval, after.evaluations) == (200, config.evaluations)


def test_constant_speed_keeps_the_planned_steps() -> None:
    assert ends(lambda now: 1.0)[1].step_plans == (StepPlan(0, 1080),)
    assert ends(lambda now: 1.005)[1].step_plans == (StepPlan(0, 1080),)


def test_faster_machine_gets_no_more_steps_than_the_corpus_allows() -> None:
    budget = Budget(seconds=SECONDS, per_step=0.1, evaluating=0.4, saving=0.6, most_steps=1100)
    seconds, config = ends(lambda now: 1 / 3, budget)
    assert (config.steps, seconds < SECONDS / 2) == (1100, True)


def test_learning_rate_still_falls_to_its_end_after_the_time_is_over() -> None:
    config = TrainConfig(steps=1000, step_plan="0:1000")
    late = BUDGET.replan(config, 500, 130.0)
    assert (late.steps, late.step_plan) == (505, "0:1000 500:505:1")
    assert progress(late, 500) == 0.5
    assert progress(late, 505) == 1


def test_learning_rate_falls_if_the_time_ends_within_the_warm_up() -> None:
    planned = TrainConfig(learning_rate=1.1, warmup_steps=10, steps=100, step_plan="0:100")
    sooner = replan_steps(planned, 4, 6)
    assert [learning_rate(step, sooner) for step in range(7)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.3, 0]
    )
    longer = replan_steps(sooner, 5, 20)  # the machine is faster again
    assert [learning_rate(step, longer) for step in range(7)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    )
    assert learning_rate(20, longer) == 0


@pytest.mark.parametrize("name", ["seconds", "per_step", "evaluating", "saving", "last"])
def test_a_negative_time_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="negative"):
        replace(BUDGET, **{name: -1.0})
