"""Prepares a training up to its first step: reads the corpus, plans the run, then locks it.

`gptx train` and `gpt.train` start and resume runs here. Prints nothing: the caller shows the plan
and the events. Torch is imported only while a thread counts n-grams.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import only_fields, require
from gpt.config.train import (
    LONGEST_FILE,
    RECORDED,
    Preset,
    Tracker,
    from_toml,
    preset,
    to_toml,
)
from gpt.corpus.corpus import Corpus, find_corpus, read_corpus, reopen_corpus
from gpt.corpus.doubts import doubts
from gpt.corpus.sources import corpus_name, known_recipe
from gpt.corpus.text import Progress, no_progress
from gpt.counting.baseline import Experts, count_ahead
from gpt.counting.tables import release_memory
from gpt.devices import resolve_device
from gpt.errors import TextError
from gpt.storage import files
from gpt.storage.manifest import Baseline, CorpusId, Manifest
from gpt.storage.run import Checkpoint, Run
from gpt.storage.runs import check_free, discard_if_empty, new_run
from gpt.training import ranks
from gpt.training.events import Event, Sampled, Saved, check_tracker
from gpt.vocabulary import Vocabulary
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.interface.warm_start import WarmStart
    from gpt.storage.model_file import StoredModel
    from gpt.training.plan import Plan
    from gpt.training.trainer import Job, Trainer

#: Options for reading a text.
READING = ("separator", "split", "encoding", "column", "items")
SPLITTING = ("split", "val_fraction")
SAMPLE_LENGTH = 160  # characters of the sample at each evaluation
CONFIG = "config.toml"  # the file with the options of a run

#: A context that shows the progress of work with this name.
Working = Callable[[str], AbstractContextManager[Progress]]


def show_nothing(what: str) -> AbstractContextManager[Progress]:
    """A Working context that shows nothing."""
    return nullcontext(no_progress)


@dataclass(frozen=True)
class Texts:
    """The texts of a corpus by their names; "-" is `pipe`, no names mean the default text. stem:
    how the name of a run begins; empty: with the corpus's name.
    """

    names: Sequence[str] = ()
    pipe: BinaryIO = field(default_factory=BytesIO)
    stem: str = ""


@dataclass(frozen=True)
class NewRunOptions:
    """The options of a new run: those given, and those that follow from its corpus and from the
    model that it starts with.

    asked: options of ModelConfig and TrainConfig. recipe: the ones among them that a known corpus
    has set.
    """

    preset: Preset
    asked: Mapping[str, Any]
    recipe: Mapping[str, Any]

    @property
    def reading(self) -> TrainConfig:
        """The options for reading the text."""
        return TrainConfig(**{name: self.asked[name] for name in READING if name in self.asked})


def choose_options(
    options: RunConfig,
    asked: Mapping[str, Any],
    names: Sequence[str],
    warm: WarmStart | None = None,
) -> NewRunOptions:
    """Chooses the options of a new run. names: the names of its texts. A known corpus sets its own
    options, but only its split if a preset is given. Raises ConfigError.
    """
    recipe = {**known_recipe(names)}
    if options.preset:
        recipe = {name: value for name, value in recipe.items() if name in SPLITTING}
    if options.minutes is not None:
        recipe.pop("steps", None)
    asked = warm.options(asked) if warm else asked
    recipe = {name: value for name, value in recipe.items() if name not in asked}
    return NewRunOptions(options.preset or "default", {**asked, **recipe}, recipe)


@dataclass(frozen=True)
class Start:
    """A planned training before its first step. trainer: a function that makes the model and the
    optimizer. recipe: options that a known corpus has set.
    """

    plan: Plan
    run: Run
    trainer: Callable[[], Trainer]
    recipe: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def begin_run(
    options: RunConfig,
    asked: Mapping[str, Any],
    texts: Texts,
    working: Working = show_nothing,
    recorded: Mapping[str, Any] = MappingProxyType({}),
    *,
    dry: bool = False,
) -> Iterator[Start]:
    """Reads the texts and plans a new run, then makes and locks its folder. The folder is removed
    if nothing was saved in it.

    asked: options of ModelConfig and TrainConfig. recorded: what the config.toml that this run
    repeats says about its own run, see RECORDED. dry: makes no folder. Several ranks have joined
    before. Raises ConfigError, TextError, StorageError, OutOfMemory, and CheckpointError for an
    unusable model to start with.
    """
    began = time.perf_counter()
    check_tracker(options.log)
    warm = None
    if options.init_from is not None:
        from gpt.interface.warm_start import open_parent

        warm = open_parent(options.init_from, options.checkpoints)
    choices = choose_options(options, asked, texts.names, warm)
    if options.run is not None:
        check_free(options.checkpoints, options.run)
    device = resolve_device(options.device)
    start = warm.stored if warm else None
    known = start.vocabulary if start else None
    read = partial(read_corpus, known=known, grows=start is not None, config=choices.reading)
    corpus = _read(options, texts, working, read)
    ahead = _count_ahead(corpus, choices, device, warm)  # torch is imported at the same time
    from gpt.training.plan import Machine, make_plan

    baseline, experts = ahead.result()  # before the machine's speed is measured
    parent = warm.parent(corpus) if warm else None
    plan = make_plan(
        corpus,
        choices.asked,
        choices.preset,
        Machine.measured(options.device),
        options.minutes,
        baseline=baseline,
        parent=parent,
    )
    plan = replace(
        plan, manifest=replace(plan.manifest, doubts=doubts(corpus, plan.manifest.train))
    )
    warnings = [*_differences(plan, recorded), *plan.manifest.doubts.texts]
    if warm and parent:
        warnings = [*warm.warnings(parent, corpus, plan.manifest.train), *warnings]
    plan = replace(plan, warnings=(*plan.warnings, *warnings))
    with ExitStack() as unlocked, ExitStack() as stack:
        folder = None
        if ranks.is_first() and not dry:
            folder = new_run(
                options.checkpoints, texts.stem or corpus_name(texts.names), options.run
            )
            stack.enter_context(folder.lock())
            unlocked.callback(discard_if_empty, folder)
            names = [printable(name) for name in texts.names] or None
            # the step that was read, because tomorrow another step may be the run's best
            source = {"corpus": names, "init_from": printable(warm.place) if warm else None}
            here = {name: plan.environment[name] for name in RECORDED}
            folder.write(CONFIG, to_toml({**source, **plan.manifest.settings(), **here}))
        run = Run(Path(ranks.from_rank(0, str(folder.path) if folder else "")))

        def trainer() -> Trainer:
            return _trainer(run, _job(plan, began, experts, start), options.log)

        yield Start(plan, run, trainer, choices.recipe)


def _differences(plan: Plan, recorded: Mapping[str, Any]) -> Iterator[str]:
    """Warnings for what the repeated run had and this machine has not."""
    for name, value in recorded.items():
        here = plan.environment[name]
        if value != here and (name != "threads" or plan.device == "cpu"):
            yield (
                f"not bit-exact: the run of this config had {name} {value}, now it is {here}: "
                "other weights are possible"
            )


@contextmanager
def resume_run(
    run: Run,
    options: RunConfig,
    asked: Mapping[str, Any],
    texts: Texts,
    working: Working = show_nothing,
) -> Iterator[Start]:
    """Locks a run, and plans the rest of it from its newest undamaged checkpoint on.

    The arguments are those of begin_run. Raises CheckpointError, ConfigError, TextError,
    RunInUseError, OutOfMemory.
    """
    began = time.perf_counter()
    check_tracker(options.log)
    with ExitStack() as stack:
        if ranks.is_first():
            stack.enter_context(run.lock())
        checkpoint, warnings = ranks.share_result(
            run.last_undamaged,
            lambda result: str(result[0].path),
            lambda path: (Checkpoint.open(Path(path)), []),
        )
        manifest = checkpoint.manifest
        require(
            not manifest.imported,
            "resume",
            "this run was imported without the state of its optimizer; begin a new run with its "
            "weights: gptx train TEXT --init-from RUN",
        )
        same = options.preset in (None, manifest.preset)
        advice = f"this run has {manifest.preset}; leave the option out, or train a new run"
        require(same, "preset", advice)
        find = partial(find_corpus, manifest, run=run.name)
        corpus = _read(options, texts, working, find)
        from gpt.training.plan import Machine, resume_plan

        machine = Machine.measured(options.device)
        plan = resume_plan(checkpoint, corpus, asked, machine, options.minutes)
        plan = replace(plan, warnings=(*warnings, *plan.warnings))

        def trainer() -> Trainer:
            return _trainer(run, _job(plan, began), options.log, checkpoint)

        yield Start(plan, run, trainer)


def train_and_record(trainer: Trainer) -> Iterator[Event]:
    """Trains. Records in the run a sample of each checkpoint, and the options of a resumed run.

    Raises what Trainer.events raises.
    """
    is_recorded = trainer.saved_step is None  # when a run begins
    with closing(trainer.records):
        for event in trainer.events():
            yield event
            if isinstance(event, Saved):
                if not is_recorded:
                    _record_options(trainer.run, trainer.manifest)
                    is_recorded = True
                if event.checkpoint.manifest.step:  # before the first step, no model has learned
                    yield _sampled(trainer, event.checkpoint)


def _read(
    options: RunConfig, texts: Texts, working: Working, read: Callable[..., Corpus]
) -> Corpus:
    """Calls `read` to read the corpus on the first rank; the other ranks open it in `data`."""

    def follow(message: list[Any]) -> Corpus:
        identity, vocabulary = msgspec.convert(message, tuple[CorpusId, Vocabulary])
        corpus = reopen_corpus(identity, options.data, vocabulary)
        if corpus is None:
            raise TextError(f"{options.data.resolve()} does not hold the encoded corpus")
        return corpus

    with working("encoding") as done:
        sources = {"names": texts.names, "data": options.data, "pipe": texts.pipe}
        reading = partial(read, **sources, progress=done)
        return ranks.share_result(
            reading,
            lambda corpus: msgspec.to_builtins((corpus.identity, corpus.vocabulary)),
            follow,
        )


def _count_ahead(
    corpus: Corpus, choices: NewRunOptions, device: str, warm: WarmStart | None
) -> Future[tuple[Baseline, Experts | None]]:
    """Starts counting. Raises ConfigError, TextError."""
    size = len(corpus.vocabulary)
    values = preset(choices.preset, device, choices.asked)
    model = ModelConfig(vocab_size=size, **only_fields(ModelConfig, values))
    train = TrainConfig(**only_fields(TrainConfig, values))
    train_ids, val_ids = corpus.split(train.val_fraction, 1)
    if warm:
        warm.check_context(corpus, train)
    return count_ahead(train_ids, val_ids, size, model.counting)


def _job(
    plan: Plan, began: float, experts: Experts | None = None, start: StoredModel | None = None
) -> Job:
    from gpt.training.trainer import Job

    return Job(plan.corpus, plan.manifest, plan.device, plan.speed, experts, start, began)


def _trainer(
    run: Run, job: Job, log: Tracker | None, checkpoint: Checkpoint | None = None
) -> Trainer:
    from gpt.reading.probe import prove_tensors
    from gpt.training.trainer import Trainer

    trainer = Trainer(run, job, checkpoint, prove_tensors)
    trainer.records.track(log, job.manifest)
    return trainer


def _record_options(run: Run, manifest: Manifest) -> None:
    """Writes the options, which `resume` may have changed, to config.toml."""
    path = run.path / CONFIG
    if os.path.isfile(path):
        text = files.read(path, LONGEST_FILE).decode("utf-8", "replace")
        values = from_toml(text, str(path))
        source = {name: values.get(name) for name in ("corpus", "init_from")}
        recorded = {name: values.get(name) for name in RECORDED}
        run.write(CONFIG, to_toml({**source, **manifest.settings(), **recorded}))


def _sampled(trainer: Trainer, checkpoint: Checkpoint) -> Sampled:
    """A text that the model generates now. To do so, it opens, and so checks, the checkpoint just
    saved. The counts of the training serve the model, too, as a second copy would need memory.
    """
    from gpt.interface.trained import TrainedGPT

    model, step = TrainedGPT(checkpoint.model()), checkpoint.manifest.step
    model.mixture = trainer.mixture(trainer.kept, step)
    release_memory()  # frees what the check took
    text = model.sample(length=SAMPLE_LENGTH, seed=1)
    trainer.run.append("samples", {"step": step, "text": text})
    return Sampled(step, text)
