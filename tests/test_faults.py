"""Lets each file operation of a save, a rotation, a resume and an encoding fail in turn.

After each fault: earlier checkpoints are unchanged, byte for byte; the run opens; and training
continues to the same weights as an undisturbed run. `pytest -s` shows the counts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import TEXT, corpus_of, manifest_of
from conftest import resume as resume_from
from faults import Cache, Disk, fault_points, operations

from gpt.corpus.corpus import Corpus, encode_corpus
from gpt.corpus.sources import Source
from gpt.errors import StorageError
from gpt.storage.run import MODEL, STATE, Run, new_run, step_folder
from gpt.training.events import Event, Stepped
from gpt.training.trainer import Job, Trainer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the shim reads /proc")

SMALL = {"n_layer": 1, "n_head": 1, "n_embd": 4, "block_size": 8, "dropout": 0.1}
STEPS, INTERVAL = 8, 2


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def restore(copy: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(copy, folder)


def weights(run: Run) -> tuple[bytes, bytes]:
    """The state after training: model and optimizer."""
    path = run.last().path
    return (path / MODEL).read_bytes(), (path / STATE).read_bytes()


def story(run: Run) -> list[tuple[int, float]]:
    """Every evaluation: step and loss."""
    return [(record["step"], record["val_loss"]) for record in run.records("metrics")]


def resume(run: Run, corpus: Corpus) -> Trainer:
    """Resumes from the newest whole checkpoint, like `gptx train --resume`."""
    commit, _ = run.last_undamaged()
    return resume_from(run, corpus, commit)


def advance(trainer: Trainer, step: int) -> Iterator[Event]:
    """The trainer's events, stopped right after the step."""
    events = trainer.events()
    for event in events:
        if isinstance(event, Stepped) and event.step == step:
            break
    return events


def finish(events: Iterator[Event]) -> int:
    """The exit status of `gptx train` for errors in the block."""
    try:
        for _ in events:
            pass
    except StorageError:
        return 6
    return 0


@dataclass
class Training:
    """A corpus, and the result of an undisturbed run on it."""

    corpus: Corpus
    weights: tuple[bytes, bytes]
    story: list[tuple[int, float]]
    folder: Path
    checked: set[str]  # states of the disk that were checked

    def start(self, name: str) -> Trainer:
        train = {"steps": STEPS, "eval_interval": INTERVAL}
        manifest = manifest_of(self.corpus, train, **SMALL)
        return Trainer(new_run(self.folder, name, name), Job(self.corpus, manifest))

    def is_new(self, files: dict[str, bytes], expected: object) -> bool:
        """Whether this state of the disk was not yet checked with this expectation."""
        digest = hashlib.sha256(repr((expected, sorted(files.items()))).encode()).hexdigest()
        known = digest in self.checked
        self.checked.add(digest)
        return not known

    def check(self, run: Run, before: dict[str, bytes], kept: set[int], newest: set[int]) -> None:
        """Asserts: `kept` unchanged, the newest whole step in `newest`, training continues."""
        files = tree(run.path)
        if not self.is_new(files, newest):
            return
        for name, data in before.items():
            if name.startswith(tuple(f"{step_folder(step)}/" for step in kept)):
                assert files[name] == data
        commit, warnings = run.last_undamaged()
        assert commit.manifest.step in newest
        if not warnings:
            run.at().verify()
        trainer = resume(run, self.corpus)
        assert finish(trainer.events()) == 0
        assert weights(run) == self.weights
        assert story(run) == self.story


@pytest.fixture(scope="module", autouse=True)
def unflushed() -> Iterator[None]:
    """Nothing is flushed to the real disk, which would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp("faults")
    made = Training(corpus_of(TEXT, folder), (b"", b""), [], folder / "checkpoints", set())
    trainer = made.start("unbroken")
    assert finish(trainer.events()) == 0
    made.weights, made.story = weights(trainer.run), story(trainer.run)
    return made


def every_fault(
    run: Run, make: Callable[[], Callable[[], int]], check: Callable[[int | None, str], None]
) -> tuple[int, int]:
    """Runs the action that `make` returns once with each fault, each time on a fresh folder.

    Then tests each folder that a kill or a power failure may leave, with the status None. Returns
    the number of both.
    """
    start = run.path.with_name(f".{run.name}")
    shutil.copytree(run.path, start)
    action = make()
    cache = Cache(run.path)
    log = operations(run.path, action)
    faults = list(fault_points(log))
    for number, fault in faults:
        restore(start, run.path)
        action = make()
        with Disk(run.path, number, fault).watching():
            status = action()
        assert status in ((0,) if fault == "short" else (0, 6)), f"{fault} at {log[number]}"
        check(status, f"{fault} at {number}: {log[number]}")
    left = 0
    for number, operation in enumerate(log):
        for outcome in cache.outcomes(run.path, operation):
            left += 1
            check(None, f"{outcome}, after {number}: {operation}")
    return len(faults), left


def report(what: str, training: Training, counts: tuple[int, int]) -> None:
    faults, left = counts
    print(f"\n{what}: {faults} faults, {left} kills, {len(training.checked)} states of the disk")
    assert min(faults, left) > 0
    training.checked.clear()


def expecting(
    training: Training, run: Run, kept: set[int], done: int, before: int
) -> Callable[[int | None, str], None]:
    """Checks that the run's newest undamaged step is `done`; after a fault also `before`."""
    files = tree(run.path)
    assert {int(name[5:13]) for name in files if name.startswith("step-")} >= kept

    def check(status: int | None, what: str) -> None:
        try:
            training.check(run, files, kept, {done} if status == 0 else {before, done})
        except BaseException as error:
            raise AssertionError(what) from error

    return check


def test_fault_in_a_save_and_rotation(training: Training) -> None:
    """From the last step, before its evaluation, to the end, where checkpoint 4 is deleted."""
    trainer = training.start("saving")
    advance(trainer, STEPS - 1)

    def make() -> Callable[[], int]:
        events = advance(resume(trainer.run, training.corpus), STEPS)
        return lambda: finish(events)

    check = expecting(training, trainer.run, {6}, STEPS, 6)
    report("a save and its rotation", training, every_fault(trainer.run, make, check))


def test_fault_in_saving_a_step_again_with_its_evaluation(training: Training) -> None:
    """A stop before a step's evaluation saves it without a loss; it is saved again with one."""
    trainer = training.start("again")
    events = advance(trainer, STEPS)
    trainer.stop("SIGTERM")
    assert finish(events) == 0
    assert trainer.run.last().manifest.val_loss is None

    def make() -> Callable[[], int]:
        events = resume(trainer.run, training.corpus).events()
        return lambda: finish(events)

    check = expecting(training, trainer.run, {6}, STEPS, STEPS)
    report("a step saved again", training, every_fault(trainer.run, make, check))


def test_fault_in_setting_aside_a_damaged_step_and_rewriting_log_lines_at_resume(
    training: Training,
) -> None:
    """The process died after an evaluation was logged and before its step was saved; a step
    before that is damaged.
    """
    trainer = training.start("logged")
    next(advance(trainer, STEPS))
    assert (len(story(trainer.run)), trainer.run.last().manifest.step) == (4, 6)
    last = trainer.run.last().path
    shutil.copytree(last, last.with_name(step_folder(7)))

    def make() -> Callable[[], int]:
        def action() -> int:
            try:
                resume(trainer.run, training.corpus)
            except StorageError:
                return 6
            return 0

        return action

    check = expecting(training, trainer.run, {4, 6}, 6, 6)
    report("a damaged step and a log cut back", training, every_fault(trainer.run, make, check))


def test_fault_in_the_first_save_of_a_run(training: Training) -> None:
    """A new run has no checkpoint yet, so nothing can be lost; the next try succeeds."""
    trainer = training.start("first")

    def make() -> Callable[[], int]:
        events = Trainer(trainer.run, Job(training.corpus, trainer.manifest)).events()

        def action() -> int:
            try:
                next(events)
            except StorageError:
                return 6
            return 0

        return action

    def check(status: int | None, what: str) -> None:
        try:
            if trainer.run.step_paths() or status == 0:
                training.check(trainer.run, {}, set(), {0})
            elif training.is_new(tree(trainer.run.path), "no step"):
                events = Trainer(trainer.run, Job(training.corpus, trainer.manifest)).events()
                next(events)
                trainer.run.last().verify()
        except BaseException as error:
            raise AssertionError(what) from error

    report("the first save", training, every_fault(trainer.run, make, check))


def test_fault_in_an_encoding(training: Training, tmp_path: Path) -> None:
    """Files of another run stay; the text is encoded, or encoded again, with the same result."""
    data = tmp_path / "data"
    other, text = tmp_path / "other.txt", tmp_path / "text.txt"
    other.write_text(TEXT.upper())
    text.write_text(TEXT)
    encode_corpus([Source(other, "other.txt")], data)
    kept = tree(data)

    def action() -> int:
        try:
            encode_corpus([Source(text, "text.txt")], data)
        except StorageError:
            return 6
        return 0

    def check(status: int | None, what: str) -> None:
        found = tree(data)
        if not training.is_new(found, "encoded"):
            return
        assert {name: found.get(name) for name in kept} == kept, what
        corpus = encode_corpus([Source(text, "text.txt")], data)
        assert corpus.vocabulary.decode(corpus.ids) == TEXT, what

    report("an encoding", training, every_fault(Run(data), lambda: action, check))
