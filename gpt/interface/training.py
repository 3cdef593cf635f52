"""Training from Python: `gpt.train` and `gpt.resume`, with a progress bar.

They train as `gptx train` does. Imports torch only once the corpus is read.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from gpt.config import ModelOptions, RunConfig, TrainConfig
from gpt.config.fields import fields_of, only_fields, require, takes_given
from gpt.config.train import DEFAULTS, Changeable, Session
from gpt.devices import let_threads_sleep
from gpt.errors import ConfigError
from gpt.interface.trained import TrainedGPT, load
from gpt.signals import stop_on_signals
from gpt.storage.run import MANIFEST
from gpt.vocabulary import log_note
from gpt.words import one_line

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.interface.preparing import Start
    from gpt.training.card import EventLines
    from gpt.training.events import Event, Stopped
    from gpt.training.trainer import Trainer

PathLike: TypeAlias = str | os.PathLike[str]
#: A file, a folder, a known name, or several of these; None: the Python language reference.
Corpus: TypeAlias = PathLike | Sequence[PathLike] | None

BAR_FORMAT = "{percentage:3.0f}%|{bar}| ETA {remaining} {desc}"  # a narrow terminal cuts its end


@dataclass(frozen=True, kw_only=True)
class TrainCall(TrainConfig, ModelOptions, RunConfig):
    """The arguments of `train`."""

    corpus: Corpus = field(default=None, kw_only=False)
    text: Annotated[str | None, Meta()] = None
    init_from: TrainedGPT | PathLike | None = None  # type: ignore[assignment]  # wider
    progress: Annotated[bool, Meta()] = True
    checkpoints: PathLike = "checkpoints"  # type: ignore[assignment]  # wider
    data: PathLike = "data"  # type: ignore[assignment]  # wider


@dataclass(frozen=True, kw_only=True)
class ResumeCall(Changeable, Session):
    """The arguments of `resume`."""

    run: TrainedGPT | PathLike = field(kw_only=False)
    corpus: Corpus = field(default=None, kw_only=False)
    progress: Annotated[bool, Meta()] = True
    data: PathLike = "data"  # type: ignore[assignment]  # wider


def _begin(arguments: dict[str, Any]) -> AbstractContextManager[Start]:
    """Plans a new run. Raises ConfigError, TextError."""
    from gpt.interface.preparing import Texts, begin_run

    _require_one_process("train")
    let_threads_sleep()
    run = RunConfig(**{**only_fields(RunConfig, arguments), "init_from": _place(arguments)})
    corpus, text = arguments.get("corpus"), arguments.get("text")
    options = only_fields(ModelOptions, arguments) | only_fields(TrainConfig, arguments)
    if text is None:
        return begin_run(run, options, Texts(corpus_names(corpus)))
    require(corpus is None, "text", "give either `corpus` or `text`")
    require(bool(text), "text", "it is empty")
    return begin_run(run, options, Texts(("-",), io.BytesIO(text.encode()), "text"))


def _require_one_process(name: str) -> None:
    """Raises ConfigError in one of several processes that torchrun has started."""
    from gpt.training import ranks

    if ranks.world_size() > 1:
        raise ConfigError(f"gpt.{name} trains in one process; use torchrun with gptx train")


def _place(arguments: dict[str, Any]) -> str | None:
    """The run's name or the path of the model to start with."""
    model = arguments.get("init_from")
    if not isinstance(model, TrainedGPT):
        return os.fspath(model) if isinstance(model, os.PathLike) else model
    source = model.stored.source
    return str(source.parent if os.path.isfile(source.parent / MANIFEST) else source)


def corpus_names(corpus: Corpus) -> tuple[str, ...]:
    """The names of these texts. Raises ConfigError for an empty list."""
    if corpus is None:
        return ()
    several = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
    names = tuple(os.fspath(path) for path in several)
    require(bool(names), "corpus", "the list is empty; name a file or a folder")
    return names


@takes_given(TrainCall, DEFAULTS)
def train(arguments: dict[str, Any]) -> TrainedGPT:
    """Trains a new run and returns it, opened at its best step.

    corpus: a file, a folder, a known name ("shakespeare", "repeats") or a list of these; text: the
    text itself. Without both, gptx trains on the Python language reference. init_from: a run, its
    name, or a path, whose weights the new run starts with. checkpoints, data: the folders of the
    runs and of the encoded corpora. progress: shows a bar. Ctrl-C or a notebook's stop button ends
    the training early: the run is saved and returned; `gpt.resume` continues it.

    Raises ConfigError, TypeError, TextError, OutOfMemory, NumericsError, StorageError.
    """
    return _trained(_begin(arguments), arguments)


@takes_given(ResumeCall, {"minutes": None, **dict.fromkeys(fields_of(Changeable), "unchanged")})
def resume(arguments: dict[str, Any]) -> TrainedGPT:
    """Trains a run further from its last step on; returns it, opened at its best step.

    run: what `load` or `train` returned, or the run's folder. minutes: train this much longer; a
    finished run begins again at half its highest learning rate. steps: the number in all. corpus:
    where the text is now, if it has moved. Raises what `train` does, and CheckpointError.
    """
    from gpt.interface.preparing import Texts, resume_run
    from gpt.storage.run import Run, find_run

    _require_one_process("resume")
    let_threads_sleep()
    run = arguments["run"]
    path = run.path if isinstance(run, TrainedGPT) else Path(run)
    stored = Run(path) if Run(path).steps() else find_run(path)
    settings = RunConfig(**only_fields(Session, arguments), checkpoints=path.parent)
    options = only_fields(Changeable, arguments)
    texts = Texts(corpus_names(arguments.get("corpus")))
    return _trained(resume_run(stored, settings, options, texts), arguments)


def _trained(preparing: AbstractContextManager[Start], arguments: dict[str, Any]) -> TrainedGPT:
    """Trains to the end, or until an interrupt. Returns the run."""
    with preparing as start:
        from tqdm import tqdm

        trainer = start.trainer()
        done = trainer.manifest.progress
        hidden = not (arguments.get("progress", True) and _can_show())
        bar = tqdm(disable=hidden, total=1.0, initial=done, bar_format=BAR_FORMAT)
        train_to_end(trainer, bar, "SIGINT")
        step = trainer.manifest.step
        if trainer.manifest.progress < 1:
            log_note(f"note: stopped after step {step:,}; gpt.resume continues the run")
        elif done >= 1:
            log_note(f"note: the run is finished at step {step:,}; give `minutes` or `steps`")
    return load(start.run.path)


def train_to_end(
    trainer: Trainer, bar: tqdm[Any], *signals: str, lines: EventLines | None = None
) -> Stopped:
    """Trains until the end, or until one of these signals. lines: what to show above the bar."""
    from gpt.training.events import Stopped

    with stop_on_signals(trainer.stop, *signals), bar:
        for event in show_bar(trainer, bar):
            for line in lines.of(event) if lines else ():
                with suppress(OSError):  # stderr is closed
                    bar.write(one_line(line), file=sys.stderr)
    assert isinstance(event, Stopped)
    return event


def show_bar(trainer: Trainer, bar: tqdm[Any]) -> Iterator[Event]:
    """Trains and yields the events. The bar, of total 1, shows progress, step and losses."""
    from gpt.interface.preparing import train_and_record
    from gpt.training.events import Evaluated, EvaluatedAtEnd, Evaluating, Stepped

    shown = validation = ""
    for event in train_and_record(trainer):
        if isinstance(event, Stepped):
            shown = f"step {event.step:,} loss {event.loss:.3f}"
            bar.set_description_str(f"{shown}{validation} ", refresh=False)
            bar.update(trainer.manifest.progress - bar.n)
        elif isinstance(event, Evaluated | EvaluatedAtEnd):
            validation = f" validation {event.val_loss:.3f}"
        elif isinstance(event, Evaluating):
            bar.set_description_str(f"reading the validation text: {event.share:.0%} ")
        yield event
    if not bar.disable:
        bar.bar_format = "{desc}in {elapsed}"
        bar.set_description_str(f"{shown}{validation} ")


def _can_show() -> bool:
    """Whether a bar can be drawn on stderr: in a terminal or notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or hasattr(shell, "kernel")
