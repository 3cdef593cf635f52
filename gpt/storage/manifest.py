"""A checkpoint's manifest: everything about it that is not a tensor, stored as sealed JSON
(gpt/storage/model_file.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of
from gpt.vocabulary import Vocabulary
from gpt.words import text_name


@dataclass(frozen=True)
class CorpusId:
    """The text that a run was trained on, identified by its content, not by its path.

    digest: BLAKE3 of its UTF-8. boundary: the number of training characters; None: --val-fraction
    sets it. order: a hash of the order of its pieces, if validation pieces were moved to the end.
    """

    digest: str
    characters: int
    sources: tuple[str, ...]
    boundary: int | None = None
    order: str = ""

    @property
    def names(self) -> list[str]:
        """The names of its files without their folders, as people read them."""
        return [os.path.basename(text_name(source)) for source in self.sources]


@dataclass(frozen=True)
class Baseline:
    """The losses of n-gram counting on a validation split (gpt/counting/baseline.py).

    losses: nats per character for the orders 1, 2, … counted: how many characters of the training
    split, its last ones, were counted; scored: how many characters of the validation split were
    predicted.
    """

    losses: tuple[float, ...]
    counted: int
    scored: int

    @property
    def nats(self) -> float:
        """The lowest loss; a little too low, as the scored split also chooses the order."""
        return min(self.losses)

    @property
    def order(self) -> int:
        """The order with the lowest loss."""
        return 1 + self.losses.index(self.nats)


@dataclass(frozen=True)
class Doubts:
    """Reasons to doubt losses on a validation split (gpt/corpus/doubts.py); 0: none.

    copied: the share of its text that stands in the training text, too. unlike: how many nats the
    loss of counting on it lies above that on any other tenth of the text.
    """

    copied: float = 0.0
    unlike: float = 0.0

    @property
    def texts(self) -> list[str]:
        """Each reason, and what helps."""
        texts = []
        if self.copied:
            texts.append(
                f"{self.copied:.0%} of the validation text stands in the training text, too, so "
                "its loss says little about new texts; leave out what the text has twice"
            )
        if self.unlike:
            texts.append(
                "the end of the text, which validates, is unlike the rest (a licence, another "
                f"author or language? {self.unlike:.2f} nats above any other tenth), so the last "
                "step counts as the best; remove it, or validate on pieces of the whole text: "
                "`split='every:20'`"
            )
        return texts


@dataclass(frozen=True)
class TrainedText:
    """A text that a run was trained on. digest: see CorpusId, "" if the text is unknown."""

    run: str
    digest: str = ""
    val_fraction: float = 0.0


@dataclass(frozen=True)
class Parent:
    """The model whose weights a run starts with.

    run: its name or, for a model file without its run, the file's name. digest: the model file's.
    added: the characters of the run's text that the parent did not know. texts: the texts that the
    parent, its parent and so on were trained on, oldest first.
    """

    run: str
    step: int
    digest: str
    added: str = ""
    texts: tuple[TrainedText, ...] = ()

    @property
    def title(self) -> str:
        """The name and the step."""
        return f"{self.run} step {self.step:,}"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The time budget of a training, for the steps after `start_step`.

    seconds: from start_elapsed, the run's time at that step, to the last save, evaluations and
    saves included. peak: the highest learning rate, as a share of `learning_rate`. progress: the
    share of the schedule that is done; it never falls, and training ends at 1.
    """

    seconds: float
    start_step: int = 0
    start_elapsed: float = 0.0
    peak: float = 1.0
    progress: float = 0.0

    @property
    def ends(self) -> float:
        """The run's time at which training ends."""
        return self.start_elapsed + self.seconds

    def moved(self, now: Manifest, reserve: float) -> Clock:
        """The clock after a step. reserve: seconds for the last evaluation and save.

        A text that has been read as often as gptx plans (`steps`) ends the schedule earlier.
        """
        by_time = (now.elapsed - self.start_elapsed) / max(self.seconds - reserve, 1e-9)
        by_text = (now.step - self.start_step) / (now.train.steps - self.start_step)
        return replace(self, progress=min(1.0, max(self.progress, by_time, by_text)))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint that is not a tensor. Losses in nats per character.

    val_loss and best_loss are measured on the same part of the validation split, see `part`; the
    step with the lowest one is the best; the last one, if the split is unlike the rest of the text
    (`doubts`), as its loss would prefer a step that has learned little. Results show the best
    step's loss as shown_loss.
    final_loss: the loss of best_step's weights on final_characters of the split, measured at the
    end of a run whose evaluations read fewer. gpt_loss: in a run with counting, the shown_loss of
    the GPT alone. seconds: time spent on steps. elapsed: time since training began, including
    evaluations and saves, without interruptions of the run. clock: only in a run
    with a time budget; train.steps is then the most that the text allows.
    imported: names the program that trained the model; `train` then has only the number of steps,
    and corpus.digest is "" if the training text is unknown.
    """

    step: int
    model: ModelConfig
    train: TrainConfig
    preset: str
    vocabulary: Vocabulary
    corpus: CorpusId
    seconds: float
    running: tuple[float, int]  # sum and count of losses since the last evaluation
    val_loss: float | None = None
    best_step: int | None = None
    best_loss: float | None = None
    since_best: int = 0
    environment: dict[str, str | int] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    elapsed: float = 0.0
    clock: Clock | None = None
    val_characters: int = 0  # how many validation characters to predict; 0: unknown
    final_loss: float | None = None
    final_characters: int = 0
    gpt_loss: float | None = None
    baseline: Baseline | None = None  # None: the model was imported
    imported: str = ""  # where an imported model comes from; "" if gptx trained it
    parent: Parent | None = None  # None: the run started from random weights
    doubts: Doubts = Doubts()

    def texts(self, run: str) -> tuple[TrainedText, ...]:
        """Every text that the weights of the run named `run` were trained on, oldest first."""
        own = TrainedText(run, self.corpus.digest, self.train.val_fraction)
        return (*(self.parent.texts if self.parent else ()), own)

    def settings(self) -> dict[str, Any]:
        """Every option that someone needs to train such a run again."""
        values = {**vars(self.model), **vars(self.train)}
        names = [*options_of(ModelConfig), *options_of(TrainConfig)]
        settings = {"preset": self.preset, **{name: values[name] for name in names}}
        if self.clock is not None:  # the steps are only the text's limit
            del settings["steps"]
            settings["minutes"] = self.clock.ends / 60
        return settings

    @property
    def step_characters(self) -> int:
        """The number of characters that a step learns to predict."""
        return self.train.batch_size * self.model.block_size

    @property
    def progress(self) -> float:
        """The share of the schedule that is done: of the steps or, with a clock, of the time."""
        return min(1.0, self.step / self.train.steps) if self.clock is None else self.clock.progress

    @property
    def part(self) -> tuple[int, int]:
        """How many characters val_loss and best_loss were measured on, and how many there are."""
        block_size, most = self.model.block_size, self.train.eval_chars
        return characters_read(self.val_characters, block_size, most), self.val_characters

    @property
    def shown_loss(self) -> tuple[float | None, int, int]:
        """best_step's loss on the largest measured part: (nats, its characters, all characters)."""
        if self.final_loss is None:
            return self.best_loss, *self.part
        return self.final_loss, self.final_characters, self.val_characters

    def evaluated(self, val_loss: float, gpt_loss: float | None = None) -> Manifest:
        """The manifest after an evaluation of this step, with its loss and the best step so far."""
        now = replace(self, val_loss=val_loss, since_best=self.since_best + 1, running=(0.0, 0))
        is_best = self.best_loss is None or val_loss < self.best_loss  # NaN is no best loss
        if not is_best and not self.doubts.unlike:
            return now
        return replace(
            now,
            best_step=self.step,
            best_loss=val_loss,
            since_best=0,
            final_loss=None,
            final_characters=0,
            gpt_loss=gpt_loss,
        )


def characters_read(total: int, block: int, most: int) -> int:
    """How many of the `total` characters an evaluation predicts, at most `most` (0: all).

    A part consists of whole windows of `block` characters, or of a part of one window.
    """
    if not 0 < most < total:
        return total
    return most // block * block or most
