"""One optimizer step, its time and memory on this machine, and its errors with remedies."""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus.batches import DROPOUT, philox
from gpt.counting.held_out import HeldOut
from gpt.counting.mixture import Mixture
from gpt.devices import physical_memory
from gpt.errors import OutOfMemory
from gpt.model import GPT, initialise
from gpt.training.counting import Counting
from gpt.training.device_batches import IGNORED, Fed, kept_near, windows
from gpt.training.distributed import ONE, Ranks, whole
from gpt.training.evaluation import at_once, losses_of
from gpt.training.fit import Measurement
from gpt.training.optim import Optimizer
from gpt.training.precision import low_precision, tensor_floats
from gpt.vocabulary import Ids

COUNTED = 2**16  # characters that are counted to measure what an evaluation takes
SAVED = 10**8  # bytes per second that a save hashes and writes: a low estimate before the first


def train_step(
    model: GPT,
    optimizer: Optimizer,
    ids: Fed,
    config: TrainConfig,
    step: int,
    ranks: Ranks = ONE,
    held: HeldOut | None = None,
) -> tuple[float, bool]:
    """Makes the next step, after `step` steps -> its loss in nats, and whether it was taken.

    The loss leaves out characters that are held out.

    It is not taken, and no weight changes, when the loss or the gradient is not finite. Each rank
    computes its rows of the batch, one micro-batch after another; loss and gradient are those of
    the whole batch. With dropout, each rank draws its own masks.
    """
    device, block_size = next(model.parameters()).device, model.config.block_size
    if model.config.drops:
        seeds = philox(config.seed, step, DROPOUT).random_raw(ranks.rank + 1)
        torch.manual_seed(int(seeds[-1] >> 1))
    optimizer.zero_grad()
    value, pieces = 0.0, ranks.pieces(config.batch_size, config.micro_batch_size)
    for number, part in enumerate(pieces, start=1):
        share = (part.stop - part.start) / config.batch_size
        rows = part if share else slice(1)  # all ranks must compute; this row has weight 0
        inputs, targets = windows(ids, config, step, block_size, rows, device, held)
        ranks.send(model, now=number == len(pieces))
        with tensor_floats(config, device):
            with low_precision(config, device):
                logits = ranks.net(model)(inputs)  # (b, T, vocab_size)
                loss = _mean_loss(logits, targets, held) * share
            (loss * ranks.size).backward()
        value += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip or math.inf)
    value = ranks.total(value)
    finite = math.isfinite(value) and math.isfinite(whole(norm).item())
    if finite:
        optimizer.step(step)
    return value, finite


def _mean_loss(logits: Tensor, targets: Tensor, held: HeldOut | None) -> Tensor:
    """(b, T, vocab_size) logits and (b, T) targets -> the mean loss.

    Targets that are IGNORED have none. The sum of the others is divided by their expected number,
    so that the loss of a batch does not depend on how it is split into parts.
    """
    if held is None:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    total = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (targets.numel() * (1 - held.share))


@contextlib.contextmanager
def memory_errors(model: ModelConfig, config: TrainConfig) -> Iterator[None]:
    """Turns torch's errors of missing memory into OutOfMemory with a remedy."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error).lower()
        if not isinstance(error, MemoryError) and not (
            "out of memory" in text or "can't allocate memory" in text
        ):
            raise
        half = (config.micro_batch_size or config.batch_size) // 2
        smaller = (
            f"--micro-batch-size {half}, which learns the same, or --batch-size {half}"
            if half
            else f"--block-size {max(1, model.block_size // 2)}"
        )
        raise OutOfMemory(f"out of memory; try {smaller}") from error


def check_memory(model: ModelConfig, config: TrainConfig, ranks: int = 1) -> None:
    """Raises OutOfMemory if this process's part of a step needs more than this machine has.

    Linux grants more memory than it has, and kills the process that uses it.
    """
    has = physical_memory()
    if has is None:
        return
    share = math.ceil(config.batch_size / ranks)
    at_once = min(config.micro_batch_size or share, share)
    # Weights, gradients and two moments; what each sublayer keeps for its gradient; logits.
    fixed = 16 * model.parameters()
    layer = 8 * model.n_embd + model.widened + model.hidden
    kept = model.n_layer * layer + 3 * model.vocab_size
    sequence = 4 * kept * model.block_size
    if fixed + at_once * sequence <= has:
        return
    fits = (has - fixed) // (2 * sequence)  # half of the rest, as the count above is a minimum
    remedy = f"--micro-batch-size {fits}, which learns the same, or --batch-size {fits * ranks}"
    remedy = remedy if fits >= 1 else "a smaller model: --n-embd, --n-layer"
    raise OutOfMemory(
        f"out of memory: a step needs {(fixed + at_once * sequence) / 2**30:,.0f} GB, "
        f"this machine has {has / 2**30:,.0f} GB; try {remedy}"
    )


def measure(
    model_config: ModelConfig,
    config: TrainConfig,
    ids: Ids,
    device: str,
    seconds: float = 1.0,
    ranks: Ranks = ONE,
) -> Measurement:
    """Times steps and short evaluations of a temporary model for about `seconds`.

    Steps and evaluations alternate, and medians are taken, so that other work on the machine
    changes little. Of several ranks the slowest counts. Raises ConfigError, OutOfMemory.
    """
    if device == "cpu":
        check_memory(model_config, config, ranks.size)
    with memory_errors(model_config, config):
        model = GPT(model_config)
        initialise(model, config.seed)
        model.to(device).train()
        ranks.prepare(model, config)
        optimizer, near = Optimizer(model, config), kept_near(ids, device)
        mixture, fitting = _measured_mixture(model, ids, device)
        evaluated = ids[: at_once(model_config, device) * model_config.block_size + 1]
        steps: list[float] = []
        evaluations: list[float] = []
        while len(steps) < 3 or (sum(steps) < seconds and len(steps) < 200):
            started = time.perf_counter()
            train_step(model, optimizer, near, config, len(steps), ranks)
            steps.append(ranks.all_reduce_max(time.perf_counter() - started))
            if len(steps) % 4 == 2:
                started = time.perf_counter()
                losses_of(model, evaluated, device, mixture=mixture)
                evaluations.append(ranks.all_reduce_max(time.perf_counter() - started))
        ranks.forget(model)
    return Measurement(
        seconds_per_step=statistics.median(steps[1:]),  # the first step includes the start
        seconds_per_character=statistics.median(evaluations) / (len(evaluated) - 1) / ranks.size,
        memory=peak_memory(device),
        saving=12 * model_config.parameters() / SAVED + fitting,  # weights and two moments
    )


def _measured_mixture(model: GPT, ids: Ids, device: str) -> tuple[Mixture | None, float]:
    """A counting expert of a part of the text, and the seconds that fitting the gate takes."""
    part = Counting(ids[:COUNTED], model.config)
    if part.held is None:
        return None, 0.0
    started = time.perf_counter()
    mixture = part.mixture(model, device, 1)
    seconds = time.perf_counter() - started
    whole = HeldOut.of(len(ids), model.config.vocab_size)
    return mixture, seconds * whole.length / max(1, part.held.length)


def try_step(device: str) -> None:
    """Trains a tiny model for one step with the presets' features. Raises whatever torch raises."""
    shape = ModelConfig(vocab_size=4, block_size=8, n_layer=1, n_head=1, n_embd=16, dropout=0.1)
    model = GPT(shape)
    config = TrainConfig(batch_size=2, precision="bfloat16")
    initialise(model, config.seed)
    model.to(device).train()
    train_step(model, Optimizer(model, config), np.zeros(64, np.uint8), config, 0)


def peak_memory(device: str) -> int:
    """Most bytes used so far: on the GPU if one is used, else by the process; 0 if unknown."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
