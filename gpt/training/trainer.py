"""The training loop: a generator of events. It prints nothing, and waits only for other ranks.

Batches are a pure function of (seed, step), dropout gets a new seed at every step, and without a
time budget the learning rate is a function of step and options. So a checkpoint needs no generator
states, and neither evaluations nor saves change the weights. With a time budget, the learning rate
follows the first rank's clock (Clock in gpt/storage/manifest.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus
from gpt.counting.baseline import Counting, Experts
from gpt.counting.mixture import Mixture
from gpt.counting.tables import release_memory
from gpt.errors import NumericsError
from gpt.model import GPT, initialise, start_from
from gpt.storage.manifest import Manifest, characters_read
from gpt.storage.model_file import EXCERPT_LENGTH, StoredModel
from gpt.storage.run import MODEL, STATE, Checkpoint, Run
from gpt.training import ranks
from gpt.training.checkpoint import (
    Prove,
    load_gpt,
    model_bytes,
    restore_state,
    state_bytes,
)
from gpt.training.evaluation import Losses, evaluate, evaluate_with_progress, predict_span
from gpt.training.events import (
    Evaluated,
    EvaluatedAtEnd,
    Evaluating,
    Event,
    Records,
    Saved,
    Stepped,
    Stopped,
)
from gpt.training.optim import Average, Optimizer
from gpt.training.schedule import SAMPLING, UNKNOWN, Speed, Timing, is_due, learning_rate
from gpt.training.step import Net, torch_errors, train_step


@dataclass(frozen=True)
class Job:
    """What a trainer trains: a model on a corpus, from the manifest's step on.

    speed: estimates, until the training has measured its own. experts: those of counting, if they
    are counted already. start: the model whose weights a new run starts with. began: the time, by
    time.perf_counter, at which the process began to prepare the training.
    """

    corpus: Corpus
    manifest: Manifest
    device: str = "cpu"
    speed: Speed = UNKNOWN
    experts: Experts | None = None
    start: StoredModel | None = None
    began: float | None = None


class Trainer:
    """Trains one model on one corpus into one run.

    Each rank has a trainer and makes the same calls; only the first one writes to the run.
    checkpoint: where a resumed run continues. prove: checks before each save that the model will
    open. Raises ConfigError, CheckpointError.
    """

    def __init__(
        self,
        run: Run,
        job: Job,
        checkpoint: Checkpoint | None = None,
        prove: Prove | None = None,
    ) -> None:
        self.run, self.prove = run, prove
        self.corpus, self.device, self.manifest = job.corpus, job.device, job.manifest
        options, shape = job.manifest.train, job.manifest.model
        self.train, self.val = job.corpus.split(options.val_fraction, shape.block_size)
        self.separator = job.corpus.item_separator(options)
        self.records = Records(run, ranks.is_first())
        self.counting = Counting(self.train, shape, job.experts)
        self.model = _first_model(job, checkpoint)
        has_average = options.average > 0
        self.average = Average(self.model, options.average) if has_average else None
        self.net = Net(self.model, options)
        self.optimizer = Optimizer(self.model, options)
        self.timing = Timing(job.speed, job.began, is_shared=job.manifest.clock is not None)
        self.saved_step: int | None = None
        self._unevaluated = False  # whether the saved step still needs its evaluation
        if checkpoint is not None:
            restore_state(checkpoint, self.model, self.optimizer, has_average)
            self._continue_after(checkpoint.manifest)
        self.stop_reason: str | None = None
        self._agreed: str | None = None  # the reason to stop on which all ranks agree

    def _continue_after(self, stored: Manifest) -> None:
        """Prepares the run to go on after its last checkpoint."""
        self.saved_step = stored.step
        step_before = replace(self.manifest, step=max(0, stored.step - 1))
        due = is_due(step_before.progress, self.manifest)
        self._unevaluated = due and stored.val_loss is None
        if ranks.is_first():
            self.run.abandon_after(stored.step)
            self.run.forget_after(stored.step, evaluated=not self._unevaluated)

    @property
    def config(self) -> TrainConfig:
        """The options of the training."""
        return self.manifest.train

    @property
    def kept(self) -> GPT:
        """The model that is evaluated and saved."""
        return self.average.model if self.average else self.model

    def mixture(self, model: GPT, step: int) -> Mixture | None:
        """Counting with the gate fitted to the model of this step; None without counting."""

        def predict(starts: Any, length: int) -> Any:
            return predict_span(model, self.train, (starts, length), self.device)[0].cpu().numpy()

        return self.counting.mixture(step, predict)

    def stop(self, reason: str) -> None:
        """Asks all ranks to save everything and to end after the current step."""
        self.stop_reason = reason

    def events(self) -> Iterator[Event]:
        """Trains to the end. Saved checkpoints stay intact, whatever error it raises.

        Raises NumericsError, StorageError, OutOfMemory, RankError.
        """
        try:
            with torch_errors(self.manifest.model, self.config), ranks.rank_errors():
                yield from self._events()
        finally:
            del self.net  # it refers to the process group

    def _events(self) -> Iterator[Event]:
        self.model.train()
        self.timing.lap("start")
        if self._unevaluated:
            yield self._evaluate()
        if self._unevaluated or self.saved_step is None:
            yield from self._save()  # if a save fails, it fails before the first step
        while self.manifest.progress < 1 and not self._stopping() and not self._out_of_patience():
            before = self.manifest.progress
            yield self._step()
            if self._evaluates(before) and not self._stopping():
                self.optimizer.zero_grad()  # frees the gradients' memory
                yield self._evaluate()
                yield from self._save()
        if self.saved_step != self.manifest.step:
            yield from self._save()
        if self.manifest.progress >= 1 or self._out_of_patience():
            yield from self._evaluate_at_end()
        finished = "patience" if self._out_of_patience() else "finished"
        yield Stopped(self.manifest.step, self._stopping() or finished, dict(self.timing.spent))

    def _step(self) -> Stepped:
        """Makes a step."""
        before = self.manifest
        self.optimizer.clock = before.clock
        loss, norm = train_step(
            self.model,
            self.optimizer,
            self.train,
            self.config,
            before.step,
            held=self.counting.held,
            net=self.net,
            separator=self.separator,
        )
        step = before.step + 1
        self._check(loss + norm, step, "the loss or its gradient")
        if self.average:
            self.average.update(self.model, step)
        seconds = self.timing.step()
        total, count = before.running
        now = replace(
            before,
            step=step,
            val_loss=None,
            seconds=before.seconds + seconds,
            elapsed=before.elapsed + seconds,
            running=(total + loss, count + 1),
        )
        if now.clock is not None:
            reserve = self.timing.reserve(now, now.clock.seconds)
            now = replace(now, clock=now.clock.moved(now, reserve))
        recording = self.records.after_step(before, now, loss, norm, seconds)
        self.manifest = replace(now, recording=recording)
        return Stepped(step, loss)

    def _evaluates(self, before: float) -> bool:
        """Whether an evaluation follows the last step. before: the progress before this step. With
        a time budget, one that would take too much of the time so far is left out.
        """
        now = self.manifest
        if not is_due(before, now):
            return False
        if now.clock is None or now.train.eval_interval or now.progress >= 1:
            return True
        return self.timing.can_pause(now.part[0])

    def _stopping(self) -> str | None:
        """Why to stop now, or None. The same on all ranks, which must all call this."""
        if self._agreed is None:
            self._agreed = ranks.agree_on(self.stop_reason)
        return self._agreed

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.manifest.since_best

    def _lap(self, what: str) -> float:
        """Seconds since the last measured time, which count as the run's time."""
        seconds = self.timing.lap(what)
        self.manifest = replace(self.manifest, elapsed=self.manifest.elapsed + seconds)
        return seconds

    def _evaluate(self) -> Evaluated:
        """Evaluates the last step."""
        before = self.manifest
        (read, of), (total, count) = before.part, before.running
        mixture = self.mixture(self.kept, before.step)
        fitting = self._lap("counting")
        losses = evaluate(self.kept, self.val, self.device, self.config.eval_chars, mixture)
        reading = self._lap("evaluations")
        self.timing.measured(fitting=fitting, character=reading / read)
        self._check(losses.nats, before.step, "the validation loss")
        self.manifest = now = self.manifest.evaluated(losses.nats, losses.gpt)
        train_loss = total / max(1, count)
        self._log(
            fitting + reading,
            train_loss=train_loss,
            val_loss=losses.nats,
            gpt_loss=losses.gpt,
            val_characters=read,
            learning_rate=learning_rate(now.train, now.step, now.clock),
            seconds=round(now.seconds, 3),
        )
        return Evaluated(
            step=now.step,
            train_loss=train_loss,
            val_loss=losses.nats,
            best_step=now.best_step,
            since_best=now.since_best,
            characters=read,
            of=of,
            gpt_loss=losses.gpt,
        )

    def _evaluate_at_end(self) -> Iterator[Event]:
        """Evaluates the best step on the whole split or, with a time budget, on what END_SHARE of
        it allows, unless the evaluations have read as much.
        """
        now = self.manifest
        (read, of), step = now.part, now.best_step
        most = of if now.clock is None else self.timing.affordable(of, now.clock.seconds)
        most = characters_read(of, now.model.block_size, most)
        if most <= read or step is None or now.final_loss is not None or self._stopping():
            return
        model = self.kept if step == now.step else load_gpt(self.run.at(step).model(), self.device)
        mixture, losses = self.mixture(model, step), Losses(math.nan)
        for result in evaluate_with_progress(model, self.val, self.device, most, mixture):
            if isinstance(result, Losses):
                losses = result
            else:
                yield Evaluating(result)
                if self._stopping():
                    return
        self._check(losses.nats, step, "the validation loss")
        seconds = self._lap("evaluations")
        self.manifest = replace(
            self.manifest, final_loss=losses.nats, final_characters=most, gpt_loss=losses.gpt
        )
        final = {"final_loss": losses.nats, "gpt_loss": losses.gpt, "val_characters": most}
        self._log(seconds, best_step=step, **final)
        if ranks.is_first():
            self.run.replace_manifest(self.manifest)
        yield EvaluatedAtEnd(step, losses.nats, most, of, losses.gpt)

    def _log(self, duration: float, **record: float | None) -> None:
        """Records an evaluation, which took so many seconds; values that are None are left out."""
        known = {name: value for name, value in record.items() if value is not None}
        times = {"elapsed": self.manifest.elapsed, "evaluation_seconds": duration}
        rounded = {name: round(seconds, 3) for name, seconds in times.items()}
        self.records.add("metrics", {"step": self.manifest.step, **known, **rounded})

    def _save(self) -> Iterator[Saved]:
        self._lap("evaluations")
        checkpoint = self._commit()  # its bytes are freed before the checkpoint is read again
        release_memory()
        self.saved_step = self.manifest.step
        if checkpoint:
            yield Saved(checkpoint)
        release_memory()  # frees what a sample took, too
        seconds = self._lap("saves")
        if self.manifest.step == 0:  # no model has learned, so there was no sample
            seconds += SAMPLING
        self.timing.measured(saving=seconds)

    def _commit(self) -> Checkpoint | None:
        """Saves a checkpoint and returns it; None on ranks other than the first."""
        if not ranks.is_first():
            return None
        manifest, vocabulary = self.manifest, self.corpus.vocabulary
        if self.saved_step == manifest.step:  # it was saved without its evaluation
            return self.run.replace_manifest(manifest)
        mixture = self.mixture(self.kept, manifest.step)
        excerpt = vocabulary.decode(self.val[:EXCERPT_LENGTH])
        stored = model_bytes(self.kept, vocabulary, excerpt, manifest.step, self.prove, mixture)
        release_memory()
        state = state_bytes(self.model, self.optimizer, averaged=self.average is not None)
        return self.run.commit(manifest, {MODEL: stored, STATE: state})

    def _check(self, number: float, step: int, what: str) -> None:
        """Raises NumericsError, which says what to try, unless the number `what` is finite."""
        if math.isfinite(number):
            return
        rates = ("learning_rate", "embedding_lr", "matrix_lr")
        remedies = [f"`{name}`" for name in rates if getattr(self.config, name) > 0]
        if not 0 < self.config.grad_clip <= 1:
            remedies.append("`grad_clip=1`")
        raise NumericsError(
            f"{what} is not a finite number at step {step}; last good: step "
            f"{self.saved_step or 0}. Try a lower {' or '.join(remedies)}"
        )


def _first_model(job: Job, checkpoint: Checkpoint | None) -> GPT:
    """The model before the first step: of a checkpoint, or a new one."""
    if checkpoint is not None:
        return load_gpt(checkpoint.model(), job.device)
    model = GPT(job.manifest.model)
    if job.start is not None:
        start_from(model, job.start.tensors)
    else:
        initialise(model, job.manifest.train.seed)
    return model.to(job.device)
