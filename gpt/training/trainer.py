"""The training loop, a generator of events. It prints nothing, and waits only for other ranks.

Batches are a pure function of seed and step, dropout gets a new seed at every step, and without a
time budget the learning rate is a function of step and options. So a checkpoint stores no generator
states, and neither evaluations nor saves change the weights. With a time budget, the learning rate
follows the clock of the first rank (Clock in gpt/storage/checkpoint_files.py).

A checkpoint has the exact weights, a probe of them, and the optimizer's moments. gpt/storage writes
and verifies checkpoints.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gpt.config import ModelConfig
from gpt.corpus.corpus import Corpus
from gpt.counting.baseline import Counting, Experts
from gpt.counting.mixture import Mixture
from gpt.counting.tables import release_memory
from gpt.errors import NumericsError
from gpt.model import GPT, copy_weights, initialise
from gpt.show.result import Check
from gpt.storage.checkpoint_files import (
    EXCERPT_LENGTH,
    Manifest,
    Probe,
    StoredModel,
    Tensors,
    characters_to_evaluate,
    pack,
    pick_probe_logits,
)
from gpt.storage.run import MODEL, STATE, Checkpoint, Run
from gpt.training import ranks
from gpt.training.progress import (
    UNKNOWN,
    Evaluated,
    Evaluating,
    Event,
    Records,
    Saved,
    Speed,
    Stepped,
    Stopped,
    Timing,
    learning_rate,
)
from gpt.training.step import (
    Average,
    Learner,
    Losses,
    evaluate,
    predict_span,
    torch_errors,
)
from gpt.vocabulary import Ids, Vocabulary

PROBE_POSITIONS = 512  # most positions; opening a model computes the logits of all
PROBE_LOGITS = 2**25  # limits the time to compute a probe with a very large vocabulary
PROBE_AT_ONCE = 2**20  # logits computed together, unless a row has more; limits the memory
PROBE_NUMBERS = 2**14  # stored logits; limits the size of a checkpoint with a large vocabulary
#: Checks that numpy computes the logits of a probe from these tensors (gpt/reading/probe.py).
Prove = Callable[[ModelConfig, Tensors, Probe], Check]


@dataclass(frozen=True)
class Job:
    """What a trainer trains: a model on a corpus, from the manifest's step on.

    speed: estimates, until the trainer has measured the speed. experts: the counted n-grams; None:
    the trainer counts them. start: the model whose weights a new run starts with. began: the time
    of time.perf_counter at which the preparation of the training began.
    """

    corpus: Corpus
    manifest: Manifest
    device: str = "cpu"
    speed: Speed = UNKNOWN
    experts: Experts | None = None
    start: StoredModel | None = None
    began: float | None = None


class Trainer:
    """Trains a model on a corpus and saves it in a run.

    Every rank has a trainer and makes the same calls; only the first rank writes to the run.
    checkpoint: where a resumed run continues. prove: checks before every save that numpy computes
    the same logits. saved_model: the model that is evaluated and saved; with `average`, it has the
    average of the weights. Raises ConfigError, CheckpointError.
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
        self.config, shape = job.manifest.train, job.manifest.model
        self.train, self.val = job.corpus.split(self.config.val_fraction, shape.block_size)
        self.records = Records(run)
        self.counting = Counting(self.train, shape, job.experts)
        if checkpoint is not None:
            self.model = load_gpt(checkpoint.model(), job.device)
        else:
            self.model = GPT(shape)
            if job.start is not None:
                copy_weights(self.model, job.start.tensors)
            else:
                initialise(self.model, self.config.seed)
            self.model.to(job.device)
        self.average = Average(self.model, self.config.average) if self.config.average else None
        self.saved_model = self.average.model if self.average else self.model
        separator = job.corpus.item_separator(self.config)
        self.learner = Learner(self.model, self.train, self.config, self.counting.held, separator)
        self.timing = Timing(job.speed, job.began, is_shared=job.manifest.clock is not None)
        self.saved_step: int | None = None
        if checkpoint is not None:
            restore_state(checkpoint, self._state())
            self.saved_step = checkpoint.manifest.step
            if ranks.is_first():
                run.rename_damaged_after(self.saved_step)
                run.cut_logs_after(self.saved_step)
        self.stop_reason: str | None = None

    def mixture(self, model: GPT, step: int) -> Mixture | None:
        """Returns counting with a gate fitted to the model of this step; None without counting."""

        def predict(starts: Any, length: int) -> Any:
            return predict_span(model, self.train, (starts, length), self.device)[0].cpu().numpy()

        return self.counting.mixture(step, predict)

    def stop(self, reason: str) -> None:
        """Ends the training of all ranks after the current step and a save."""
        self.stop_reason = reason

    def events(self) -> Iterator[Event]:
        """Trains to the end and yields events. An error leaves saved checkpoints intact.

        Raises NumericsError, StorageError, OutOfMemory, RankError.
        """
        try:
            with torch_errors(self.manifest.model, self.config), ranks.rank_errors():
                yield from self._events()
        finally:
            del self.learner  # DistributedDataParallel refers to the process group

    def _events(self) -> Iterator[Event]:
        self.model.train()
        self.timing.lap("start")
        if self.saved_step is None:
            yield from self._save()  # a save that cannot work fails before the first step
        while self.manifest.progress < 1 and not self._stopping() and not self._out_of_patience():
            before = self.manifest.progress
            yield self._step()
            if self.timing.is_evaluation_due(before, self.manifest):
                self.model.zero_grad()  # frees the gradients' memory
                yield self._evaluate()
                yield from self._save()
        if self.saved_step != self.manifest.step:
            yield from self._save()
        if self.manifest.progress >= 1 or self._out_of_patience():
            yield from self._evaluate_at_end()
        finished = "patience" if self._out_of_patience() else "finished"
        yield Stopped(self.manifest.step, self._stopping() or finished, dict(self.timing.spent))

    def _step(self) -> Stepped:
        before = self.manifest
        loss, norm = self.learner.step(before.step, before.clock)
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
            now = replace(now, clock=now.clock.after_step(now, reserve))
        self.manifest = now
        return Stepped(step, loss)

    def _stopping(self) -> str | None:
        """Returns why to stop now, or None, the same on all ranks. All ranks must call this."""
        return ranks.agree_on(self.stop_reason)

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.manifest.since_best

    def _lap(self, what: str) -> float:
        """Returns the seconds since the last lap, and adds them to the run's time."""
        seconds = self.timing.lap(what)
        self.manifest = replace(self.manifest, elapsed=self.manifest.elapsed + seconds)
        return seconds

    def _evaluate(self) -> Evaluated:
        before = self.manifest
        read, (total, count) = before.evaluated_characters[0], before.running
        mixture = self.mixture(self.saved_model, before.step)
        fitting = self._lap("counting")
        losses = evaluate(self.saved_model, self.val, self.device, self.config.eval_chars, mixture)
        reading = self._lap("evaluations")
        self.timing.replace_estimates(fitting=fitting, character=reading / read)
        self._check(losses.nats, before.step, "the validation loss")
        self.manifest = now = self.manifest.with_losses(losses.nats, losses.gpt)
        self._log(
            losses,
            fitting + reading,
            train_loss=total / max(1, count),
            val_loss=losses.nats,
            val_characters=read,
            learning_rate=learning_rate(now.train, now.step, now.clock),
            seconds=round(now.seconds, 3),
        )
        return Evaluated(now.step, losses.nats)

    def _evaluate_at_end(self) -> Iterator[Event]:
        """Evaluates the best step on the whole split or, with a time budget, on as many characters
        as END_SHARE of it allows. Does nothing if earlier evaluations have read as many.
        """
        now = self.manifest
        (read, of), step = now.evaluated_characters, now.best_step
        most = of if now.clock is None else self.timing.affordable_at_end(of, now.clock.seconds)
        most = characters_to_evaluate(of, now.model.block_size, most)
        if most <= read or step is None or now.final_loss is not None or self._stopping():
            return
        yield Evaluating()
        model = self.saved_model
        if step != now.step:
            model = load_gpt(self.run.at(step).model(), self.device)
        losses = evaluate(model, self.val, self.device, most, self.mixture(model, step))
        self._check(losses.nats, step, "the validation loss")
        seconds = self._lap("evaluations")
        self.manifest = replace(
            self.manifest, final_loss=losses.nats, final_characters=most, gpt_loss=losses.gpt
        )
        self._log(losses, seconds, best_step=step, final_loss=losses.nats, val_characters=most)
        if ranks.is_first():
            self.run.replace_manifest(self.manifest)
        yield Evaluated(step, losses.nats)

    def _log(self, losses: Losses, duration: float, **record: float) -> None:
        """Records an evaluation. duration: its seconds."""
        if losses.gpt is not None:
            record["gpt_loss"] = losses.gpt
        record["elapsed"] = round(self.manifest.elapsed, 3)
        record["evaluation_seconds"] = round(duration, 3)
        if ranks.is_first():
            self.records.add({"step": self.manifest.step, **record})

    def _save(self) -> Iterator[Saved]:
        self._lap("evaluations")
        checkpoint = self._commit()  # frees its bytes before the checkpoint is read again
        release_memory()
        self.saved_step = self.manifest.step
        if checkpoint:
            yield Saved(checkpoint)
        release_memory()  # also frees the memory of a sample
        self.timing.replace_estimates(saving=self._lap("saves"))

    def _commit(self) -> Checkpoint | None:
        """Saves and returns a checkpoint on the first rank; returns None on the others."""
        if not ranks.is_first():
            return None
        manifest, vocabulary = self.manifest, self.corpus.vocabulary
        mixture = self.mixture(self.saved_model, manifest.step)
        excerpt = vocabulary.decode(self.val[:EXCERPT_LENGTH])
        stored = model_bytes(
            self.saved_model, vocabulary, excerpt, manifest.step, self.prove, mixture=mixture
        )
        release_memory()
        state = {name: _numpy(tensor) for name, tensor in self._state().items()}
        return self.run.commit(manifest, {MODEL: stored, STATE: pack(state, {})})

    def _state(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that a resumed training needs, by name: those of the optimizer and,
        if the model file has averages of the weights, the weights.
        """
        weights = self.model.named_parameters() if self.average else ()
        named = {f"weight.{name}": weight.detach() for name, weight in weights}
        return self.learner.optimizer.state | named

    def _check(self, number: float, step: int, what: str) -> None:
        """Raises NumericsError unless the number of this step is finite. what: its name."""
        if not math.isfinite(number):
            raise NumericsError(
                f"{what} is not a finite number at step {step}; last good: step "
                f"{self.saved_step or 0}. Try lower learning rates (`learning_rate`, "
                "`embedding_lr`, `matrix_lr`), or `grad_clip=1`"
            )


def model_bytes(
    model: GPT,
    vocabulary: Vocabulary,
    excerpt: str,
    step: int,
    prove: Prove | None = None,
    *,
    mixture: Mixture | None = None,
) -> bytes:
    """Returns a model file that needs no other file: weights, config, vocabulary, a probe, a
    digest, and the tables and the gate of counting. Raises NumericsError if `prove` finds other
    logits.
    """
    probe = make_probe(model, vocabulary.encode(excerpt))
    release_memory()  # frees the float64 weights
    tensors: Tensors = {name: _numpy(tensor) for name, tensor in model.stored_parameters().items()}
    check = prove(model.config, tensors, probe) if prove else None
    if check and not check.passed:
        raise NumericsError(
            f"numpy computes other logits than torch at step {step:,} (difference "
            f"{check.error:.1e}; rounding allows {check.bound:.1e}), so this step was not saved. "
            "Try another version of numpy or torch"
        )
    tensors |= {"probe.ids": probe.ids, "probe.logits": probe.logits}
    if mixture:
        tensors |= {f"counting.{name}": array for name, array in mixture.stored_arrays().items()}
    about = {"config": model.config, "vocabulary": vocabulary, "excerpt": excerpt, "step": step}
    return pack(tensors, about)


def make_probe(model: GPT, text: Ids) -> Probe:
    """Returns a probe of a model. Its texts are the start of `text`, then all characters of the
    vocabulary (of a large vocabulary, evenly spread ones), in rows as long as the context.
    """
    config = model.config
    positions = max(1, min(PROBE_POSITIONS, PROBE_LOGITS // config.vocab_size))
    length = min(config.block_size, positions)
    rows = min(-(-config.vocab_size // length), positions // length)
    count = min(config.vocab_size, rows * length)
    every = np.linspace(0, config.vocab_size - 1, count).astype(np.int32)
    start = np.resize(text.astype(np.int32), rows * length - count)
    ids = np.concatenate((start, every)).reshape(rows, length)
    columns = min(config.vocab_size, max(1, PROBE_NUMBERS // ids.size))
    probe = Probe(ids, np.zeros((ids.size, columns), np.float32))
    logits = exact_logits(model, ids)
    return replace(probe, logits=pick_probe_logits(logits, columns).astype(np.float32))


@torch.no_grad()
def exact_logits(
    model: GPT, ids: Ids
) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Yields (L, vocab_size) float64 logits of every row of (R, L) ids, on the CPU, no dropout."""
    exact = copy.deepcopy(model).cpu().double().eval()
    for name, table in exact.position.tables(model.config).items():
        setattr(exact.position, name, table)
    rows = max(1, PROBE_AT_ONCE // (ids.shape[1] * model.config.vocab_size))
    for first in range(0, len(ids), rows):
        some = torch.from_numpy(ids[first : first + rows].astype(np.int64))
        yield from exact(some).numpy()


def load_gpt(stored: StoredModel, device: str) -> GPT:
    """Makes a torch model of a verified model file."""
    model = GPT(stored.config)
    model.load_parameters({name: torch.tensor(a) for name, a in stored.tensors.items()})
    return model.to(device)


def restore_state(checkpoint: Checkpoint, state: dict[str, torch.Tensor]) -> None:
    """Copies a checkpoint's state into these tensors, bit for bit. Raises CheckpointError."""
    stored = checkpoint.state({name: tuple(tensor.shape) for name, tensor in state.items()})
    for name, tensor in state.items():
        tensor.copy_(torch.tensor(stored[name]))


def _numpy(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return tensor.cpu().contiguous().numpy()
