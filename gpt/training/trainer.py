"""The training loop: a generator of events. It prints nothing, and waits only for other ranks.

Exact by statelessness: batches are a pure function of (seed, step), dropout is reseeded at every
step, the learning rate is a function of step and options. So a checkpoint needs no generator
states, and neither evaluations nor saves can change the weights. A run with a time budget changes
its number of steps while it trains, by the first rank's clock; the manifest has every change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from gpt.config import TrainConfig
from gpt.config.schedule import is_due
from gpt.corpus.corpus import Corpus
from gpt.errors import ConfigError, NumericsError
from gpt.model import GPT, initialise
from gpt.storage.checkpoint import MODEL, STATE, Checkpoint
from gpt.storage.manifest import Baseline, Manifest
from gpt.storage.run import Run
from gpt.training.average import Average
from gpt.training.checkpoint import (
    Prove,
    gathered,
    load_gpt,
    model_bytes,
    restore_state,
    state_bytes,
)
from gpt.training.device_batches import kept_near
from gpt.training.distributed import ONE, Ranks
from gpt.training.evaluation import evaluate, evaluating
from gpt.training.optim import Optimizer, learning_rate
from gpt.training.step import memory_errors, train_step
from gpt.version import __version__

EXCERPT_LENGTH = 1000  # characters of the validation split that travel with the model


@dataclass(frozen=True)
class Stepped:
    """One optimizer step is done. loss: of its batch, nats per character."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """Losses in nats per character; train_loss is the mean since the last evaluation."""

    step: int
    train_loss: float
    val_loss: float
    best_step: int
    since_best: int  # evaluations without a new best
    characters: int  # of the validation split that were read
    of: int


@dataclass(frozen=True)
class Evaluating:
    """Progress of the last evaluation, which may take long; share: the part that is done."""

    share: float


@dataclass(frozen=True)
class EvaluatedWhole:
    """At the end: the loss of the best step's weights on the whole validation split."""

    step: int
    val_loss: float
    characters: int
    of: int
    seconds: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint is safe on disk. Of several ranks, the first says so."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Stopped:
    """Training is over. reason: "finished", "patience", or what `stop` was given."""

    step: int
    reason: str


Event = Stepped | Evaluated | Evaluating | EvaluatedWhole | Saved | Stopped


def environment(device: str, ranks: int = 1) -> dict[str, str | int]:
    """What bit-exact repetition depends on besides the options."""
    return {
        "gptx": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "ranks": ranks,
    }


def check_ranks(config: TrainConfig, ranks: Ranks) -> None:
    """Raises ConfigError for what several ranks cannot do."""
    if config.batch_size < ranks.size:
        raise ConfigError(
            "batch_size",
            f"{config.batch_size} sequences are too few for {ranks.size} ranks; every rank needs "
            "one",
        )


class Trainer:
    """Trains one model on one corpus into one run, from a manifest that says where it stands.

    Of several ranks each has a trainer, and all must do the same; only the first touches the run.
    prove: checks before each save that the model will open. Raises ConfigError.
    """

    def __init__(
        self,
        run: Run,
        corpus: Corpus,
        manifest: Manifest,
        device: str,
        ranks: Ranks = ONE,
        prove: Prove | None = None,
    ) -> None:
        self.run, self.corpus, self.device, self.ranks = run, corpus, device, ranks
        self.prove = prove
        check_ranks(manifest.train, ranks)
        self.train_ids, self.val_ids = corpus.split(
            manifest.train.val_fraction, manifest.model.block_size
        )
        self.manifest = manifest.trained_with(manifest.train, len(self.val_ids) - 1)
        self.fed = kept_near(self.train_ids, device)
        self.model = GPT(manifest.model)
        initialise(self.model, self.config.seed)
        self._prepare()
        self.clock = time.perf_counter  # seconds
        self._saved_step: int | None = None
        self._unevaluated = False  # whether a stop came between the saved step and its evaluation
        self._stop_reason: str | None = None
        self._agreed: str | None = None

    def _prepare(self) -> None:
        """What follows the model: its device, its optimizer, and its average if there is one."""
        self.model.to(self.device)
        self.average = None
        if self.config.average:  # a copy of weights that are not spread yet
            self.average = Average(self.model, self.config.average, self.ranks.spread)
        self.ranks.prepare(self.model, self.config)
        self.optimizer = Optimizer(self.model, self.config)

    @property
    def config(self) -> TrainConfig:
        """The options; with a time budget, the number of steps changes."""
        return self.manifest.train

    @property
    def kept(self) -> GPT:
        """The model that is evaluated and saved."""
        return self.average.model if self.average else self.model

    @classmethod
    def resume(
        cls,
        run: Run,
        corpus: Corpus,
        checkpoint: Checkpoint,
        config: TrainConfig,
        device: str,
        ranks: Ranks = ONE,
        prove: Prove | None = None,
        baseline: Baseline | None = None,
    ) -> Trainer:
        """Goes on where a checkpoint stopped. Raises CheckpointError.

        On another text than the checkpoint's, the evaluations form a new series after the
        checkpoint, and earlier checkpoints and log lines do not change. baseline: of this corpus,
        for a run that has none.
        """
        manifest = checkpoint.manifest.trained_on(corpus.identity)
        manifest = manifest.trained_with(config, manifest.val_characters)
        manifest = replace(manifest, baseline=manifest.baseline or baseline)
        trainer = cls(run, corpus, manifest, device, ranks, prove)
        ranks.forget(trainer.model)
        trainer.model = load_gpt(checkpoint.model(), device)
        trainer._prepare()
        restore_state(checkpoint, trainer.model, trainer.optimizer, averaged=config.average > 0)
        trainer._saved_step = checkpoint.manifest.step
        step = checkpoint.manifest.step
        same_text = corpus.identity.digest == checkpoint.manifest.corpus.digest
        trainer._unevaluated = same_text and trainer._is_due(step) and manifest.val_loss is None
        if ranks.first:
            run.forget_after(step - trainer._unevaluated)
        return trainer

    def stop(self, reason: str) -> None:
        """Asks for an end after the current step, with everything saved; on all ranks."""
        self._stop_reason = reason
        self.ranks.raise_hand()

    def events(self) -> Iterator[Event]:
        """Trains to the end. Raises NumericsError, StorageError, OutOfMemory, RankError.

        Whatever it raises, what was saved is still what it was.
        """
        try:
            with memory_errors(self.manifest.model, self.config), self.ranks.errors():
                yield from self._events()
        finally:
            self.ranks.forget(self.model)

    def _events(self) -> Iterator[Event]:
        self.model.train()
        self._mark = self.clock()
        step = self.manifest.step
        if self._saved_step is None:
            yield from self._save()  # fails before the first step if it must fail
        elif self._unevaluated:
            yield self._evaluate()
            yield from self._save()
        if step == 0:
            self._replan(step)  # now the time of a save is known
        while step < self.config.steps and not self._stopping() and not self._out_of_patience():
            started = self.clock()
            loss, taken = train_step(
                self.model, self.optimizer, self.fed, self.config, step, self.ranks
            )
            step += 1
            if not taken:
                raise self._not_finite(step, "the loss or its gradient")
            if self.average:
                self.average.update(self.model, step)
            self._advance(step, loss, self.clock() - started)
            yield Stepped(step, loss)
            if self._is_due(step) and not self._stopping():
                yield self._evaluate()
                yield from self._save()
        if self._saved_step != step:
            yield from self._save()
        if step == self.config.steps or self._out_of_patience():
            yield from self._evaluate_whole()
        finished = "patience" if self._out_of_patience() else "finished"
        yield Stopped(step, self._stopping() or finished)

    def _stopping(self) -> str | None:
        """Why to stop now, or None; the same on all ranks."""
        if self._agreed is None:
            self._agreed = self.ranks.agreed(self._stop_reason)
        return self._agreed

    def _is_due(self, step: int) -> bool:
        return is_due(self.config, step)

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.manifest.since_best

    def _advance(self, step: int, loss: float, seconds: float) -> None:
        total, count = self.manifest.running
        self.manifest = replace(
            self.manifest,
            step=step,
            val_loss=None,
            seconds=self.manifest.seconds + seconds,
            running=(total + loss, count + 1),
        )
        took, budget = self._lap(), self.manifest.budget
        if budget is not None:
            budget = budget.stepped(took)
            self.manifest = replace(
                self.manifest, budget=budget.updated() if budget.is_due else budget
            )
            if budget.is_due and step < self.config.steps:
                self._replan(step)

    def _lap(self, *, counted: bool = True) -> float:
        """Seconds since the last lap; with a budget, by the first rank's clock on all ranks.

        counted: whether they are part of the run's time.
        """
        now = self.clock()
        lap, self._mark = now - self._mark, now
        if self.manifest.budget is not None:
            (lap,) = self.ranks.total(lap if self.ranks.first else 0.0)
        if counted:
            self.manifest = replace(self.manifest, elapsed=self.manifest.elapsed + lap)
        return lap

    def _replan(self, step: int) -> None:
        """With a budget, plans as many steps as the time that is left allows."""
        if self.manifest.budget is not None:
            config = self.manifest.budget.replan(self.config, step, self.manifest.elapsed)
            self.manifest = replace(self.manifest, train=config)
            self.optimizer.config = config

    def _evaluate(self) -> Evaluated:
        most = self.config.eval_part or self.config.eval_chars
        val_loss = evaluate(self.kept, self.val_ids, self.device, self.ranks, most)
        took = self._lap()
        if self.manifest.budget is not None:
            budget = replace(self.manifest.budget, evaluating=took)
            self.manifest = replace(self.manifest, budget=budget)
        before = self.manifest
        if not math.isfinite(val_loss):
            raise self._not_finite(before.step, "the validation loss")
        best_step, best_loss, since_best = before.best_step, before.best_loss, before.since_best + 1
        whole_loss, (characters, of) = before.whole_loss, before.part
        if best_step is None or best_loss is None or val_loss < best_loss:
            best_step, best_loss, whole_loss, since_best = before.step, val_loss, None, 0
        self.manifest = replace(
            before,
            val_loss=val_loss,
            best_step=best_step,
            best_loss=best_loss,
            whole_loss=whole_loss,
            since_best=since_best,
            running=(0.0, 0),
        )
        total, count = before.running
        record = {
            "step": before.step,
            "since": before.since,
            "train_loss": total / max(1, count),
            "val_loss": val_loss,
            "val_characters": characters,
            "learning_rate": learning_rate(before.step, self.config),
            "seconds": round(before.seconds, 3),
            "elapsed": round(before.elapsed, 3),
            "evaluation_seconds": round(took, 3),
        }
        if self.ranks.first:
            self.run.append("metrics", record)
        return Evaluated(
            before.step, record["train_loss"], val_loss, best_step, since_best, characters, of
        )

    def _evaluate_whole(self) -> Iterator[Event]:
        """Evaluates the best step's weights on the whole split, if evaluations read a part."""
        best_step, budget = self.manifest.best_step, self.manifest.budget
        known = not self.config.eval_part or self.manifest.whole_loss is not None
        if known or best_step is None or self._stopping():
            return
        model = self.kept if best_step == self.manifest.step else self._best_model(best_step)
        work = evaluating(model, self.val_ids, self.device, self.ranks, self.config.eval_chars)
        loss = math.nan
        for share, so_far in work:
            loss = so_far
            if share < 1:
                yield Evaluating(share)
                self.ranks.total()  # exchanges stop requests
                if self._stopping():
                    return
        if not math.isfinite(loss):
            raise self._not_finite(best_step, "the validation loss")
        seconds = self._lap(counted=budget is None or budget.last > 0)
        self.manifest = replace(self.manifest, whole_loss=loss)
        _, characters, of = self.manifest.shown_loss
        if self.ranks.first:
            record = {
                "step": self.manifest.step,
                "best_step": best_step,
                "whole_loss": loss,
                "val_characters": characters,
                "evaluation_seconds": round(seconds, 3),
                "elapsed": round(self.manifest.elapsed, 3),
            }
            self.run.append("metrics", record)
            self.run.amend(self.manifest)
        yield EvaluatedWhole(best_step, loss, characters, of, seconds)

    def _best_model(self, step: int) -> GPT:
        """The saved weights of an earlier step, on all ranks. Raises CheckpointError."""
        model = GPT(self.manifest.model)
        if self.ranks.first:
            model = load_gpt(self.run.at(str(step)).model(), "cpu")
        for parameter in model.parameters():
            parameter.data.copy_(self.ranks.from_first(parameter.data))
        model.to(self.device)
        self.ranks.spread(model)
        return model

    def _save(self) -> Iterator[Saved]:
        self._lap()
        manifest, vocabulary = self.manifest, self.corpus.vocabulary
        if self.ranks.first or self.ranks.shard:
            on_cpu = self.device == "cpu" and not self.ranks.shard
            model = self.kept if on_cpu else gathered(self.kept)  # the probe is the CPU's
            state = state_bytes(self.model, self.optimizer, averaged=self.average is not None)
        if self.ranks.first:
            excerpt = vocabulary.decode(self.val_ids[:EXCERPT_LENGTH])
            stored = model_bytes(model, vocabulary, excerpt, manifest.step, self.prove)
            checkpoint = self.run.commit(manifest, {MODEL: stored, STATE: state})
        self._saved_step = manifest.step
        if self.ranks.first:
            yield Saved(checkpoint)
        took = self._lap()
        if self.manifest.budget is not None:
            budget = replace(self.manifest.budget, saving=took)
            self.manifest = replace(self.manifest, budget=budget)

    def _not_finite(self, step: int, what: str) -> NumericsError:
        good = self._saved_step or 0
        remedies = ["a lower --learning-rate"]
        remedies += ["--embedding-lr"] * (self.config.embedding_lr > 0)
        remedies += ["--ngram-lr"] * (self.manifest.model.ngram > 1)
        remedies += ["--grad-clip 1"] * (not 0 < self.config.grad_clip <= 1)
        return NumericsError(
            f"{what} is not a finite number at step {step}; last good: step {good}. "
            f"Try {' or '.join(remedies)}"
        )
