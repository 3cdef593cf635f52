"""A run with a time budget: it ends on time, and can be repeated bit for bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT, corpus_of, manifest_of, resume
from ranked import on_ranks
from tqdm import tqdm

from gpt.config.schedule import LATER_CYCLE_PEAK, Budget, progress
from gpt.interface.training import BAR_FORMAT, show_bar
from gpt.storage.run import MODEL, STATE, Run
from gpt.storage.runs import new_run
from gpt.training import ranks
from gpt.training.events import Evaluated, Event, Stepped, Stopped
from gpt.training.optim import learning_rate
from gpt.training.plan import Machine, resume_plan
from gpt.training.trainer import Trainer

CPU = Machine("cpu", 1e11, None, {"ranks": 1})
STEP, EVALUATION = 1 / 16, 1 / 4  # seconds; sums of them are exact
BUDGET = Budget(seconds=10.0, per_step=STEP, evaluating=EVALUATION, saving=0.0)
SHAPE = {"n_layer": 1}
OPTIONS = {"steps": 140, "step_plan": "0:140", "eval_interval": 0, "evaluations": 5}


class Clock:
    """A clock that moves only while the trainer works, by STEP and EVALUATION."""

    def __init__(self, slower: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now, self.slower = 1000.0, slower
        self._began = self.now

    def __call__(self) -> float:
        return self.now

    def pauses(self, seconds: float) -> None:
        """Time passes while the trainer does not run."""
        self.now, self._began = self.now + seconds, self._began + seconds

    def works(self, seconds: float) -> None:
        self.now += seconds * self.slower(self.now - self._began)


def timed(folder: Path, clock: Clock, counting: int = 0, **options: Any) -> Trainer:
    """A trainer of a tiny model with a budget of ten seconds."""
    corpus = corpus_of(TEXT, folder / f"corpus-{ranks.rank()}")
    manifest = manifest_of(corpus, {**OPTIONS, **options}, counting=counting, **SHAPE)
    if ranks.is_first():
        new_run(folder / "runs", "timed", "timed")
    manifest = replace(manifest, budget=BUDGET)
    return at_work(Trainer(Run(folder / "runs/timed"), corpus, manifest, "cpu"), clock)


def at_work(trainer: Trainer, clock: Clock) -> Trainer:
    """Lets the trainer read this clock, which its steps and evaluations move."""
    trainer.clock = clock
    update, evaluate = trainer.optimizer.step, trainer._evaluate

    def step(number: int) -> None:
        clock.works(STEP)
        update(number)

    def evaluated() -> Evaluated:
        clock.works(EVALUATION)
        return evaluate()

    trainer.optimizer.step = step  # type: ignore[method-assign]
    trainer._evaluate = evaluated  # type: ignore[method-assign]
    return trainer


def finish(trainer: Trainer, stop_after: int | None = None) -> list[Event]:
    events = []
    for event in trainer.events():
        events.append(event)
        if isinstance(event, Stepped) and event.step == stop_after:
            trainer.stop("SIGTERM")
    return events


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A trainer that has finished, with a late clock."""
    trainer = timed(tmp_path_factory.mktemp("unbroken"), Clock(late))
    finish(trainer)
    return trainer


def weights(run: Run, step: int) -> tuple[bytes, bytes]:
    path = run.at(str(step)).path
    return (path / MODEL).read_bytes(), (path / STATE).read_bytes()


def late(now: float) -> float:
    return 3.0 if now > 4 else 1.0


def early(now: float) -> float:
    return 1 / 3 if now > 5 else 1.0


@pytest.mark.parametrize("slower", [lambda now: 1.0, late, early])
def test_a_timed_run_ends_on_time_with_its_schedule_complete(
    tmp_path: Path, slower: Callable[[float], float]
) -> None:
    clock = Clock(slower)
    trainer = timed(tmp_path, clock)
    events = finish(trainer)
    manifest, config = trainer.run.last().manifest, trainer.config
    assert events[-1] == Stopped(config.steps, "finished")
    assert manifest.elapsed == pytest.approx(10, rel=0.1)
    assert manifest.elapsed == pytest.approx(clock.now - 1000, rel=1e-9)
    assert (manifest.step, manifest.train) == (config.steps, config)
    assert learning_rate(config.steps, config) == config.min_lr
    assert learning_rate(config.steps - 1, config) < 0.15 * config.learning_rate
    steps = [event.step for event in events if isinstance(event, Evaluated)]
    shares = [progress(config, step) for step in steps]
    if slower is late:  # then five evaluations would take more than a fifth of what is left
        assert (len(shares), shares[-1]) == (4, 1)
    else:
        assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8, 1], abs=0.05)
    assert len(config.step_plans) > (slower in (late, early))


def test_eta_of_the_bar_is_that_of_the_budget(tmp_path: Path) -> None:
    trainer = timed(tmp_path, Clock(late))
    with tqdm(file=io.StringIO(), total=1.0, bar_format=BAR_FORMAT) as bar:
        for event in show_bar(trainer, bar):
            if isinstance(event, Stepped):
                left = max(0, int(10 - trainer.manifest.elapsed))
                assert f"ETA 00:{left:02}" in str(bar)


@pytest.mark.parametrize("stops", [[0], [61], [26, 71]])
def test_stopping_and_resuming_a_timed_run_changes_no_bit(
    unbroken: Trainer, tmp_path: Path, stops: list[int]
) -> None:
    clock = Clock(late)
    trainer = timed(tmp_path / "stopped", clock)
    for stop in stops:
        if stop == 0:
            trainer.stop("SIGTERM")
        assert finish(trainer, stop)[-1] == Stopped(stop, "SIGTERM")
        clock.pauses(500)
        last = trainer.run.last()
        trainer = at_work(resume(trainer.run, trainer.corpus, last), clock)
    finish(trainer)
    found, expected = trainer.run.last().manifest, unbroken.run.last().manifest
    assert found.train == expected.train
    assert found.elapsed == pytest.approx(expected.elapsed)
    assert weights(trainer.run, found.step) == weights(unbroken.run, expected.step)


def test_a_killed_timed_run_resumes_from_its_last_save(unbroken: Trainer, tmp_path: Path) -> None:
    trainer = timed(tmp_path / "killed", Clock(late))
    events = trainer.events()
    while trainer.manifest.step < 50:
        next(events)
    last = trainer.run.last()
    assert 0 < last.manifest.step < 50
    clock = Clock(late)
    clock.now += last.manifest.elapsed
    again = resume(trainer.run, trainer.corpus, last)
    finish(at_work(again, clock))
    step = unbroken.config.steps
    assert again.run.last().manifest.train == unbroken.config
    assert weights(again.run, step) == weights(unbroken.run, step)


def expect_equal(first: Run, second: Run) -> None:
    """Both runs have the same weights at the end, and the same losses."""
    last = first.last().manifest.step
    assert weights(second, last) == weights(first, last)
    metrics = [
        [(each["step"], each["val_loss"]) for each in run.records("metrics")]
        for run in (first, second)
    ]
    assert metrics[0] == metrics[1]


def test_the_recorded_plan_of_steps_repeats_the_weights(unbroken: Trainer, tmp_path: Path) -> None:
    manifest = unbroken.run.last().manifest
    assert len(manifest.train.step_plans) > 1
    start = replace(manifest_of(unbroken.corpus, **SHAPE), train=manifest.train)
    again = Trainer(new_run(tmp_path / "again", "x"), unbroken.corpus, start, "cpu")
    finish(again)
    expect_equal(unbroken.run, again.run)


def prolonged(trainer: Trainer, clock: Clock) -> Trainer:
    """The trainer that trains a run for so much longer, like `gptx train --resume --minutes`."""
    last, corpus = trainer.run.last(), trainer.corpus
    plan = resume_plan(last, corpus, {}, CPU, 1 / 6)
    clock.pauses(500)
    return at_work(Trainer(trainer.run, corpus, plan.manifest, "cpu", checkpoint=last), clock)


@pytest.mark.parametrize("stop", [None, 30])
def test_a_run_gets_more_time_in_a_new_cycle_that_repeats_bit_for_bit(
    tmp_path: Path, stop: int | None
) -> None:
    """stop: the step at which the run is interrupted before it gets more time."""
    clock = Clock(late)
    first = timed(tmp_path / "first", clock)
    finish(first, stop)
    step, elapsed = first.manifest.step, first.manifest.elapsed
    longer = prolonged(first, clock)
    events = finish(longer)
    manifest, config = longer.manifest, longer.config
    assert events[-1] == Stopped(config.steps, "finished")
    assert manifest.elapsed == pytest.approx(elapsed + 10, rel=0.1)
    assert config.step_plan.startswith(first.config.step_plan)
    assert f" {step}+:" in config.step_plan
    rates = [learning_rate(each, config) for each in range(step - 1, config.steps + 1)]
    if stop is None:
        assert max(rates[1:]) == pytest.approx(LATER_CYCLE_PEAK * config.learning_rate, rel=0.1)
    else:
        assert rates == sorted(rates, reverse=True)  # it falls from where it was
    assert rates[-1] == config.min_lr
    start = replace(manifest_of(first.corpus, **SHAPE), train=manifest.train)
    again = Trainer(new_run(tmp_path / "again", "x"), first.corpus, start, "cpu")
    finish(again)
    expect_equal(longer.run, again.run)


@pytest.fixture(scope="module")
def unbroken_cycles(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A trainer that has finished after it got more time."""
    clock = Clock(late)
    trainer = timed(tmp_path_factory.mktemp("cycles"), clock)
    finish(trainer)
    trainer = prolonged(trainer, clock)
    finish(trainer)
    return trainer


@pytest.mark.parametrize("more", [0, 1, 40])
def test_a_run_with_more_time_continues_after_an_interruption(
    unbroken_cycles: Trainer, tmp_path: Path, more: int
) -> None:
    """more: steps of the new cycle before the interruption; 0: it was killed before its first."""
    clock = Clock(late)
    trainer = timed(tmp_path, clock)
    finish(trainer)
    step = trainer.manifest.step
    trainer = prolonged(trainer, clock)
    if more:
        finish(trainer, step + more)
    else:
        next(trainer.events())
    clock.pauses(500)
    trainer = at_work(resume(trainer.run, trainer.corpus, trainer.run.last()), clock)
    if not more:  # the step is made again
        clock.now -= STEP * 3
    finish(trainer)
    end = trainer.manifest.step
    assert trainer.manifest.train == unbroken_cycles.manifest.train
    assert weights(trainer.run, end) == weights(unbroken_cycles.run, end)


def test_giving_steps_ends_the_time_budget(tmp_path: Path) -> None:
    trainer = timed(tmp_path, Clock())
    finish(trainer, 30)
    again = resume(trainer.run, trainer.corpus, trainer.run.last(), steps=40, step_plan="")
    assert again.manifest.budget is None
    assert finish(again)[-1] == Stopped(40, "finished")


def on_a_rank(folder: Path) -> Any:
    """Only the first rank's clock is right."""
    trainer = timed(folder, Clock(late if ranks.is_first() else lambda now: 50.0))
    finish(trainer)
    return trainer.config, trainer.manifest.elapsed


def test_all_ranks_follow_the_first_ranks_clock(unbroken: Trainer, tmp_path: Path) -> None:
    for each in on_ranks(2, on_a_rank, tmp_path):
        assert each == (unbroken.config, pytest.approx(unbroken.manifest.elapsed))
