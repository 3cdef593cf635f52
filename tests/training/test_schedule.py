"""What follows from the progress of a training: learning rate and evaluations."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import manifest

from gpt.config import TrainConfig
from gpt.storage.checkpoint_files import Clock, Manifest
from gpt.training.progress import Speed, Timing, learning_rate


def at(step: int, **options: Any) -> Manifest:
    return manifest(step=step, train=TrainConfig(**options))


def due(steps: int, **options: Any) -> list[int]:
    """The steps that an evaluation follows."""
    all_steps = [at(step, steps=steps, **options) for step in range(steps + 1)]
    timing = Timing(Speed(), began=None, is_shared=False)
    return [
        now.step
        for before, now in pairwise(all_steps)
        if timing.is_evaluation_due(before.progress, now)
    ]


def test_evaluations_are_evenly_spaced_and_one_follows_the_last_step() -> None:
    assert due(2000) == [*range(200, 2001, 200)]
    assert due(20, eval_interval=7) == [7, 14, 20]
    assert due(3, evaluations=10) == [1, 2, 3]
    assert due(70, evaluations=10) == [*range(7, 71, 7)]  # 0.7 * 10 may be below 7


@settings(deadline=None)
@given(
    progress=st.floats(0, 1),
    later=st.floats(0, 1),
    step=st.integers(0, 100),
    peak=st.sampled_from([0.5, 1.0]),
    schedule=st.sampled_from(["linear", "cosine"]),
)
def test_the_rate_of_a_timed_run_falls_with_its_time(
    progress: float, later: float, step: int, peak: float, schedule: Any
) -> None:
    config = TrainConfig(learning_rate=1.0, min_lr=0.1, warmup_steps=20, schedule=schedule)
    clock = Clock(seconds=60, progress=progress, peak=peak)
    rate = learning_rate(config, step, clock)
    assert 0 < rate <= peak
    assert learning_rate(config, step, replace(clock, progress=1.0)) == pytest.approx(0.1)
    if step >= 20:
        lower = replace(clock, progress=max(progress, later))
        assert learning_rate(config, step, lower) <= rate


def test_a_later_cycle_begins_at_the_lowest_rate_and_rises_to_its_peak() -> None:
    config = TrainConfig(learning_rate=1.0, min_lr=0.1, warmup_steps=4)
    clock = Clock(seconds=60, start_step=100, peak=0.5)
    rates = [learning_rate(config, step, clock) for step in range(100, 106)]
    assert rates == pytest.approx([0.18, 0.26, 0.34, 0.42, 0.5, 0.5])


def test_the_clock_moves_with_the_time_or_the_steps_and_never_back() -> None:
    clock = Clock(seconds=100, start_step=10, start_elapsed=50)
    now = manifest(step=20, elapsed=90.0, train=TrainConfig(steps=110))
    assert clock.after_step(now, reserve=20).progress == 0.5
    assert clock.after_step(replace(now, step=90), reserve=20).progress == 0.8
    assert replace(clock, progress=0.7).after_step(now, reserve=0).progress == 0.7
    assert clock.after_step(replace(now, elapsed=900.0), reserve=20).progress == 1
