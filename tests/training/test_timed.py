"""A run with a time budget ends on time, with its schedule complete, whatever gets slower or
faster meanwhile. The clock is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT, corpus_of, manifest_of, resume
from ranked import on_ranks

from gpt.storage.checkpoint_files import Clock
from gpt.storage.run import Run, new_run
from gpt.training import ranks
from gpt.training import trainer as module
from gpt.training.plan import LATER_PEAK, Machine, resume_plan
from gpt.training.progress import Event, Speed, Stepped, Stopped, learning_rate
from gpt.training.trainer import Job, Trainer

BUDGET = 20.0  # seconds
PLANNED = Speed(step=1 / 16, character=1 / 4096, saving=1 / 32)
OPTIONS = {"steps": 10**6, "eval_interval": 0}
CPU = Machine("cpu", 1e11, None, {"ranks": 1})


class Simulation:
    """A clock that moves only while the trainer works: as planned, or slower by these factors.

    slower: what is slower, and how many times, by the time since the beginning.
    """

    def __init__(self, slower: Callable[[float], dict[str, float]] = lambda now: {}) -> None:
        self.now, self.slower = 1000.0, slower

    def __call__(self) -> float:
        return self.now

    def works(self, what: str, amount: float = 1.0) -> None:
        seconds = amount * getattr(PLANNED, what)
        self.now += seconds * self.slower(self.now - 1000).get(what, 1.0)

    @contextmanager
    def runs(self, trainer: Trainer) -> Iterator[None]:
        """Lets the trainer read this clock, which its steps, evaluations and saves move."""
        timing = trainer.timing
        timing.clock, timing._mark = self, self.now
        optimizer = trainer.learner.optimizer
        update, commit = optimizer.step, trainer._commit
        real = module.evaluate

        def step(number: int, clock: Clock | None) -> None:
            self.works("step")
            update(number, clock)

        def save() -> Any:
            self.works("saving")
            return commit()

        def evaluate(model: Any, ids: Any, device: str, most: int, *more: Any) -> Any:
            self.works("character", most or len(ids) - 1)
            return real(model, ids, device, most, *more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(optimizer, "step", step)
            patch.setattr(trainer, "_commit", save)
            patch.setattr(module, "evaluate", evaluate)
            yield


def timed(folder: Path, seconds: float = BUDGET, **options: Any) -> Trainer:
    """A trainer of a tiny model with a time budget."""
    corpus = corpus_of(TEXT, folder / f"corpus-{ranks.rank()}")
    manifest = manifest_of(corpus, {**OPTIONS, **options}, n_layer=1)
    if ranks.is_first():
        new_run(folder / "runs", "timed", "timed")
    manifest = replace(manifest, clock=Clock(seconds=seconds))
    return Trainer(Run(folder / "runs/timed"), Job(corpus, manifest, speed=PLANNED))


def finish(trainer: Trainer, clock: Simulation, stop_after: int | None = None) -> list[Event]:
    events = []
    with clock.runs(trainer):
        for event in trainer.events():
            events.append(event)
            if isinstance(event, Stepped) and event.step == stop_after:
                trainer.stop("SIGTERM")
    return events


def expect_on_time(trainer: Trainer, seconds: float) -> None:
    """The run has used its time, and its schedule is complete."""
    manifest = trainer.run.last().manifest
    assert 0.9 * seconds <= manifest.elapsed <= max(1.1 * seconds, seconds + 2)
    assert manifest.progress == 1
    assert manifest.val_loss is not None
    assert learning_rate(manifest.train, manifest.step, manifest.clock) == manifest.train.min_lr


def in_turn(now: float) -> float:
    """20 times slower for five seconds, then faster for one."""
    return 20.0 if now % 6 < 5 else 1 / 20


@pytest.mark.parametrize(("what", "eval_chars"), [("step", 64), ("character", 0), ("saving", 64)])
@pytest.mark.parametrize(
    "factor",
    [
        pytest.param(lambda now: 1.0, id="as planned"),
        pytest.param(lambda now: 20.0, id="slower"),
        pytest.param(lambda now: 1 / 20 if now > 19 else 1.0, id="faster at the end"),
        pytest.param(lambda now: 20.0 if now > 10 else 1.0, id="slower at the end"),
        pytest.param(in_turn, id="in turn"),
    ],
)
def test_a_timed_run_ends_on_time_with_its_schedule_complete(
    tmp_path: Path, what: str, factor: Callable[[float], float], eval_chars: int
) -> None:
    clock = Simulation(lambda now: {what: factor(now)})
    trainer = timed(tmp_path, eval_chars=eval_chars)
    events = finish(trainer, clock)
    expect_on_time(trainer, BUDGET)
    assert events[-1] == Stopped(trainer.manifest.step, "finished")
    assert trainer.manifest.elapsed == pytest.approx(clock.now - 1000)


@pytest.mark.parametrize("stops", [[1], [26, 71, 200]])
def test_a_resumed_run_goes_on_with_the_rest_of_its_time(tmp_path: Path, stops: list[int]) -> None:
    trainer, clock, progress = timed(tmp_path), Simulation(), 0.0
    for stop in stops:
        assert finish(trainer, clock, stop)[-1] == Stopped(stop, "SIGTERM")
        assert progress <= trainer.manifest.progress < 1
        progress = trainer.manifest.progress
        clock.now += 500
        trainer = resume(trainer.run, trainer.corpus, trainer.run.last())
    finish(trainer, clock)
    expect_on_time(trainer, BUDGET)
    assert finish(resume(trainer.run, trainer.corpus, trainer.run.last()), clock) == [
        Stopped(trainer.manifest.step, "finished")
    ]


def prolonged(trainer: Trainer) -> Trainer:
    """The trainer that trains a run for BUDGET longer, like `gptx train --resume --minutes`, but
    without the limit of so small a text.
    """
    last, corpus = trainer.run.last(), trainer.corpus
    plan = resume_plan(last, corpus, {}, CPU, BUDGET / 60)
    train = replace(plan.manifest.train, steps=OPTIONS["steps"])
    manifest = replace(plan.manifest, train=train)
    return Trainer(trainer.run, Job(corpus, manifest, speed=PLANNED), last)


def rates_of(trainer: Trainer, clock: Simulation) -> list[float]:
    """The learning rate of each step to the end."""
    rates = []
    with clock.runs(trainer):
        for event in trainer.events():
            if isinstance(event, Stepped):
                rates.append(trainer.learner.optimizer.param_groups[0]["lr"])
    return rates


def test_a_finished_run_begins_again_at_half_its_peak(tmp_path: Path) -> None:
    first, clock = timed(tmp_path), Simulation()
    finish(first, clock)
    clock.now += 500
    longer = prolonged(first)
    assert longer.manifest.clock == Clock(
        seconds=BUDGET,
        start_step=first.manifest.step,
        start_elapsed=first.run.last().manifest.elapsed,
        peak=LATER_PEAK,
    )
    rates = rates_of(longer, clock)
    assert max(rates) == pytest.approx(0.5 * longer.config.learning_rate, rel=0.05)
    assert rates[0] < rates[1] < rates[2] > rates[-1]
    expect_on_time(longer, longer.manifest.clock.end_elapsed)


def test_a_stopped_run_gets_more_time_without_a_jump_of_its_rate(tmp_path: Path) -> None:
    first, clock = timed(tmp_path), Simulation()
    finish(first, clock, 100)
    longer = prolonged(first)
    assert longer.manifest.clock == replace(first.manifest.clock, seconds=2 * BUDGET)
    rates = rates_of(longer, clock)
    assert rates == sorted(rates, reverse=True)
    expect_on_time(longer, 2 * BUDGET)


def test_a_run_of_steps_gets_time_and_a_timed_run_gets_steps(tmp_path: Path) -> None:
    trainer, clock = timed(tmp_path), Simulation()
    finish(trainer, clock, 30)
    by_steps = resume(trainer.run, trainer.corpus, trainer.run.last(), steps=50)
    assert by_steps.manifest.clock is None
    assert finish(by_steps, clock, 40)[-1] == Stopped(40, "SIGTERM")
    longer = prolonged(by_steps)
    assert longer.manifest.progress == 0.8
    begun = longer.manifest.elapsed
    finish(longer, clock)
    expect_on_time(longer, begun + BUDGET)


@pytest.mark.parametrize(("slower", "whole"), [(1, True), (20, False)])
def test_the_end_reads_what_a_twentieth_of_the_time_allows(
    tmp_path: Path, slower: float, whole: bool
) -> None:
    clock = Simulation(lambda now: {"character": slower})
    trainer = timed(tmp_path, eval_chars=16)
    finish(trainer, clock)
    _, characters, of = trainer.run.last().manifest.shown_loss
    if whole:
        assert characters == of
    else:
        assert 16 < characters < of
        assert characters * slower * PLANNED.character <= 0.05 * BUDGET
    expect_on_time(trainer, BUDGET)


def on_a_rank(folder: Path) -> Any:
    """Only the first rank's clock is right."""
    trainer = timed(folder, 3.0, batch_size=2)
    clock = Simulation(lambda now: {} if ranks.is_first() else {"step": 50.0, "character": 9.0})
    finish(trainer, clock)
    manifest = trainer.manifest
    return manifest.step, manifest.elapsed, manifest.best_loss


def test_all_ranks_follow_the_first_ranks_clock(tmp_path: Path) -> None:
    first, second = on_ranks(2, on_a_rank, tmp_path)
    assert first == second
    assert first[1] == pytest.approx(3, rel=0.1)
