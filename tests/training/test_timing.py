"""What the parts of a training cost, measured or estimated."""

from __future__ import annotations

import pytest
from manifests import manifest

from gpt.config import TrainConfig
from gpt.storage.checkpoint_files import Clock
from gpt.training.progress import MOST_RESERVED, Speed, Timing

SPEED = Speed(step=1.0, character=0.001, saving=2.0, fitting=3.0)


def timing(*laps: tuple[str, float]) -> Timing:
    """After these parts of a training."""
    found, now = Timing(SPEED, began=0.0, is_shared=False), 0.0
    found.clock = lambda: now
    for what, seconds in laps:
        now += seconds
        if what == "steps":
            found.step()
        else:
            found.lap(what)
    return found


def test_the_reserve_pays_for_evaluation_save_and_end() -> None:
    now = manifest(train=TrainConfig(eval_chars=1280), val_characters=10_000)
    whole = timing().reserve(now, 1000.0)
    assert whole == pytest.approx(3 + 1.28 + 2 + 10)
    part = timing().reserve(now, 100.0)  # the end reads 5 seconds' worth
    assert part == pytest.approx(3 + 1.28 + 2 + 5)
    assert timing().reserve(now, 10.0) == MOST_RESERVED * 10
    slow = timing(*[("steps", 4.0)] * 9)
    assert slow.slowdown == 4
    assert slow.reserve(now, 1000.0) == pytest.approx(4 * whole)
    slow.replace_estimates(fitting=1.0, character=0.0, saving=0.5)
    assert slow.reserve(now, 1000.0) == 1.5


def test_an_evaluation_waits_until_it_takes_a_tenth_of_the_time() -> None:
    steps = [("start", 500.0), *[("steps", 1.0)] * 55]
    clock = Clock(seconds=10**4, progress=0.1)
    now = manifest(clock=clock, train=TrainConfig(eval_chars=1000), val_characters=10_000)
    assert not timing(*steps).is_evaluation_due(0.0, now)  # 6 of 55 seconds
    assert timing(*steps, *[("steps", 1.0)] * 5).is_evaluation_due(0.0, now)
    assert not timing(*steps, *[("steps", 1.0)] * 5, ("saves", 2.0)).is_evaluation_due(0.0, now)


def test_one_long_step_is_a_suspension_and_two_are_slowness() -> None:
    now = 0.0
    found = Timing(SPEED, began=0.0, is_shared=False)
    found.clock = lambda: now
    counted = []
    for seconds in (*[1.0] * 5, 100.0, 1.0, 100.0, 90.0):
        now += seconds
        counted.append(found.step())
    assert counted == [*[1.0] * 5, 20.0, 1.0, 20.0, 170.0]
    assert found.spent == {"steps": sum(counted)}
