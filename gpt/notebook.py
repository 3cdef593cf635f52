"""Training from Python: `gpt.train`, `gpt.train_events` and `gpt.resume`, their keywords and the
order that these make, with a progress bar.

They train as `gptx train` does. Imports torch only once the corpus is read.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Unpack

from gpt.config import ModelConfig, TrainConfig, presets
from gpt.config.fields import check_fields, only_fields, require
from gpt.config.keywords import ResumeOptions, TrainOptions, Unquoted, takes
from gpt.config.train import BY_SHARE, Tracker
from gpt.devices import Device, share_cores
from gpt.errors import ConfigError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.signals import graceful
from gpt.storage.checkpoint import MANIFEST

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.preparing import Order, Start
    from gpt.training.events import Event
    from gpt.training.trainer import Trainer

PathLike: TypeAlias = str | os.PathLike[str]
#: A file, a folder, a known name, or several of these; None: the Python language reference.
Corpus: TypeAlias = PathLike | Sequence[PathLike] | None

SHOWN = 60  # most characters of a wrong name that an error shows


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """Keywords of a new run."""

    text: Annotated[str | None, "The text itself, in place of a corpus."] = None
    minutes: Annotated[
        float | None, "Time for the run, to which the model's shape and the steps are fitted."
    ] = None
    preset: Annotated[
        presets.Preset | None,
        "default (takes 2 minutes, unless minutes or steps are given), best or classic.",
    ] = None
    run: Annotated[str | None, "The run's name; None: the corpus's name and a number."] = None
    parent: Annotated[
        TrainedGPT | PathLike | None,
        "The model whose weights the run starts with: a run's name, a path, or an opened model.",
    ] = None
    checkpoints: Annotated[PathLike, "Folder of the runs."] = "checkpoints"

    def __post_init__(self) -> None:
        check_fields(self)
        _check_path("checkpoints", self.checkpoints)
        if self.parent is not None and not isinstance(self.parent, TrainedGPT):
            _check_path("parent", self.parent)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Keywords of new and resumed runs."""

    device: Annotated[Device, "Where to train; auto: a GPU if there is one."] = "auto"
    data: Annotated[PathLike, "Folder of the encoded corpora."] = "data"
    log: Annotated[Tracker | None, "A tracker that gets the records of metrics.jsonl, too."] = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_path("data", self.data)


def _check_path(name: str, value: object) -> None:
    require(isinstance(value, str | os.PathLike), name, f"{value!r} is not a path")


class PlaceOptions(ResumeOptions, total=False):
    """The keywords of a resumed run."""

    device: Device
    data: PathLike
    log: Tracker | None


class NewRunOptions(TrainOptions, total=False):
    """The keywords of a new run."""

    device: Device
    data: PathLike
    log: Tracker | None
    text: str | None
    minutes: float | None
    preset: presets.Preset | None
    run: str | None
    parent: TrainedGPT | PathLike | None
    checkpoints: PathLike


def new_order(corpus: Corpus, options: NewRunOptions) -> Order:
    """The order for a new run. Raises ConfigError, TextError."""
    from gpt.preparing import Order

    _require_one_process("train")
    share_cores()
    new, place = NewRun(**only_fields(NewRun, options)), Place(**only_fields(Place, options))
    given = only_fields(ModelConfig, options) | only_fields(TrainConfig, options)
    require(corpus is None or new.text is None, "text", "give either `corpus` or `text`")
    if new.text == "":
        raise TextError("text: it is empty")
    by_share = options.get("split", "last") in BY_SHARE
    shares = by_share or "val_fraction" not in given
    require(shares, "val_fraction", "only with `split='last'` or `split='source'`")
    order = Order(
        corpus=names_of(corpus),
        given=given,
        preset=new.preset,
        minutes=new.minutes,
        run=new.run,
        parent=_place(new.parent),
        device=place.device,
        checkpoints=Path(new.checkpoints),
        data=Path(place.data),
        log=place.log,
    )
    if new.text is None:
        return order
    pipe = BytesIO(new.text.encode("utf-8", "surrogatepass"))
    return replace(order, corpus=("-",), pipe=pipe, stem="text")


def _require_one_process(name: str) -> None:
    """Raises ConfigError in one of several processes that torchrun has started."""
    from gpt.training import ranks

    if ranks.size() > 1:
        raise ConfigError(f"gpt.{name} trains in one process; use torchrun with gptx train")


def _place(parent: TrainedGPT | PathLike | None) -> str | None:
    """A run's name or a path."""
    if not isinstance(parent, TrainedGPT):
        return None if parent is None else os.fspath(parent)
    source = parent.stored.source
    return str(source.parent if os.path.isfile(source.parent / MANIFEST) else source)


def names_of(corpus: Corpus) -> tuple[str, ...]:
    """The names of the texts. Raises TextError if one of them does not exist."""
    from gpt.corpus.sources import KNOWN

    several = () if corpus is None else corpus
    several = [several] if isinstance(several, str | os.PathLike) else [*several]
    wrong = [each for each in several if not isinstance(each, str | os.PathLike)]
    if wrong:
        raise TypeError(f"corpus: expected names of files, not {type(wrong[0]).__name__}")
    names = tuple(os.fspath(each) for each in several)
    for name in names:
        if not os.path.exists(name) and name not in KNOWN:
            shown = name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."
            raise TextError(
                f"corpus: there is no file or folder {shown!r}; give an existing path, one of the "
                f"known names {', '.join(KNOWN)}, or a text itself as text='…'"
            )
    return names


LAYOUT = "{percentage:3.0f}%|{bar}| ETA {remaining} {desc}"  # a narrow terminal cuts its end
_say = partial(logging.getLogger("gpt").warning, "note: %s")  # Python writes it to stderr

#: What help() shows as the defaults of options that the preset, the corpus or the time sets.
DEFAULTS = presets.preset("default", "cpu") | dict.fromkeys(presets.FITTED, Unquoted("fitted"))


@takes(NewRunOptions.__annotations__, NewRun, Place, ModelConfig, TrainConfig, defaults=DEFAULTS)
def train(
    corpus: Corpus = None, *, progress: bool = True, **options: Unpack[NewRunOptions]
) -> TrainedGPT:
    """Trains a new run and returns it, opened at its best step.

    corpus: a file, a folder, a known name or a list of these; a file *.tsv has pairs, lines of
    source TAB target. Known names are "shakespeare", which is downloaded, "repeats", which sets its
    own options, and "dates", which are pairs. Without corpus and text, it trains on the Python
    language reference. progress: shows a bar in a terminal or notebook.
    Ctrl-C or a notebook's stop button ends the training early: the run is saved and returned;
    `gpt.resume` continues it. A second one ends at once, with what was last saved.
    Raises ConfigError, TypeError, TextError, OutOfMemory, NumericsError, StorageError.
    """
    from gpt.preparing import begun

    return _trained(
        begun(replace(new_order(corpus, options), working=_working(progress))), progress
    )


@takes(NewRunOptions.__annotations__, NewRun, Place, ModelConfig, TrainConfig, defaults=DEFAULTS)
def train_events(corpus: Corpus = None, **options: Unpack[NewRunOptions]) -> Iterator[Event]:
    """Trains a new run, and yields each event: Stepped, Evaluated, Saved and others, which are
    described in gpt/training/events.py.

    The arguments and errors are those of `train`. A loop left early leaves the run as last saved.
    """
    from gpt.preparing import begun

    return _events(begun(new_order(corpus, options)))


@takes(
    PlaceOptions.__annotations__,
    Place,
    TrainConfig,
    defaults=dict.fromkeys(ResumeOptions.__annotations__, Unquoted("unchanged")),
)
def resume(
    run: TrainedGPT | PathLike,
    corpus: Corpus = None,
    *,
    progress: bool = True,
    **options: Unpack[PlaceOptions],
) -> TrainedGPT:
    """Trains a run further from its last step on, and returns it, opened at its best step.

    run: what `load` or `train` returned, or the run's folder. steps: the number of steps in all,
    from step 0 on. corpus: where the text is now, if it has moved. Stops and errors are those of
    `train`; raises CheckpointError if there is no such run.
    """
    from gpt.preparing import Order, resumed
    from gpt.storage.run import Run
    from gpt.storage.runs import find_run

    _require_one_process("resume")
    share_cores()
    place = Place(**only_fields(Place, options))
    path = run.path if isinstance(run, TrainedGPT) else Path(run)
    order = Order(
        checkpoints=path.parent,
        data=Path(place.data),
        corpus=names_of(corpus),
        given=only_fields(TrainConfig, options),
        device=place.device,
        log=place.log,
        working=_working(progress),
    )
    found = Run(path) if Run(path).steps() else find_run(path)
    return _trained(resumed(order, found), progress)


def _trained(preparing: AbstractContextManager[Start], progress: bool) -> TrainedGPT:
    """Trains to the end, or until an interrupt. Returns the run."""
    from gpt.interface.trained import load

    with preparing as start:
        _note(start)
        trainer = start.trainer()
        done = trainer.manifest.step / trainer.config.steps
        with graceful(trainer.stop, "SIGINT"), _bar(progress, initial=done) as bar:
            for _ in followed(trainer, bar):
                pass
        step, steps = trainer.manifest.step, trainer.config.steps
        if step < steps or done >= 1:  # stopped early, or nothing was left to train
            _say(f"at step {step:,} of {steps:,}; gpt.resume continues it, to `steps=…`")
    return load(start.run.path)


def _events(preparing: AbstractContextManager[Start]) -> Iterator[Event]:
    from gpt.preparing import recorded

    with preparing as start:
        _note(start)
        yield from recorded(start.trainer())


def _note(start: Start) -> None:
    """Logs notes on the text and warnings about the plan, which Python writes to stderr."""
    for note in (*start.plan.corpus.notes, *start.plan.warnings):
        _say(note)


def followed(trainer: Trainer, bar: tqdm[Any]) -> Iterator[Event]:
    """Trains and yields the events; the bar, of total 1, shows steps, losses and speed. Its ETA is
    that of the time budget, if there is one.
    """
    from gpt.preparing import recorded
    from gpt.training.events import Evaluated, EvaluatedWhole, Evaluating, Stepped
    from gpt.training.fit import step_characters

    val = best = ""
    layout = "" if bar.disable else bar.bar_format
    for event in recorded(trainer):
        steps, budget = trainer.config.steps, trainer.manifest.budget
        if layout and budget is not None:
            left = bar.format_interval(max(0.0, budget.seconds - trainer.manifest.elapsed))
            bar.bar_format = layout.replace("{remaining}", left)
        if isinstance(event, Stepped) and not bar.disable:
            rate = bar.format_dict["rate"]  # share of the run in a second
            characters = steps * step_characters(trainer.manifest)
            speed = f" {rate * characters / 1000:.1f}k char/s" if rate else ""
            shown = f"{event.step}/{steps} loss {event.loss:.3f}{val}{best}{speed} "
            bar.set_description_str(shown, refresh=False)
            bar.update(event.step / steps - bar.n)
        elif isinstance(event, Evaluated):
            share = event.characters / event.of
            val = f" val{f'({share:.0%})' if share < 1 else ''} {event.val_loss:.3f}"
            best = best if event.since_best else f" best {event.val_loss:.3f}"
        elif isinstance(event, Evaluating):
            shown = f"{steps}/{steps} evaluating the whole split: {event.share:.0%} "
            bar.set_description_str(shown)
        elif isinstance(event, EvaluatedWhole):
            bar.set_description_str(f"{steps}/{steps} val {event.val_loss:.3f} ")
        yield event


@contextmanager
def _bar(progress: bool, **options: Any) -> Iterator[tqdm[Any]]:
    """A bar in a terminal or notebook, where it is a widget if ipywidgets is there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "IProgress not found"
        from tqdm.auto import tqdm
    shown = progress and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    with tqdm(disable=not shown, total=1.0, bar_format=LAYOUT, **options) as bar:
        yield bar


def _working(progress: bool) -> Any:
    """Shows the progress of reading the corpus, if it takes more than half a second."""

    @contextmanager
    def working(what: str) -> Iterator[Any]:
        with _bar(progress, desc=f"{what} ", delay=0.5, leave=False) as bar:
            yield lambda share: bar.update(share - bar.n)

    return working
