"""Keywords of `gpt.train` and `gpt.resume`, and the order that they make. Trains nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from gpt.config import ModelConfig, TrainConfig, presets
from gpt.config.fields import check_fields, only_fields, require
from gpt.config.keywords import ResumeOptions, TrainOptions
from gpt.config.train import BY_SHARE, Tracker
from gpt.devices import Device, share_cores
from gpt.errors import ConfigError, TextError
from gpt.storage.checkpoint import MANIFEST
from gpt.trained import TrainedGPT

if TYPE_CHECKING:
    from gpt.preparing import Order

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
    from gpt.training.launch import Launch

    share_cores()
    new, place = NewRun(**only_fields(NewRun, options)), Place(**only_fields(Place, options))
    given = only_fields(ModelConfig, options) | only_fields(TrainConfig, options)
    require(corpus is None or new.text is None, "text", "give either `corpus` or `text`")
    if new.text == "":
        raise TextError("text: it is empty")
    by_share = options.get("split", "last") in BY_SHARE
    shares = by_share or "val_fraction" not in given
    require(shares, "val_fraction", "only with `split='last'` or `split='source'`")
    if Launch.here().size > 1:
        raise ConfigError("gpt.train trains in one process; use torchrun with gptx train")
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
