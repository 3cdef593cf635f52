"""The events of a training: the trainer yields them; commands and `gpt.train` show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpt.storage.run import Checkpoint


@dataclass(frozen=True)
class Stepped:
    """One optimizer step is done. loss: the mean of its batch, in nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """Losses in nats per character; train_loss is the mean since the last evaluation.

    since_best: evaluations since the best one. characters: how many of the split's `of` were read.
    gpt_loss: in a run with counting, the loss of the GPT alone.
    """

    step: int
    train_loss: float
    val_loss: float
    best_step: int | None
    since_best: int
    characters: int
    of: int
    gpt_loss: float | None = None


@dataclass(frozen=True)
class Evaluating:
    """Progress of the evaluation at the end, which may take long. share: done so far, 0 to 1."""

    share: float


@dataclass(frozen=True)
class EvaluatedAtEnd:
    """The loss of the best step's weights on the whole split, or on `characters` of its `of`."""

    step: int
    val_loss: float
    characters: int
    of: int
    seconds: float
    gpt_loss: float | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written to the disk. Of several ranks, only the first yields this."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Sampled:
    """A text that the model of the newest checkpoint has written."""

    step: int
    text: str


@dataclass(frozen=True)
class Stopped:
    """Training has ended. reason: "finished", "patience", or the reason given to `stop`. spent:
    the seconds that its parts took (gpt/training/timing.py).
    """

    step: int
    reason: str
    spent: Mapping[str, float] = field(default_factory=dict, compare=False)  # differs each time


Event = Stepped | Evaluated | Evaluating | EvaluatedAtEnd | Saved | Sampled | Stopped
