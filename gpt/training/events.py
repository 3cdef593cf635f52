"""The events of a training: the trainer yields them; commands and `gpt.train` show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpt.storage.losses import no_better_text
from gpt.storage.run import Checkpoint
from gpt.words import bits, duration, measured_on


@dataclass(frozen=True)
class Stepped:
    """One optimizer step is done. loss: the mean of its batch, in nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """Losses in nats per character; train_loss is the mean since the last evaluation.

    gpt_loss: in a run with counting, the loss of the GPT alone.
    """

    step: int
    train_loss: float
    val_loss: float
    best_step: int | None
    since_best: int  # evaluations since the best one
    characters: int  # validation characters that were read
    of: int
    gpt_loss: float | None = None

    def __str__(self) -> str:
        """ "step 400 · train 1.95 · val 1.98 nats, 2.86 bits/char (on 20,000 of 111,539) · best so
        far".
        """
        if not self.since_best or self.best_step is None:
            verdict = "best so far"
        elif self.since_best == 1 and self.characters == self.of:
            verdict = f"best was step {self.best_step:,}"
        else:
            verdict = no_better_text(self.best_step, self.characters, self.of)
        losses = f"train {self.train_loss:.4f} · {_val(self.val_loss, self.gpt_loss)}"
        return f"step {self.step:,} · {losses}{measured_on(self.characters, self.of)} · {verdict}"


@dataclass(frozen=True)
class Evaluating:
    """Progress of the last evaluation, which may take long. share: done so far, 0 to 1."""

    share: float


@dataclass(frozen=True)
class Chosen:
    """The best step is chosen at the end, if evaluations read only `characters` of the split and an
    earlier step has the lowest loss. Says how many nats lower it is than the loss of the last step,
    `step`, and the paired standard error.

    sure: whether this shows that the earlier step is better; otherwise the last step counts as the
    best.
    """

    step: int
    earlier: int
    lower: float
    error: float
    sure: bool
    characters: int
    of: int

    def __str__(self) -> str:
        best = f"too little to tell, so the best step is {self.step:,}"
        return (
            f"step {self.earlier:,} · {self.lower:.4f} ± {self.error:.4f} nats lower than step "
            f"{self.step:,} (paired standard error, on {self.characters:,} of {self.of:,} "
            f"validation characters) · {'the best step' if self.sure else best}"
        )


@dataclass(frozen=True)
class EvaluatedWhole:
    """Evaluated at the end: the loss of the best step's weights on the whole validation split."""

    step: int
    val_loss: float
    characters: int
    of: int
    seconds: float
    gpt_loss: float | None = None

    def __str__(self) -> str:
        """ "step 400 · val 1.9813 nats, 2.858 bits/char on all 111,539 validation characters"."""
        part = f"{self.characters:,} of {self.of:,}"
        read = f"all {self.of:,}" if self.characters == self.of else part
        losses = f"{_val(self.val_loss, self.gpt_loss)} on {read} validation characters"
        return f"step {self.step:,} · {losses}, in {duration(self.seconds)}"


def _val(loss: float, gpt_loss: float | None) -> str:
    """Both losses as text. gpt_loss: in a run with counting, the loss of the GPT alone."""
    alone = "" if gpt_loss is None else f", the GPT alone {gpt_loss:.4f}"
    return f"val {loss:.4f} nats, {bits(loss):.3f} bits/char{alone}"


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
class Spent:
    """Where the time of a training went, in this process.

    seconds: of the start up to the first step, of counting (waiting for the counts and fitting the
    gate), of steps, evaluations and saves. share: the floating-point operations of the steps,
    divided by what all cores could have computed in that time in float32 products; 0: unknown.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.0

    def __str__(self) -> str:
        """ "steps 1 min 40 s (61 % of the cores' float32 rate) · evaluations 3 s · start 2 s"."""
        rate = f" ({self.share:.0%} of the cores' float32 rate)" if self.share else ""
        return " · ".join(
            f"{what} {duration(seconds) if seconds >= 10 else f'{seconds:.1f} s'}"
            + rate * (what == "steps")
            for what, seconds in sorted(self.seconds.items(), key=lambda it: -it[1])
            if seconds >= 0.05
        )


@dataclass(frozen=True)
class Stopped:
    """Training has ended. reason: "finished", "patience", or the reason given to `stop`."""

    step: int
    reason: str
    spent: Spent = field(default_factory=Spent, compare=False)  # measured, so it differs each time


Event = Stepped | Evaluated | Evaluating | Chosen | EvaluatedWhole | Saved | Sampled | Stopped
