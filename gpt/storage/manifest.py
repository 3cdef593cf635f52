"""A checkpoint's manifest has everything about the checkpoint except tensors. Its file is JSON with
a digest of its own bytes (gpt/storage/model_file.py).
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
    """Identifies the text that a run was trained on by the text's content, not by its path.

    digest: the BLAKE3 hash of the text in UTF-8. sources: the names of its files. boundary: the
    number of characters in the training split; None: --val-fraction sets it. order: a hash of the
    order of the text's pieces, if validation pieces were moved to the end; otherwise "".
    """

    digest: str
    characters: int
    sources: tuple[str, ...]
    boundary: int | None = None
    order: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the text's files, without folders, for people."""
        return [os.path.basename(text_name(source)) for source in self.sources]


@dataclass(frozen=True)
class Baseline:
    """The losses of n-gram counting on a validation split (gpt/counting/baseline.py).

    losses: nats per character, for the orders 1, 2, and so on. counted: the number of characters
    that were counted, at the end of the training split. scored: the number of characters of the
    validation split that counting predicted.
    """

    losses: tuple[float, ...]
    counted: int
    scored: int

    @property
    def nats(self) -> float:
        """The lowest loss. It is a little too low, because its order is chosen on the same text."""
        return min(self.losses)

    @property
    def order(self) -> int:
        """The order with the lowest loss."""
        return 1 + self.losses.index(self.nats)


@dataclass(frozen=True)
class Doubts:
    """Reasons why a loss on the validation split may mislead (gpt/corpus/doubts.py); 0: no reason.

    copied: the share of the validation text that also stands in the training text. unlike: by how
    many nats the loss of counting is higher than on any other tenth of the text.
    """

    copied: float = 0.0
    unlike: float = 0.0

    @property
    def sentences(self) -> list[str]:
        """A sentence for every reason: what is wrong, and what the user can do."""
        texts = []
        if self.copied:
            texts.append(
                f"{self.copied:.0%} of the validation text stands in the training text, too, so "
                "its loss says little about new texts; remove passages that the text has twice"
            )
        if self.unlike:
            texts.append(
                "the end of the text, which validates, is unlike the rest: its loss with counting "
                f"is {self.unlike:.2f} nats above that of any other tenth (a licence, another "
                "author or language?), so gptx takes the last step as the best; remove this end, "
                "or validate on pieces of the whole text: `split='every:20'`"
            )
        return texts


@dataclass(frozen=True)
class TrainedText:
    """A text that a run was trained on. digest: that of CorpusId; "" if the text is unknown."""

    run: str
    digest: str = ""
    val_fraction: float = 0.0


@dataclass(frozen=True)
class Parent:
    """The model whose weights a run starts with.

    run: the name of the parent's run, or of its model file if the file is in no run. digest: that
    of the model file. added: the characters of the new run's text that the parent's vocabulary
    lacked. texts: the texts that the parent and its own parents were trained on, oldest first.
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

    seconds: the budget, with evaluations and saves. start_elapsed: the run's `elapsed` at that
    step. peak: the highest learning rate, as a share of the option `learning_rate`. progress: the
    share of the learning-rate schedule that is done; it never falls, and training ends at 1.
    """

    seconds: float
    start_step: int = 0
    start_elapsed: float = 0.0
    peak: float = 1.0
    progress: float = 0.0

    @property
    def end_elapsed(self) -> float:
        """The run's `elapsed` at which training ends."""
        return self.start_elapsed + self.seconds

    def after_step(self, now: Manifest, reserve: float) -> Clock:
        """The clock after a step. reserve: seconds for the last evaluation and save.

        The schedule ends earlier if the run has done train.steps, the most that the text allows.
        """
        by_time = (now.elapsed - self.start_elapsed) / max(self.seconds - reserve, 1e-9)
        by_text = (now.step - self.start_step) / (now.train.steps - self.start_step)
        return replace(self, progress=min(1.0, max(self.progress, by_time, by_text)))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint except tensors. Losses are nats per character.

    best_step: the step with the lowest val_loss or, if the validation split is unlike the rest of
    the text (`doubts`), the last evaluated step, as such a split prefers a model that has learned
    little. val_loss and best_loss are measured on the same number of evaluated_characters.
    final_loss: the loss of best_step on final_characters characters, measured at the end of a run
    whose evaluations read fewer. gpt_loss: in a run with counting, the shown_loss of the GPT alone.
    seconds: time spent on steps. elapsed: time since training began, without interruptions. clock:
    only in a run with a time budget; train.steps is then the most that the text allows. imported:
    the program that trained the model; `train` then has only the number of steps, and corpus.digest
    is "" if the training text is unknown.
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
    val_characters: int = 0  # characters of the validation split to predict; 0: unknown
    final_loss: float | None = None
    final_characters: int = 0
    gpt_loss: float | None = None
    baseline: Baseline | None = None  # None: the model was imported
    imported: str = ""  # "": gptx trained the model
    parent: Parent | None = None  # None: the run started from random weights
    doubts: Doubts = Doubts()

    def trained_texts(self, run: str) -> tuple[TrainedText, ...]:
        """Every text that these weights were trained on, oldest first. run: this run's name."""
        own = TrainedText(run, self.corpus.digest, self.train.val_fraction)
        return (*(self.parent.texts if self.parent else ()), own)

    def settings(self) -> dict[str, Any]:
        """The options that train the same run again: name -> value."""
        values = {**vars(self.model), **vars(self.train)}
        names = [*options_of(ModelConfig), *options_of(TrainConfig)]
        settings = {"preset": self.preset, **{name: values[name] for name in names}}
        if self.clock is not None:  # time ends such a run, not a number of steps
            del settings["steps"]
            settings["minutes"] = self.clock.end_elapsed / 60
        return settings

    @property
    def step_characters(self) -> int:
        """The number of characters that the model predicts in a training step."""
        return self.train.batch_size * self.model.block_size

    @property
    def progress(self) -> float:
        """The share of the training that is done, of its steps or, with a clock, of its time."""
        return min(1.0, self.step / self.train.steps) if self.clock is None else self.clock.progress

    @property
    def evaluated_characters(self) -> tuple[int, int]:
        """The validation characters that an evaluation predicts, and all validation characters."""
        block_size, most = self.model.block_size, self.train.eval_chars
        return characters_read(self.val_characters, block_size, most), self.val_characters

    @property
    def shown_loss(self) -> tuple[float | None, int, int]:
        """final_loss, otherwise best_loss: (nats, characters predicted, validation characters)."""
        if self.final_loss is None:
            return self.best_loss, *self.evaluated_characters
        return self.final_loss, self.final_characters, self.val_characters

    def with_losses(self, val_loss: float, gpt_loss: float | None = None) -> Manifest:
        """The manifest with the losses of a new evaluation, and with the best step so far."""
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
    """The number of characters, of `total`, that an evaluation predicts.

    most: the option eval_chars; 0: all. The number is rounded down to whole windows of `block`
    characters, unless it is less than one window.
    """
    if not 0 < most < total:
        return total
    return most // block * block or most
