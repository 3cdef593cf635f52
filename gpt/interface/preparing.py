"""Prepares a training up to its first step: reads the corpus, plans the run, then locks it.

`gptx train` and `gpt.train` start and resume runs here. Prints nothing: the caller shows the plan
and the events. Torch is imported only while a thread counts n-grams.

A run may start with another model's weights, its parent's, which is only read. The new model takes
its layout: the options that set the shapes and the function of a model. The vocabulary grows
(gpt/corpus/corpus.py), and new characters get new weights (gpt/model/gpt.py).
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
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import only_fields, options_of, require
from gpt.config.model import MAY_DIFFER_FROM_PARENT
from gpt.config.train import (
    Preset,
    Tracker,
    from_toml,
    preset_values,
    to_toml,
)
from gpt.corpus.corpus import Corpus, find_corpus, read_corpus, reopen_corpus
from gpt.corpus.doubts import doubts
from gpt.corpus.sources import Progress, corpus_name, known_recipe, no_progress
from gpt.counting.baseline import Experts, count_ahead
from gpt.counting.tables import release_memory
from gpt.devices import resolve_device
from gpt.errors import TextError
from gpt.interface.trained import TrainedGPT, find_model, read_checkpoint
from gpt.storage import files
from gpt.storage.manifest import Baseline, CorpusId, Manifest, Parent, TrainedText
from gpt.storage.model_file import StoredModel
from gpt.storage.run import Checkpoint, Run, check_free, discard_if_empty, new_run
from gpt.training import ranks
from gpt.training.events import Event, Sampled, Saved, check_tracker
from gpt.vocabulary import Vocabulary
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

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
class Start:
    """A planned training before its first step.

    checkpoint: the one to resume. experts: n-grams, counted already. parent: the model to start
    with. recipe: options that a known corpus has set.
    """

    plan: Plan
    run: Run
    log: Tracker | None
    began: float
    checkpoint: Checkpoint | None = None
    experts: Experts | None = None
    parent: StoredModel | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def trainer(self) -> Trainer:
        """Makes the model and the optimizer."""
        from gpt.reading.probe import prove_tensors
        from gpt.training.trainer import Job, Trainer

        plan = self.plan
        job = Job(
            plan.corpus,
            plan.manifest,
            plan.device,
            plan.speed,
            self.experts,
            self.parent,
            self.began,
        )
        trainer = Trainer(self.run, job, self.checkpoint, prove_tensors)
        trainer.records.track(self.log, plan.manifest)
        return trainer


@contextmanager
def begin_run(
    options: RunConfig,
    asked: Mapping[str, Any],
    texts: Texts,
    working: Working = show_nothing,
    *,
    dry: bool = False,
) -> Iterator[Start]:
    """Reads the texts and plans a new run, then makes and locks its folder. The folder is removed
    if nothing was saved in it.

    asked: options of ModelConfig and TrainConfig. dry: makes no folder. Several ranks have joined
    before. Raises ConfigError, TextError, StorageError, OutOfMemory, CheckpointError.
    """
    began = time.perf_counter()
    check_tracker(options.log)
    parent = None
    if options.init_from is not None:
        find = partial(find_model, options.checkpoints, options.init_from)
        parent = ranks.share_result(find, _place_of, read_checkpoint)
        asked = with_layout(asked, parent.stored)
    recipe = _recipe(options, asked, texts)
    asked, preset = {**asked, **recipe}, options.preset or "default"
    if options.run is not None:
        check_free(options.checkpoints, options.run)
    device = resolve_device(options.device)
    read = partial(
        read_corpus,
        known=parent.vocabulary if parent else None,
        grows=parent is not None,
        config=TrainConfig(**{name: asked[name] for name in READING if name in asked}),
    )
    corpus = _read(read, options.data, texts, working)
    ahead = _count_ahead(corpus, asked, preset, device)  # torch is imported at the same time
    from gpt.training.plan import Machine, make_plan

    baseline, experts = ahead.result()  # before the machine's speed is measured
    plan = make_plan(
        corpus,
        asked,
        preset,
        Machine.measured(options.device),
        options.minutes,
        baseline=baseline,
        parent=parent_of(parent, corpus) if parent else None,
    )
    reasons = doubts(corpus, plan.manifest.train)
    manifest = replace(plan.manifest, doubts=reasons)
    plan = replace(plan, manifest=manifest, warnings=(*plan.warnings, *reasons.texts))
    with ExitStack() as unlocked, ExitStack() as stack:
        folder = None
        if ranks.is_first() and not dry:
            stem = texts.stem or corpus_name(texts.names)
            folder = new_run(options.checkpoints, stem, options.run)
            stack.enter_context(folder.lock())
            unlocked.callback(discard_if_empty, folder)
            source = {
                "corpus": [printable(name) for name in texts.names] or None,
                # the step that was read, because tomorrow another step may be the run's best
                "init_from": printable(_place_of(parent)) if parent else None,
            }
            folder.write(CONFIG, to_toml({**source, **plan.manifest.settings()}))
        run = Run(Path(ranks.from_rank(0, str(folder.path) if folder else "")))
        start = parent.stored if parent else None
        yield Start(plan, run, options.log, began, experts=experts, parent=start, recipe=recipe)


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
        corpus = _read(find, options.data, texts, working)
        from gpt.training.plan import Machine, resume_plan

        machine = Machine.measured(options.device)
        plan = resume_plan(checkpoint, corpus, asked, machine, options.minutes)
        plan = replace(plan, warnings=(*warnings, *plan.warnings))
        yield Start(plan, run, options.log, began, checkpoint)


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


def _recipe(options: RunConfig, asked: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    """The options that a known corpus sets; if a preset is given, only its split."""
    recipe = {**known_recipe(texts.names)}
    if options.preset:
        recipe = {name: value for name, value in recipe.items() if name in SPLITTING}
    if options.minutes is not None:
        recipe.pop("steps", None)
    return {name: value for name, value in recipe.items() if name not in asked}


def _read(read: Callable[..., Corpus], data: Path, texts: Texts, working: Working) -> Corpus:
    """Calls `read` to read the corpus on the first rank; the other ranks open it in `data`."""

    def follow(message: list[Any]) -> Corpus:
        identity, vocabulary = msgspec.convert(message, tuple[CorpusId, Vocabulary])
        corpus = reopen_corpus(identity, data, vocabulary)
        if corpus is None:
            raise TextError(f"{data.resolve()} does not hold the encoded corpus")
        return corpus

    with working("encoding") as done:
        return ranks.share_result(
            partial(read, names=texts.names, data=data, pipe=texts.pipe, progress=done),
            lambda corpus: msgspec.to_builtins((corpus.identity, corpus.vocabulary)),
            follow,
        )


def _count_ahead(
    corpus: Corpus, asked: Mapping[str, Any], preset: Preset, device: str
) -> Future[tuple[Baseline, Experts | None]]:
    """Starts counting. Raises ConfigError, TextError."""
    size = len(corpus.vocabulary)
    values = preset_values(preset, device, asked)
    model = ModelConfig(vocab_size=size, **only_fields(ModelConfig, values))
    train = TrainConfig(**only_fields(TrainConfig, values))
    train_ids, val_ids = corpus.split(train.val_fraction, 1)
    return count_ahead(train_ids, val_ids, size, model.counting)


def _record_options(run: Run, manifest: Manifest) -> None:
    """Writes the options, which `resume` may have changed, to config.toml."""
    path = run.path / CONFIG
    if os.path.isfile(path):
        text = files.read(path).decode("utf-8", "replace")
        values = from_toml(text, str(path))
        source = {name: values.get(name) for name in ("corpus", "init_from")}
        run.write(CONFIG, to_toml({**source, **manifest.settings()}))


def _sampled(trainer: Trainer, checkpoint: Checkpoint) -> Sampled:
    """A text that the model generates now. To do so, it opens, and so checks, the checkpoint just
    saved. The counts of the training serve the model, too, as a second copy would need memory.
    """
    model, step = TrainedGPT(checkpoint.model()), checkpoint.manifest.step
    model.mixture = trainer.mixture(trainer.kept, step)
    release_memory()  # frees what the check took
    text = model.sample(length=SAMPLE_LENGTH, seed=1)
    trainer.run.append("samples", {"step": step, "text": text})
    return Sampled(step, text)


def _place_of(parent: TrainedGPT) -> str:
    """The path of the folder of its step, or of the model file."""
    source = parent.stored.source
    return str(source.parent if parent.checkpoint else source)


def with_layout(asked: Mapping[str, Any], parent: StoredModel) -> dict[str, Any]:
    """The given options and the parent's layout. Raises ConfigError for a conflict of them."""
    options = options_of(ModelConfig).keys() - {*MAY_DIFFER_FROM_PARENT}
    layout = {name: value for name, value in vars(parent.config).items() if name in options}
    for name, value in asked.items():
        has = f"{parent.name}, whose weights this run starts with, has {layout.get(name)}"
        require(layout.get(name, value) == value, name, f"{has}, not {value}; leave the option out")
    return {**asked, **layout}


def parent_of(model: TrainedGPT, corpus: Corpus) -> Parent:
    """What a run on this corpus records about the model that it starts with."""
    stored, manifest = model.stored, model.recorded
    texts = manifest.texts(stored.name) if manifest else (TrainedText(stored.name),)
    added = corpus.vocabulary.characters[len(stored.vocabulary) :]
    return Parent(stored.name, stored.step, stored.digest, added, texts)
