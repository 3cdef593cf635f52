"""Lets each file operation of a save, a rotation, a resume and an encoding fail, or kill, in turn.

After each fault: earlier checkpoints are unchanged, byte for byte; the run opens; and training
continues to the same weights as an undisturbed run.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import TEXT, corpus_of, manifest_of
from conftest import resume as resume_from
from faults import Disk, Killed, fault_points, unflushed

from gpt.corpus.corpus import Corpus, encode_corpus
from gpt.corpus.sources import JoinedText, Source
from gpt.errors import StorageError
from gpt.storage.run import MODEL, STATE, Run, new_run, step_folder
from gpt.training.events import Event, Stepped
from gpt.training.trainer import Job, Trainer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the shim reads /proc")

SMALL = {"n_layer": 1, "n_head": 1, "n_embd": 4, "block_size": 8, "dropout": 0.1}
STEPS = 8


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def outcome(run: Run) -> object:
    """Model and optimizer after training, and every evaluation's step and loss."""
    path = run.last().path
    story = [(record["step"], record["val_loss"]) for record in run.records("metrics")]
    return (path / MODEL).read_bytes(), (path / STATE).read_bytes(), story


def resume(run: Run, corpus: Corpus) -> Trainer:
    """Resumes from the newest whole checkpoint, like `gptx train --resume`."""
    return resume_from(run, corpus, run.last_undamaged()[0])


def advance(trainer: Trainer, step: int) -> Iterator[Event]:
    """The trainer's events, stopped right after the step."""
    events = trainer.events()
    for event in events:
        if isinstance(event, Stepped) and event.step == step:
            break
    return events


def status(action: Callable[[], object]) -> int | None:
    """The exit status of `gptx train` for errors in the action; None if it was killed."""
    try:
        action()
    except StorageError:
        return 6
    except Killed:
        return None
    return 0


@dataclass
class Training:
    """A corpus, and the result of an undisturbed run on it."""

    corpus: Corpus
    folder: Path
    outcome: object = None

    def start(self, name: str) -> Trainer:
        train = {"steps": STEPS, "eval_interval": 2}
        manifest = manifest_of(self.corpus, train, **SMALL)
        return Trainer(new_run(self.folder, name, name), Job(self.corpus, manifest))

    def check(self, run: Run, before: dict[str, bytes], kept: set[int], newest: set[int]) -> None:
        """Asserts: `kept` unchanged, the newest whole step in `newest`, training continues."""
        files = tree(run.path)
        for name, data in before.items():
            if name.startswith(tuple(f"{step_folder(step)}/" for step in kept)):
                assert files[name] == data
        commit, warnings = run.last_undamaged()
        assert commit.manifest.step in newest
        if not warnings:
            run.at().verify()
        assert status(lambda: [*resume(run, self.corpus).events()]) == 0
        assert outcome(run) == self.outcome


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp("faults")
    made = Training(corpus_of(TEXT, folder), folder / "checkpoints")
    trainer = made.start("unbroken")
    assert status(lambda: [*trainer.events()]) == 0
    made.outcome = outcome(trainer.run)
    return made


def every_fault(
    folder: Path,
    make: Callable[[], Callable[[], int | None]],
    check: Callable[[int | None], None],
) -> None:
    """Runs the action that `make` returns once with each fault, each time on a fresh folder."""
    start = folder.with_name(f".{folder.name}")
    shutil.copytree(folder, start)
    action = make()
    with Disk(folder).watching() as disk:
        assert action() == 0
    assert unflushed(disk.log) == []
    checked = set[tuple[int | None, str]]()
    for number, fault in fault_points(disk.log):
        shutil.rmtree(folder)
        shutil.copytree(start, folder)
        action = make()
        with Disk(folder, number, fault).watching():
            ended = action()
        assert ended in {"short": (0,), "killed": (None,), "cut": (None,)}.get(fault, (0, 6))
        state = (ended, repr(sorted(tree(folder).items())))
        if state not in checked:
            checked.add(state)
            try:
                check(ended)
            except BaseException as error:
                raise AssertionError(f"{fault} at {number}: {disk.log[number]}") from error
    assert checked


def expecting(
    training: Training, run: Run, kept: set[int], done: int, before: int
) -> Callable[[int | None], None]:
    """Checks that the run's newest undamaged step is `done`; after a fault also `before`."""
    files = tree(run.path)
    assert {int(name[5:13]) for name in files if name.startswith("step-")} >= kept
    return lambda ended: training.check(run, files, kept, {done} if ended == 0 else {before, done})


def test_fault_in_a_save_and_rotation(training: Training) -> None:
    """From the last step, before its evaluation, to the end, where checkpoint 4 is deleted."""
    trainer = training.start("saving")
    advance(trainer, STEPS - 1)

    def make() -> Callable[[], int | None]:
        events = advance(resume(trainer.run, training.corpus), STEPS)
        return lambda: status(lambda: [*events])

    every_fault(trainer.run.path, make, expecting(training, trainer.run, {6}, STEPS, 6))


def test_fault_in_saving_a_step_again_with_its_evaluation(training: Training) -> None:
    """A stop before a step's evaluation saves it without a loss; it is saved again with one."""
    trainer = training.start("again")
    events = advance(trainer, STEPS)
    trainer.stop("SIGTERM")
    assert status(lambda: [*events]) == 0
    assert trainer.run.last().manifest.val_loss is None

    def make() -> Callable[[], int | None]:
        events = resume(trainer.run, training.corpus).events()
        return lambda: status(lambda: [*events])

    every_fault(trainer.run.path, make, expecting(training, trainer.run, {6}, STEPS, STEPS))


def test_fault_in_setting_aside_a_damaged_step_and_rewriting_log_lines_at_resume(
    training: Training,
) -> None:
    """The process died after an evaluation was logged and before its step was saved; a step
    before that is damaged.
    """
    trainer = training.start("logged")
    next(advance(trainer, STEPS))
    assert (len(trainer.run.records("metrics")), trainer.run.last().manifest.step) == (4, 6)
    last = trainer.run.last().path
    shutil.copytree(last, last.with_name(step_folder(7)))

    def action() -> int | None:
        return status(lambda: resume(trainer.run, training.corpus))

    every_fault(trainer.run.path, lambda: action, expecting(training, trainer.run, {4, 6}, 6, 6))


def test_fault_in_the_first_save_of_a_run(training: Training) -> None:
    """A new run has no checkpoint yet, so nothing can be lost; the next try succeeds."""
    trainer = training.start("first")

    def make() -> Callable[[], int | None]:
        events = Trainer(trainer.run, Job(training.corpus, trainer.manifest)).events()
        return lambda: status(lambda: next(events))

    def check(ended: int | None) -> None:
        if trainer.run.step_paths() or ended == 0:
            training.check(trainer.run, {}, set(), {0})
        else:
            next(Trainer(trainer.run, Job(training.corpus, trainer.manifest)).events())
            trainer.run.last().verify()

    every_fault(trainer.run.path, make, check)


def test_fault_in_an_encoding(tmp_path: Path) -> None:
    """Files of another run stay; the text is encoded, or encoded again, with the same result."""
    data = tmp_path / "data"
    other, text = tmp_path / "other.txt", tmp_path / "text.txt"
    other.write_text(TEXT.upper())
    text.write_text(TEXT)
    encode_corpus(JoinedText([Source(other, "other.txt")]), data)
    kept = tree(data)

    def encode() -> Corpus:
        return encode_corpus(JoinedText([Source(text, "text.txt")]), data)

    def check(_: int | None) -> None:
        files = tree(data)
        assert {name: files.get(name) for name in kept} == kept
        corpus = encode()
        assert corpus.vocabulary.decode(corpus.ids) == TEXT

    every_fault(data, lambda: lambda: status(encode), check)
