"""Fixtures of all tests: tiny models and a tiny trained run, without network or shared state."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from javascript import JavaScript

os.environ.setdefault("OMP_NUM_THREADS", "1")  # products are tiny, so more threads would only wait

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus.corpus import Corpus, encode_corpus
from gpt.corpus.sources import JoinedText, Source
from gpt.interface.trained import TrainedGPT
from gpt.storage.checkpoint_files import Manifest
from gpt.storage.run import Checkpoint, Run, new_run
from gpt.training.progress import Saved
from gpt.training.trainer import Job, Prove, Trainer

pytest_plugins = ["browsing", "program"]  # the fixtures of the browser and of the command line

TEXT = "the cat sat on the mat. the rat sat on the cat.\nno mat, no cat, no rat!\n" * 40
TINY: dict[str, Any] = {"block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 16}
On = Callable[[TrainedGPT, Callable[[], Any]], TrainedGPT]
IN_MEMORY = "/dev/shm"  # files are created and removed many times faster there than on a disk


@pytest.fixture(scope="session")
def script() -> Iterator[JavaScript]:
    """The functions of page.js."""
    with JavaScript(Path(__file__).with_name("page.js")) as running:
        yield running


def pytest_configure() -> None:
    """Tests keep their folders in memory, if the machine has enough of it."""
    if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > 2**32:
        os.environ.setdefault("TMPDIR", IN_MEMORY)
        tempfile.tempdir = None  # read TMPDIR again


def pytest_collection_finish() -> None:
    """Searches for unused cycles then pass over all that the imports made."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders of long files come first, so that the workers end together."""
    here = Path(__file__).parent
    first = [here, here / "browser", here / "training"]
    items.sort(key=lambda item: item.path.parent not in first)


def sources_of(folder: Path, *texts: str | bytes) -> list[Source]:
    """Files 0.txt, 1.txt, … in `folder` with these texts."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, text in enumerate(texts):
        found.append(Source(folder / f"{number}.txt", f"{number}.txt"))
        found[-1].path.write_bytes(text.encode() if isinstance(text, str) else text)
    return found


def corpus_of(text: str, folder: Path) -> Corpus:
    """`text` as an encoded corpus in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    return encode_corpus(JoinedText([Source(path, "text.txt")]), folder / "data")


def manifest_of(corpus: Corpus, train: dict[str, Any] | None = None, **model: Any) -> Manifest:
    """A run's start on `corpus`: TINY, changed by `model` and `train`."""
    shape = {**TINY, **model}
    settings = {"steps": 12, "batch_size": 4, "warmup_steps": 2, "eval_interval": 6}
    options = TrainConfig(**{**settings, **(train or {})})
    return Manifest(
        step=0,
        model=ModelConfig(vocab_size=len(corpus.vocabulary), **shape),
        train=options,
        preset="default",
        vocabulary=corpus.vocabulary,
        corpus=corpus.identity,
        seconds=0.0,
        running=(0.0, 0),
        val_characters=len(corpus.parts(options.val_fraction)[1]) - 1,
    )


def resume(
    run: Run,
    corpus: Corpus,
    checkpoint: Checkpoint,
    prove: Prove | None = None,
    **changed: Any,
) -> Trainer:
    """A trainer that resumes a checkpoint with changed options, like `gptx train --resume`."""
    stored = checkpoint.manifest
    train = replace(stored.train, **changed)
    val_characters = len(corpus.parts(train.val_fraction)[1]) - 1
    clock = None if "steps" in changed else stored.clock
    manifest = replace(stored, train=train, val_characters=val_characters, clock=clock)
    return Trainer(run, Job(corpus, manifest), checkpoint, prove)


def train_tiny(folder: Path, train: dict[str, Any] | None = None, **model: Any) -> Checkpoint:
    """Trains a TINY model on TEXT in `folder`/checkpoints/tiny to its end."""
    corpus = corpus_of(TEXT, folder)
    run = new_run(folder / "checkpoints", "tiny", "tiny")
    trainer = Trainer(run, Job(corpus, manifest_of(corpus, train, **model)))
    saved = [event.checkpoint for event in trainer.events() if isinstance(event, Saved)]
    return saved[-1]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A tiny trained checkpoint; treat its folder as read-only."""
    return train_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def trained(tiny: Checkpoint) -> TrainedGPT:
    """The model of `tiny`."""
    return TrainedGPT(tiny.model())


@pytest.fixture
def fresh(tiny: Checkpoint, tmp_path: Path) -> Checkpoint:
    """A copy of `tiny`, with its corpus, that a test may damage."""
    folder = tiny.path.parents[2]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return Checkpoint.open(tmp_path / tiny.path.relative_to(folder))


@pytest.fixture
def fresh_run(fresh: Checkpoint) -> Run:
    """The run of `fresh`."""
    return Run(fresh.path.parent)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """Makes a function: a model on the device that another function opens."""

    def make(model: TrainedGPT, open_device: Callable[[], Any]) -> TrainedGPT:
        monkeypatch.setattr("gpt.interface.trained.open_on_device", lambda *_: open_device())
        return TrainedGPT(model.stored, device="cuda")

    return make
