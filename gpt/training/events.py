"""The events of a training: the trainer yields them, the commands and `gpt.train` show them."""

from __future__ import annotations

from dataclasses import dataclass

from gpt.storage.checkpoint import Checkpoint


@dataclass(frozen=True)
class Stepped:
    """One optimizer step is done. loss: of its batch, nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """Losses in nats per character; train_loss is the mean since the last evaluation.

    gpt_loss: of the GPT without counting, in a run with counting.
    """

    step: int
    train_loss: float
    val_loss: float
    best_step: int | None
    since_best: int  # evaluations since the best
    characters: int  # validation characters that were read
    of: int
    gpt_loss: float | None = None


@dataclass(frozen=True)
class Evaluating:
    """Progress of the last evaluation, which may take long. share: done so far, 0 to 1."""

    share: float


@dataclass(frozen=True)
class Chosen:
    """At the end, if evaluations read `characters` of the split and an earlier step has the lowest
    loss: how many nats lower than that of the last step, `step`, and the paired standard error.

    sure: whether this shows that the earlier step is better; else the last is taken as the best.
    """

    step: int
    earlier: int
    lower: float
    error: float
    sure: bool
    characters: int
    of: int


@dataclass(frozen=True)
class EvaluatedWhole:
    """At the end: the loss of the best step's weights on the whole validation split."""

    step: int
    val_loss: float
    characters: int
    of: int
    seconds: float
    gpt_loss: float | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on the disk. Of several ranks, only the first yields this."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Sampled:
    """A text that the model of the checkpoint just saved has written."""

    step: int
    text: str


@dataclass(frozen=True)
class Stopped:
    """Training has ended. reason: "finished", "patience", or the reason given to `stop`."""

    step: int
    reason: str


Event = Stepped | Evaluated | Evaluating | Chosen | EvaluatedWhole | Saved | Sampled | Stopped
