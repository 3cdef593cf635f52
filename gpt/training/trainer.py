"""The training loop: a generator of events. It prints nothing, and waits only for other ranks.

Batches are a pure function of (seed, step), dropout gets a new seed at every step, and the learning
rate is a function of step and options. So a checkpoint needs no generator states, and neither
evaluations nor saves change the weights. A run with a time budget changes its number of steps while
it trains, by the first rank's clock; the manifest records every change.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpt.config import TrainConfig
from gpt.config.schedule import is_due, learning_rate
from gpt.corpus.corpus import Corpus
from gpt.counting.baseline import Experts
from gpt.counting.tables import release_memory
from gpt.errors import NumericsError
from gpt.model import GPT, initialise, start_from
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import EXCERPT_LENGTH, StoredModel
from gpt.storage.run import MODEL, STATE, Checkpoint, Run
from gpt.training import ranks
from gpt.training.checkpoint import (
    Prove,
    load_gpt,
    model_bytes,
    on_cpu,
    restore_state,
    state_bytes,
)
from gpt.training.counting import Counting
from gpt.training.evaluation import Losses, evaluate, evaluate_with_progress, window_losses
from gpt.training.events import (
    Chosen,
    Evaluated,
    EvaluatedWhole,
    Evaluating,
    Event,
    Saved,
    Spent,
    Stepped,
    Stopped,
)
from gpt.training.net import Net
from gpt.training.optim import Average, Optimizer
from gpt.training.records import Records
from gpt.training.step import memory_errors, train_step

#: If evaluations read a part of the split, an earlier step counts as better than the last one only
#: if its loss is lower by this many paired standard errors.
BETTER_BY_ERRORS = 2.0


class Trainer:
    """Trains one model on one corpus into one run, from the manifest's step on.

    Each rank has a trainer and makes the same calls; only the first one writes to the run. prove:
    checks before each save that the model will open. checkpoint: where a resumed run continues.
    experts: those of counting, if they are counted already. start: the model whose weights a new
    run starts with. began: the time, by the clock, at which the process began to prepare the
    training. peak: operations per second of all cores; 0: unknown. Raises ConfigError,
    CheckpointError.
    """

    def __init__(
        self,
        run: Run,
        corpus: Corpus,
        manifest: Manifest,
        device: str,
        prove: Prove | None = None,
        checkpoint: Checkpoint | None = None,
        experts: Experts | None = None,
        start: StoredModel | None = None,
        began: float | None = None,
        peak: float = 0.0,
    ) -> None:
        self.run, self.corpus, self.device = run, corpus, device
        options, shape = manifest.train, manifest.model
        self.train, self.val = corpus.split(options.val_fraction, shape.block_size)
        self.manifest, self.prove, self.records = manifest, prove, Records(run, ranks.is_first())
        self.counting = Counting(self.train, shape, experts)
        self.model = GPT(shape) if checkpoint is None else load_gpt(checkpoint.model(), device)
        if start is not None:
            start_from(self.model, start.tensors)
        elif checkpoint is None:
            initialise(self.model, options.seed)
        self.model.to(device)
        averages = options.average > 0
        self.average = Average(self.model, options.average) if averages else None
        self.net = Net(self.model, self.config)
        self.optimizer = Optimizer(self.model, self.config)
        self.clock = time.perf_counter  # seconds
        self._mark = self.clock() if began is None else began
        self._spent: dict[str, float] = defaultdict(float)
        self._done, self._peak = 0.0, peak  # _done: operations of the steps so far
        self.saved_step: int | None = None
        self._unevaluated = False  # whether the saved step still needs its evaluation
        self._replanned = False  # whether the saved step now has another plan
        if checkpoint is not None:
            restore_state(checkpoint, self.model, self.optimizer, averages)
            stored = checkpoint.manifest
            self.saved_step = stored.step
            self._unevaluated = is_due(options, stored.step) and self.manifest.val_loss is None
            self._replanned = self.manifest.budget is not None and stored.train != options
            if ranks.is_first():
                run.abandon_after(stored.step)
                run.forget_after(stored.step, evaluated=not self._unevaluated)
        self.stop_reason: str | None = None
        self._agreed: str | None = None  # the reason to stop on which all ranks agree

    @property
    def config(self) -> TrainConfig:
        """The options; with a time budget, the number of steps changes."""
        return self.manifest.train

    @property
    def kept(self) -> GPT:
        """The model that is evaluated and saved."""
        return self.average.model if self.average else self.model

    def stop(self, reason: str) -> None:
        """Asks all ranks to save everything and to end after the current step."""
        self.stop_reason = reason

    def events(self) -> Iterator[Event]:
        """Trains to the end. Saved checkpoints stay intact, whatever error it raises.

        Raises NumericsError, StorageError, OutOfMemory, RankError.
        """
        try:
            with memory_errors(self.manifest.model, self.config), ranks.rank_errors():
                yield from self._events()
        finally:
            del self.net  # it refers to the process group

    def _events(self) -> Iterator[Event]:
        self.model.train()
        self._lap("start", counted=False)
        step = self.manifest.step
        if self._unevaluated:
            yield self._evaluate()
        if self._unevaluated or self.saved_step is None:
            yield from self._save()  # if a save fails, it fails before the first step
        elif self._replanned and ranks.is_first():
            # so that an interrupted run continues with this plan
            self.run.replace_manifest(self.manifest)
        if step == 0:
            self._replan(step)  # the time of a save is known now
        while step < self.config.steps and not self._stopping() and not self._out_of_patience():
            started = self.clock()
            parts = (self.model, self.optimizer, self.train, self.config, step)
            loss, norm = train_step(*parts, self.counting.held, self.net)
            step += 1
            self._check(math.isfinite(loss + norm), step, "the loss or its gradient")
            if self.average:
                self.average.update(self.model, step)
            self._advance(step, loss, norm, self.clock() - started)
            yield Stepped(step, loss)
            if is_due(self.config, step) and not self._stopping():
                self.optimizer.zero_grad()  # frees the gradients' memory
                yield self._evaluate()
                yield from self._save()
        if self.saved_step != step:
            yield from self._save()
        if step == self.config.steps or self._out_of_patience():
            yield from self._choose_best()
            yield from self._evaluate_whole()
        finished = "patience" if self._out_of_patience() else "finished"
        yield Stopped(step, self._stopping() or finished, self.spent)

    @property
    def spent(self) -> Spent:
        """Where the time of the training went so far."""
        stepping = self._spent["steps"] * self._peak
        return Spent({**self._spent}, self._done / stepping if stepping else 0.0)

    def _stopping(self) -> str | None:
        """Why to stop now, or None. The same on all ranks, which must all call this."""
        if self._agreed is None:
            self._agreed = ranks.agree_on(self.stop_reason)
        return self._agreed

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.manifest.since_best

    def _note(self, **values: Any) -> None:
        """Changes some fields of the manifest."""
        self.manifest = replace(self.manifest, **values)

    def _advance(self, step: int, loss: float, norm: float, seconds: float) -> None:
        total, count = self.manifest.running
        self._note(
            recording=self.records.after_step(self.manifest, step, loss, norm, seconds),
            step=step,
            val_loss=None,
            seconds=self.manifest.seconds + seconds,
            running=(total + loss, count + 1),
        )
        took = self._lap("steps")
        self._done += self.manifest.step_characters * self.manifest.model.training_flops
        if self.manifest.budget is not None and step > 1:  # the first step starts libraries
            budget = self.manifest.budget.after_step(took, self.config.steps - step)
            self._note(budget=budget)
            if budget.steps == 0 and step < self.config.steps:
                self._replan(step)

    def _lap(self, what: str, *, counted: bool = True) -> float:
        """Seconds since the last call; with a budget, by the first rank's clock.

        what: the name of what took this time. counted: whether it is part of the run's time.
        """
        now = self.clock()
        lap, self._mark = now - self._mark, now
        self._spent[what] += lap
        if self.manifest.budget is not None:
            lap = ranks.sum_over_ranks(lap if ranks.is_first() else 0.0)
        if counted:
            self._note(elapsed=self.manifest.elapsed + lap)
        return lap

    def _replan(self, step: int) -> None:
        """With a budget, plans as many steps as the remaining time allows."""
        if self.manifest.budget is not None:
            budget, elapsed = self.manifest.budget, self.manifest.elapsed
            self._note(train=budget.replan(self.config, step, elapsed))
            self.optimizer.config = self.config

    def _evaluate(self) -> Evaluated:
        before, most = self.manifest, self.config.eval_part or self.config.eval_chars
        mixture = self.counting.mixture(self.kept, self.device, before.step)
        fitting = self._lap("counting")
        losses = evaluate(self.kept, self.val, self.device, most, mixture)
        reading = self._lap("evaluations")
        if before.budget is not None:
            self._note(budget=before.budget.evaluated(fitting, reading, before.share_predicted))
        self._check(math.isfinite(losses.nats), before.step, "the validation loss")
        self.manifest = now = self.manifest.evaluated(losses.nats, losses.gpt)
        total, count = before.running
        train_loss, (read, of) = total / max(1, count), now.part
        self._log(
            fitting + reading,
            step=now.step,
            train_loss=train_loss,
            val_loss=losses.nats,
            gpt_loss=losses.gpt,
            val_characters=read,
            learning_rate=learning_rate(now.step, self.config),
            seconds=round(now.seconds, 3),
        )
        best = now.best_step, now.since_best
        return Evaluated(now.step, train_loss, losses.nats, *best, read, of, losses.gpt)

    def _choose_best(self) -> Iterator[Event]:
        """Makes the last step the best one if evaluations read a part of the split and an earlier
        step's loss is the lowest, but by less than BETTER_BY_ERRORS paired standard errors.

        Both steps are evaluated on the same windows, which do not overlap, so the error of the mean
        difference follows from how the differences vary. It needs no state but the saved weights,
        so a resumed run chooses as an uninterrupted run does.
        """
        now, (read, of) = self.manifest, self.manifest.part
        earlier, part = now.best_step, self.config.eval_part or self.config.eval_chars
        if earlier in (None, now.step) or now.whole_loss is not None or read == of:
            return
        if self._stopping():
            return
        losses = []
        for step in (earlier, now.step):
            model = self._model_of(step)
            mixture = self.counting.mixture(model, self.device, step)
            losses.append(window_losses(model, self.val, self.device, part, mixture))
        higher = losses[1] - losses[0]
        error = higher.std(ddof=1) / len(higher) ** 0.5 if len(higher) > 1 else math.inf
        by, error = ranks.from_rank(0, [float(higher.mean()), float(error)])
        sure = by > BETTER_BY_ERRORS * error
        if not sure:
            found = evaluate(model, self.val, self.device, part, mixture)
            self._note(best_step=now.step, best_loss=found.nats, gpt_loss=found.gpt)
            if ranks.is_first():
                self.run.replace_manifest(self.manifest)
        yield Chosen(now.step, earlier, by, error, sure, read, of)

    def _evaluate_whole(self) -> Iterator[Event]:
        """Evaluates the best step's weights on the whole split, if evaluations read a part."""
        best_step, budget = self.manifest.best_step, self.manifest.budget
        known = not self.config.eval_part or self.manifest.whole_loss is not None
        if known or best_step is None or self._stopping():
            return
        model, most = self._model_of(best_step), self.config.eval_chars
        mixture = self.counting.mixture(model, self.device, best_step)
        work = evaluate_with_progress(model, self.val, self.device, most, mixture)
        losses = Losses(math.nan)
        for share, so_far in work:
            losses = so_far
            if share < 1:
                yield Evaluating(share)
                if self._stopping():
                    return
        loss = losses.nats
        self._check(math.isfinite(loss), best_step, "the validation loss")
        seconds = self._lap("evaluations", counted=budget is None or budget.last > 0)
        self._note(whole_loss=loss, gpt_loss=losses.gpt)
        _, read, of = self.manifest.shown_loss
        record = {"step": self.manifest.step, "best_step": best_step, "whole_loss": loss}
        self._log(seconds, **record, gpt_loss=losses.gpt, val_characters=read)
        if ranks.is_first():
            self.run.replace_manifest(self.manifest)
        yield EvaluatedWhole(best_step, loss, read, of, seconds, losses.gpt)

    def _model_of(self, step: int) -> GPT:
        """The model after this step: the one in training, or a saved one."""
        if step == self.manifest.step:
            return self.kept
        return load_gpt(self.run.model(step), self.device)

    def _log(self, seconds: float, /, **record: float | None) -> None:
        """Records an evaluation and its duration in seconds; values that are None are left out."""
        known = {name: value for name, value in record.items() if value is not None}
        known["elapsed"] = round(self.manifest.elapsed, 3)
        self.records.add("metrics", known | {"evaluation_seconds": round(seconds, 3)})

    def _save(self) -> Iterator[Saved]:
        self._lap("evaluations")
        checkpoint = self._commit()  # its bytes are freed before the checkpoint is read again
        release_memory()
        self.saved_step = self.manifest.step
        if checkpoint:
            yield Saved(checkpoint)
        release_memory()  # frees what a sample took, too
        took = self._lap("saves")
        if self.manifest.budget is not None:
            self._note(budget=replace(self.manifest.budget, saving=took))

    def _commit(self) -> Checkpoint | None:
        """Saves a checkpoint and returns it; None on ranks other than the first."""
        if not ranks.is_first():
            return None
        manifest, vocabulary = self.manifest, self.corpus.vocabulary
        if self.saved_step == manifest.step:  # it was saved without its evaluation
            return self.run.replace_manifest(manifest)
        mixture = self.counting.mixture(self.kept, self.device, manifest.step)
        excerpt = vocabulary.decode(self.val[:EXCERPT_LENGTH])
        model = on_cpu(self.kept, self.device)
        stored = model_bytes(model, vocabulary, excerpt, manifest.step, self.prove, mixture)
        release_memory()
        state = state_bytes(self.model, self.optimizer, averaged=self.average is not None)
        return self.run.commit(manifest, {MODEL: stored, STATE: state})

    def _check(self, finite: bool, step: int, what: str) -> None:
        """Raises NumericsError, which says what to try, unless the value `what` is `finite`."""
        if finite:
            return
        rates = ("learning_rate", "embedding_lr", "matrix_lr")
        remedies = [f"`{name}`" for name in rates if getattr(self.config, name) > 0]
        remedies += ["`grad_clip=1`"] * (not 0 < self.config.grad_clip <= 1)
        raise NumericsError(
            f"{what} is not a finite number at step {step}; last good: step "
            f"{self.saved_step or 0}. Try a lower {' or '.join(remedies)}"
        )
