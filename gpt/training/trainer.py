"""The training loop: a generator of events. It prints nothing, and waits for nobody but its ranks.

Exact by statelessness: batches are a pure function of (seed, step), dropout is reseeded at every
step, the learning rate is a function of step and horizon. So a checkpoint needs no generator
states, and neither evaluations nor saves can change the weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from gpt.config import TrainConfig
from gpt.errors import ConfigError, NumericsError
from gpt.manifest import Baseline, Manifest
from gpt.model import GPT, initialise
from gpt.run import MODEL, STATE, Checkpoint, Run
from gpt.training.average import Average
from gpt.training.checkpoint import (
    Prove,
    gathered,
    load_gpt,
    model_bytes,
    restore_state,
    state_bytes,
)
from gpt.training.corpus import Corpus
from gpt.training.evaluation import evaluate
from gpt.training.feeding import kept_near
from gpt.training.optim import Optimizer, learning_rate
from gpt.training.ranks import ONE, Ranks
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


@dataclass(frozen=True)
class Saved:
    """A checkpoint is safe on disk. Of several ranks, the first says so."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Stopped:
    """Training is over. reason: "finished", "patience", or what `stop` was given."""

    step: int
    reason: str


Event = Stepped | Evaluated | Saved | Stopped


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
            f"--batch-size: {config.batch_size} sequences are too few for {ranks.size} ranks; "
            "every rank needs one"
        )


class Trainer:
    """Trains one model on one corpus into one run, from a manifest that says where it stands.

    Of several ranks each has a trainer, and all must do the same; only the first touches the run.
    prove: tries before each save whether the model will open. Raises ConfigError.
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
        self.prove = prove
        self.run, self.corpus, self.manifest, self.device = run, corpus, manifest, device
        self.config, self.ranks = manifest.train, ranks
        check_ranks(self.config, ranks)
        self.train_ids, self.val_ids = corpus.split(
            self.config.val_fraction, manifest.model.block_size
        )
        self.fed = kept_near(self.train_ids, device)
        self.model = GPT(manifest.model)
        initialise(self.model, self.config.seed)
        self._prepare()
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

        With another text than the checkpoint's, its evaluations form a series of their own, which
        begins after the checkpoint: what the run has saved and logged so far stays as it is.
        baseline: of this corpus, for a run that has none.
        """
        manifest = replace(checkpoint.manifest.trained_on(corpus.identity), train=config)
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
        step = self.manifest.step
        if self._saved_step is None:
            yield from self._save()  # fails before the first step if it must fail
        elif self._unevaluated:
            yield self._evaluate()
            yield from self._save()
        while step < self.config.steps and not self._stopping() and not self._out_of_patience():
            started = time.perf_counter()
            loss, taken = train_step(
                self.model, self.optimizer, self.fed, self.config, step, self.ranks
            )
            step += 1
            if not taken:
                raise self._not_finite(step, "the loss or its gradient")
            if self.average:
                self.average.update(self.model, step)
            self._advance(step, loss, time.perf_counter() - started)
            yield Stepped(step, loss)
            if self._is_due(step) and not self._stopping():
                yield self._evaluate()
                yield from self._save()
        if self._saved_step != step:
            yield from self._save()
        finished = "patience" if self._out_of_patience() else "finished"
        yield Stopped(step, self._stopping() or finished)

    def _stopping(self) -> str | None:
        """Why to stop now, or None; the same on all ranks."""
        if self._agreed is None:
            self._agreed = self.ranks.agreed(self._stop_reason)
        return self._agreed

    def _is_due(self, step: int) -> bool:
        return step > 0 and (step % self.config.evaluate_every == 0 or step == self.config.steps)

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

    def _evaluate(self) -> Evaluated:
        limit = self.config.eval_chars + 1 if self.config.eval_chars else None
        val_loss = evaluate(self.kept, self.val_ids[:limit], self.device, self.ranks)
        before = self.manifest
        if not math.isfinite(val_loss):
            raise self._not_finite(before.step, "the validation loss")
        best_step, best_loss, since_best = before.best_step, before.best_loss, before.since_best + 1
        if best_step is None or best_loss is None or val_loss < best_loss:
            best_step, best_loss, since_best = before.step, val_loss, 0
        self.manifest = replace(
            before,
            val_loss=val_loss,
            best_step=best_step,
            best_loss=best_loss,
            since_best=since_best,
            running=(0.0, 0),
        )
        total, count = before.running
        record = {
            "step": before.step,
            "since": before.since,
            "train_loss": total / max(1, count),
            "val_loss": val_loss,
            "learning_rate": learning_rate(before.step, self.config),
            "seconds": round(before.seconds, 3),
        }
        if self.ranks.first:
            self.run.append("metrics", record)
        return Evaluated(before.step, record["train_loss"], val_loss, best_step, since_best)

    def _save(self) -> Iterator[Saved]:
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
