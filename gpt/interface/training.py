"""Trains and resumes runs with a progress bar, for `gpt.train`, `gpt.resume` and `gptx train`:
reads the corpus, plans the run, locks its folder, and trains. Imports torch while a thread counts
letter sequences, because both take long.

A new run may start with the weights of another model, its parent. The run takes the parent's
layout: the options that set the shapes and the function of a model. The run's vocabulary is the
parent's, extended by the new characters of the corpus (gpt/corpus/corpus.py). These characters get
new weights (gpt/model/gpt.py).
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from gpt.config import ModelConfig, ModelOptions, RunConfig, TrainConfig
from gpt.config.fields import fields_of, only_fields, options_of, passed_keywords_from, require
from gpt.config.model import MAY_DIFFER_FROM_PARENT
from gpt.config.train import (
    DEFAULTS,
    ResumeOptions,
    SessionOptions,
    Tracker,
    from_toml,
    preset_values,
    to_toml,
)
from gpt.corpus.corpus import Corpus, find_corpus, read_corpus, reopen_corpus
from gpt.corpus.doubts import find_doubts
from gpt.corpus.sources import Progress, Texts, no_progress
from gpt.counting.baseline import start_counting
from gpt.counting.tables import release_memory
from gpt.devices import let_threads_sleep, resolve_device
from gpt.errors import ConfigError, TextError, stop_on_signals
from gpt.interface.trained import TrainedGPT, find_model, load, read_checkpoint
from gpt.storage import files
from gpt.storage.checkpoint_files import CorpusId, Manifest, Parent, StoredModel, TrainedText
from gpt.storage.run import (
    Checkpoint,
    Run,
    discard_if_empty,
    find_run,
    new_run,
    require_unused_run,
)
from gpt.training import ranks
from gpt.training.progress import (
    Evaluated,
    Evaluating,
    Event,
    Sampled,
    Saved,
    Stepped,
    Stopped,
    check_tracker,
)
from gpt.vocabulary import Vocabulary, log_note
from gpt.words import one_line, printable

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.training.card import EventLines
    from gpt.training.plan import Plan
    from gpt.training.trainer import Job, Trainer

SAMPLE_LENGTH = 160  # characters that the model writes at every checkpoint
CONFIG = "config.toml"  # the file of a run that lists its options

#: A context that shows the progress of reading the corpus; None shows nothing.
ProgressBar: TypeAlias = AbstractContextManager[Progress] | None


@dataclass(frozen=True)
class PlannedTraining:
    """A training before its first step. checkpoint: the checkpoint from which it resumes."""

    plan: Plan
    run: Run
    job: Job
    log: Tracker | None
    checkpoint: Checkpoint | None = None

    def make_trainer(self) -> Trainer:
        """Makes the model and the optimizer."""
        from gpt.reading.probe import check_tensors
        from gpt.training.trainer import Trainer

        trainer = Trainer(self.run, self.job, self.checkpoint, check_tensors)
        if self.log is not None and ranks.is_first():
            trainer.records.track(self.plan.manifest.step)
        return trainer


@contextmanager
def begin_run(
    options: RunConfig,
    overrides: Mapping[str, Any],
    texts: Texts,
    bar: ProgressBar = None,
    *,
    dry: bool = False,
) -> Iterator[PlannedTraining]:
    """Reads the texts and plans a new run, then makes and locks its folder. Removes the folder at
    the end if nothing was saved in it.

    overrides: the user's options of ModelConfig and TrainConfig. dry: makes no folder. Raises
    ConfigError, TextError, StorageError, OutOfMemory, CheckpointError.
    """
    began = time.perf_counter()
    check_tracker(options.log)
    parent = None
    if options.init_from is not None:
        find = partial(find_model, options.checkpoints, options.init_from)
        parent = ranks.share_result(find, _path_of, read_checkpoint)
        overrides = _with_layout(overrides, parent.stored)
    overrides = {**overrides, **_recipe(options, overrides, texts)}
    preset = options.preset or "default"
    if options.run is not None:
        require_unused_run(options.checkpoints, options.run)
    values = preset_values(preset, resolve_device(options.device), overrides)
    train = TrainConfig(**only_fields(TrainConfig, values))
    known = parent.vocabulary if parent else None
    corpus = _read(partial(read_corpus, texts, options.data, train, known), options.data, bar)
    size = len(corpus.vocabulary)
    model = ModelConfig(vocab_size=size, **only_fields(ModelConfig, values))
    train_ids, val_ids = corpus.split(train.val_fraction, 1)
    counts = start_counting(train_ids, val_ids, size, model.counting)  # in a thread
    from gpt.training.plan import Machine, make_plan  # imports torch meanwhile
    from gpt.training.trainer import Job

    baseline, experts = counts.result()  # the thread ends before the machine's speed is measured
    plan = make_plan(
        corpus,
        overrides,
        preset,
        Machine.measured(options.device),
        options.minutes,
        baseline=baseline,
        parent=_parent_of(parent, corpus) if parent else None,
    )
    reasons = find_doubts(corpus, plan.manifest.train)
    manifest = replace(plan.manifest, doubts=reasons)
    plan = replace(plan, manifest=manifest, warnings=(*plan.warnings, *reasons.sentences))
    with ExitStack() as unlocked, ExitStack() as stack:
        folder = None
        if ranks.is_first() and not dry:
            folder = new_run(options.checkpoints, texts.stem, options.run)
            stack.enter_context(folder.lock())
            unlocked.callback(discard_if_empty, folder)
            source = {
                "corpus": [printable(name) for name in texts.names] or None,
                # the path of the step, because another step may become the parent's best
                "init_from": printable(_path_of(parent)) if parent else None,
            }
            folder.write(CONFIG, to_toml({**source, **plan.manifest.settings()}))
        run = Run(Path(ranks.broadcast(0, str(folder.path) if folder else "")))
        job = Job(
            corpus,
            manifest,
            plan.machine.device,
            plan.speed,
            experts=experts,
            start=parent.stored if parent else None,
            began=began,
        )
        _log_notes(plan)
        yield PlannedTraining(plan, run, job, options.log)


@contextmanager
def resume_run(
    run: Run,
    options: RunConfig,
    overrides: Mapping[str, Any],
    texts: Texts,
    bar: ProgressBar = None,
) -> Iterator[PlannedTraining]:
    """Locks a run, and plans its training from its newest undamaged checkpoint on. The arguments
    are those of begin_run. Raises what begin_run does, and RunInUseError.
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
        advice = f"this run has {manifest.preset}, not {options.preset}; leave the option out"
        require(options.preset in (None, manifest.preset), "preset", advice)
        find = partial(find_corpus, texts, options.data, manifest, run.name)
        corpus = _read(find, options.data, bar)
        from gpt.training.plan import Machine, resume_plan
        from gpt.training.trainer import Job

        machine = Machine.measured(options.device)
        plan = resume_plan(checkpoint, corpus, overrides, machine, options.minutes)
        plan = replace(plan, warnings=(*warnings, *plan.warnings))
        job = Job(corpus, plan.manifest, plan.machine.device, plan.speed, began=began)
        _log_notes(plan)
        yield PlannedTraining(plan, run, job, options.log, checkpoint)


def _log_notes(plan: Plan) -> None:
    """Logs, on the first rank, the warnings of the plan and the notes on the corpus."""
    if ranks.is_first():
        for warning in plan.warnings:
            log_note(f"warning: {warning}")
        for note in plan.corpus.notes:
            log_note(f"note: {note}")


def _recipe(options: RunConfig, overrides: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    """The options of a known corpus that the user has not set. A preset sets all but the split."""
    recipe = {name: value for name, value in texts.recipe.items() if name not in overrides}
    if options.preset:
        recipe = {name: recipe[name] for name in ("split", "val_fraction") if name in recipe}
    if options.minutes is not None:
        recipe.pop("steps", None)
    return recipe


def _read(read: Callable[..., Corpus], data: Path, bar: ProgressBar) -> Corpus:
    """Reads the corpus with `read` on the first rank. The other ranks then open it in `data`."""

    def follow(message: list[Any]) -> Corpus:
        identity, vocabulary = msgspec.convert(message, tuple[CorpusId, Vocabulary])
        corpus = reopen_corpus(identity, data, vocabulary)
        if corpus is None:
            raise TextError(f"{data.resolve()} does not hold the encoded corpus")
        return corpus

    with bar or nullcontext(no_progress) as done:
        return ranks.share_result(
            partial(read, progress=done),
            lambda corpus: msgspec.to_builtins((corpus.identity, corpus.vocabulary)),
            follow,
        )


def _record_options(run: Run, manifest: Manifest) -> None:
    """Writes a resumed run's options, which may have changed, to its config.toml."""
    path = run.path / CONFIG
    if os.path.isfile(path):
        values = from_toml(files.read(path).decode("utf-8", "replace"), str(path))
        source = {name: values.get(name) for name in ("corpus", "init_from")}
        run.write(CONFIG, to_toml({**source, **manifest.settings()}))


def _sampled(trainer: Trainer, checkpoint: Checkpoint) -> Sampled:
    """Checks the new checkpoint, then generates and records a sample with it. The model shares the
    counts of the training, because a copy would need memory.
    """
    model, step = TrainedGPT(checkpoint.model()), checkpoint.manifest.step
    model.mixture = trainer.mixture(trainer.saved_model, step)
    release_memory()  # frees the memory that the check used
    text = model.sample(length=SAMPLE_LENGTH, seed=1)
    trainer.run.append("samples", {"step": step, "text": text})
    return Sampled(step, text)


def _path_of(parent: TrainedGPT) -> str:
    """The path of a model's step folder, or of its model file."""
    source = parent.stored.source
    return str(source.parent if parent.checkpoint else source)


def _with_layout(overrides: Mapping[str, Any], parent: StoredModel) -> dict[str, Any]:
    """Adds the parent's layout to the options. Raises ConfigError for a contradiction."""
    options = options_of(ModelConfig).keys() - {*MAY_DIFFER_FROM_PARENT}
    layout = {name: value for name, value in vars(parent.config).items() if name in options}
    for name, value in overrides.items():
        has = f"{parent.name}, whose weights this run starts with, has {layout.get(name)}"
        require(layout.get(name, value) == value, name, f"{has}, not {value}; leave the option out")
    return {**overrides, **layout}


def _parent_of(model: TrainedGPT, corpus: Corpus) -> Parent:
    """What a new run on this corpus records about its parent."""
    stored, manifest = model.stored, model.manifest_or_none
    texts = manifest.trained_texts(stored.name) if manifest else (TrainedText(stored.name),)
    added = corpus.vocabulary.characters[len(stored.vocabulary) :]
    return Parent(stored.name, stored.step, stored.digest, added, texts)


PathLike: TypeAlias = str | os.PathLike[str]
#: A file, a folder, a known name, or several of these; None: the Python language reference.
CorpusNames: TypeAlias = PathLike | Sequence[PathLike] | None

BAR_FORMAT = (
    "{percentage:3.0f}%|{bar}| ETA {remaining} {desc}"  # tqdm cuts the end on a narrow terminal
)


@dataclass(frozen=True, kw_only=True)
class TrainCall(TrainConfig, ModelOptions, RunConfig):
    """The arguments of `train`."""

    corpus: CorpusNames = field(default=None, kw_only=False)
    text: Annotated[str | None, Meta()] = None
    init_from: TrainedGPT | PathLike | None = None  # type: ignore[assignment]  # a wider type
    progress: Annotated[bool, Meta()] = True
    checkpoints: PathLike = "checkpoints"  # type: ignore[assignment]  # a wider type
    data: PathLike = "data"  # type: ignore[assignment]  # a wider type


@dataclass(frozen=True, kw_only=True)
class ResumeCall(ResumeOptions, SessionOptions):
    """The arguments of `resume`."""

    run: TrainedGPT | PathLike = field(kw_only=False)
    corpus: CorpusNames = field(default=None, kw_only=False)
    progress: Annotated[bool, Meta()] = True
    data: PathLike = "data"  # type: ignore[assignment]  # a wider type


def _texts(corpus: CorpusNames) -> Texts:
    """The texts of a corpus. Raises ConfigError for an empty list."""
    if corpus is None:
        return Texts()
    names = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
    require(bool(names), "corpus", "the list is empty; name a file or a folder")
    return Texts(tuple(os.fspath(name) for name in names))


@passed_keywords_from(TrainCall, DEFAULTS)
def train(arguments: dict[str, Any]) -> TrainedGPT:
    """Trains a new run and returns it, opened at its best step.

    corpus: a file, a folder, a known name ("shakespeare", "repeats") or a list of these. text: the
    text itself. Without corpus and text, gptx trains on the Python language reference. init_from: a
    run, its name or its path; the new run starts with that run's weights. checkpoints: the folder
    of the runs. data: the folder of the encoded corpora. progress: shows a bar. Ctrl-C or a
    notebook's stop button ends the training early and saves the run; `gpt.resume` continues it.

    Raises ConfigError, TypeError, TextError, OutOfMemory, NumericsError, StorageError.
    """
    corpus, text = arguments.get("corpus"), arguments.get("text")
    start = arguments.get("init_from")
    if isinstance(start, TrainedGPT):
        start = _path_of(start)
    elif isinstance(start, os.PathLike):
        start = os.fspath(start)
    run = RunConfig(**{**only_fields(RunConfig, arguments), "init_from": start})
    options = only_fields(ModelOptions, arguments) | only_fields(TrainConfig, arguments)
    texts = _texts(corpus)
    if text is not None:
        require(corpus is None, "text", "give either `corpus` or `text`")
        require(bool(text), "text", "it is empty")
        texts = Texts(("-",), io.BytesIO(text.encode()), "text")
    return _trained(begin_run(run, options, texts), arguments)


@passed_keywords_from(
    ResumeCall, {"minutes": None, **dict.fromkeys(fields_of(ResumeOptions), "unchanged")}
)
def resume(arguments: dict[str, Any]) -> TrainedGPT:
    """Continues a run from its last step, and returns it, opened at its best step.

    run: what `load` or `train` returned, or the run's folder. minutes: how much longer to train; a
    finished run goes on at half its highest learning rate. steps: the total number of steps.
    corpus: the new path of the text, if it has moved. Raises what `train` does, and
    CheckpointError.
    """
    run = arguments["run"]
    path = run.path if isinstance(run, TrainedGPT) else Path(run)
    stored = Run(path) if Run(path).steps() else find_run(path)
    settings = only_fields(SessionOptions, arguments)
    options = only_fields(ResumeOptions, arguments)
    texts = _texts(arguments.get("corpus"))
    return _trained(resume_run(stored, RunConfig(**settings), options, texts), arguments)


def _trained(
    preparing: AbstractContextManager[PlannedTraining], arguments: dict[str, Any]
) -> TrainedGPT:
    """Trains to the end or until an interrupt, and returns the run. Raises ConfigError if torchrun
    has started several processes.
    """
    if ranks.world_size() > 1:
        raise ConfigError("Python trains in one process; use torchrun with gptx train")
    let_threads_sleep()
    with preparing as start:
        from tqdm import tqdm

        trainer = start.make_trainer()
        done = trainer.manifest.progress
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        can_show = sys.stderr.isatty() or hasattr(shell, "kernel")  # a terminal or a notebook
        hidden = not (arguments.get("progress", True) and can_show)
        bar = tqdm(disable=hidden, total=1.0, initial=done, bar_format=BAR_FORMAT)
        train_to_end(trainer, bar, "SIGINT")
        step = trainer.manifest.step
        if trainer.manifest.progress < 1:
            log_note(f"note: stopped after step {step:,}; gpt.resume continues the run")
        elif done >= 1:
            log_note(f"note: the run ended at step {step:,}; to go on, set `minutes` or `steps`")
    return load(start.run.path)


def train_to_end(
    trainer: Trainer, bar: tqdm[Any], *signals: str, lines: EventLines | None = None
) -> Stopped:
    """Trains to the end or until one of these signals. lines: makes the lines above the bar."""
    with stop_on_signals(trainer.stop, *signals), bar:
        for event in train_with_bar(trainer, bar):
            for line in lines.after(event) if lines else ():
                with suppress(OSError):  # if stderr is closed
                    bar.write(one_line(line), file=sys.stderr)
    assert isinstance(event, Stopped)
    return event


def train_with_bar(trainer: Trainer, bar: tqdm[Any]) -> Iterator[Event]:
    """Trains and yields the events. Records a sample of every checkpoint, and the options of a
    resumed run. Updates the bar, whose total is 1, with progress, step and losses.
    """
    shown = validation = ""
    is_recorded = trainer.saved_step is None  # config.toml already lists a new run's options
    with closing(trainer.records):
        for event in trainer.events():
            if isinstance(event, Stepped):
                shown = f"step {event.step:,} loss {event.loss:.3f}"
                bar.set_description_str(f"{shown}{validation} ", refresh=False)
                bar.update(trainer.manifest.progress - bar.n)
            elif isinstance(event, Evaluated):
                validation = f" validation {event.val_loss:.3f}"
            elif isinstance(event, Evaluating):
                bar.set_description_str("reading the validation text ")
            yield event
            if isinstance(event, Saved):
                if not is_recorded:
                    _record_options(trainer.run, trainer.manifest)
                    is_recorded = True
                if event.checkpoint.manifest.step:  # at step 0, the model has learned nothing
                    yield _sampled(trainer, event.checkpoint)
    if not bar.disable:
        bar.bar_format = "{desc}in {elapsed}"
        bar.set_description_str(f"{shown}{validation} ")
