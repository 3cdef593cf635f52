"""One optimizer step, on one rank or on several that share each batch; and what it says if memory
is short. Evaluations always use float32, and probes float64.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus.corpus import DROPOUT, batch_starts, philox, windows
from gpt.counting.baseline import HeldOut
from gpt.devices import reason_of
from gpt.errors import ConfigError, OutOfMemory
from gpt.model import GPT, initialise
from gpt.training import ranks
from gpt.training.optim import Optimizer
from gpt.vocabulary import Ids

IGNORED = -100  # the target of held-out text: torch's cross_entropy leaves it out


class Net:
    """Computes a model in training: (b, T) ids -> (b, T, vocab_size) logits.

    After the last part of a step, the gradients are means over all ranks: torch's
    DistributedDataParallel averages them (Li et al. 2020). Raises ConfigError if a step has fewer
    sequences than there are ranks.
    """

    def __init__(self, model: GPT, config: TrainConfig) -> None:
        size = ranks.world_size()
        if config.batch_size < size:
            raise ConfigError(
                "batch_size",
                f"{config.batch_size} sequences are too few for {size} ranks; every rank needs one",
            )
        if config.deterministic:  # cuBLAS reads its variable when it is first used
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if torch.are_deterministic_algorithms_enabled() != config.deterministic:
            torch.use_deterministic_algorithms(config.deterministic)  # this imports the compiler
        self._joined: Any = _averaged(model) if size > 1 else model
        self._compute = torch.compile(self._joined) if config.compile else self._joined

    def __call__(self, ids: Tensor) -> Tensor:
        return self._compute(ids)  # type: ignore[no-any-return]

    def send(self, now: bool) -> None:
        """Sets whether the next forward and backward pass sends gradients to the other ranks."""
        if ranks.world_size() > 1:
            self._joined.require_backward_grad_sync = now


def _averaged(model: GPT) -> nn.Module:
    parameter = next(model.parameters())
    net = nn.parallel.DistributedDataParallel(model)
    # DistributedDataParallel rebuilds its buckets after the first step, and they determine the
    # order of additions, so the first step of a resumed run would differ. So that first step is
    # made here, on zeros.
    net(torch.zeros((1, 1), dtype=torch.int64, device=parameter.device)).sum().backward()
    net.zero_grad()
    return net


def train_step(
    model: GPT,
    optimizer: Optimizer,
    text: Ids,
    config: TrainConfig,
    step: int,
    *,
    held: HeldOut | None = None,
    net: Net | None = None,
    separator: Ids | None = None,
) -> tuple[float, float]:
    """Makes the next step on a text, after `step` steps; returns its loss in nats, without
    held-out characters, and the norm of its gradient before clipping.

    net: computes the model; needed with several ranks. separator: see `batch_rows`. If loss or
    norm is not finite, no weight changes. Each rank computes its rows of the batch, one micro-batch
    after another; loss and gradient are those of the whole batch. With dropout, each rank draws its
    own masks.
    """
    net, rank, size = net or Net(model, config), ranks.rank(), ranks.world_size()
    device, block_size = next(model.parameters()).device, model.config.block_size
    if model.config.uses_dropout:
        seeds = philox(config.seed, step, DROPOUT).random_raw(rank + 1)
        torch.manual_seed(int(seeds[-1] >> 1))
    optimizer.zero_grad()
    value, pieces = 0.0, ranks.rank_pieces(config.batch_size, config.micro_batch_size, rank, size)
    for number, part in enumerate(pieces, start=1):
        empty = part.stop == part.start
        rows = slice(0, 1) if empty else part  # every rank must compute; this row has weight 0
        arrays = batch_rows(text, config, step, block_size, rows, held, separator)
        ids, targets = (torch.from_numpy(array).to(device) for array in arrays)
        share = (part.stop - part.start) / config.batch_size
        net.send(now=number == len(pieces))
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            logits = net(ids)  # (b, T, vocab_size)
            loss = _mean_loss(logits, targets, held) * share
        (loss * size).backward()
        value += loss.item()
    clipped = torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip or math.inf)
    value, norm = ranks.sum_over_ranks(value), clipped.item()
    if math.isfinite(value) and math.isfinite(norm):
        optimizer.step(step)
    return value, norm


def batch_rows(
    text: Ids,
    config: TrainConfig,
    step: int,
    block_size: int,
    rows: slice,
    held: HeldOut | None = None,
    separator: Ids | None = None,
) -> tuple[Ids, Ids]:
    """These rows of a step's batch: (b, T) inputs and (b, T) targets, IGNORED for held-out text.
    separator (n,): the ids between two items, if windows are to begin at items.
    """
    starts = batch_starts(text, config, step, block_size, separator)[rows]
    inputs, targets = windows(text, starts, block_size)
    if held is not None:
        places = starts[:, None] + np.arange(1, block_size + 1)
        targets = np.where(held.contains(places), IGNORED, targets)
    return inputs, targets


def _mean_loss(logits: Tensor, targets: Tensor, held: HeldOut | None) -> Tensor:
    """(b, T, vocab_size) logits and (b, T) targets -> the mean loss. With held-out text, the sum
    over the other characters is divided by their expected number, so that a batch's loss does not
    depend on how it is split into parts.
    """
    if held is None:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    total = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (targets.numel() * (1 - held.share))


@contextlib.contextmanager
def torch_errors(model: ModelConfig, config: TrainConfig) -> Iterator[None]:
    """Turns torch's errors into OutOfMemory with a remedy, and ConfigError if it cannot compile."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if config.compile and type(error).__module__.startswith("torch._dynamo"):
            raise ConfigError("compile", f"fails here ({reason_of(error)})") from error
        text = str(error).lower()
        if not isinstance(error, MemoryError) and not (
            "out of memory" in text or "can't allocate memory" in text
        ):
            raise
        half = (config.micro_batch_size or config.batch_size) // 2
        smaller = (
            f"`micro_batch_size={half}`, which gives the same result, or `batch_size={half}`"
            if half
            else f"`block_size={max(1, model.block_size // 2)}`"
        )
        raise OutOfMemory(f"out of memory; try {smaller}") from error


def check_memory(model: ModelConfig, config: TrainConfig, has: int, ranks: int = 1) -> None:
    """Raises OutOfMemory if this process's part of a step needs more memory than the free `has`
    bytes. Linux grants more memory than it has, and then kills the process that uses it.
    """
    share = math.ceil(config.batch_size / ranks)
    at_once = min(config.micro_batch_size or share, share)
    # Weights, gradients and two moments, and the ids that this rank reads; then, for each
    # sequence, what each layer keeps for its gradient, and the logits.
    weights = 16 * model.parameters()
    fixed = weights + 8 * (model.block_size + 1) * share
    layer = (6 + 2 * model.feed_forward) * model.n_embd + 2 * model.ffn_hidden
    sequence = 4 * (model.n_layer * layer + 3 * model.vocab_size) * model.block_size
    needed = fixed + at_once * sequence
    if needed <= has:
        return
    fits = (has - weights) // (2 * sequence)  # half of the room, as this estimate is a minimum
    remedy = f"`batch_size={fits * ranks}`"
    if fixed < has:
        remedy = f"`micro_batch_size={fits}`, which gives the same result, or {remedy}"
    if fits < 1:
        remedy = "a smaller model (`n_embd`, `n_layer`) or a text with fewer different characters"
    raise OutOfMemory(
        f"out of memory: a step needs {needed / 2**30:,.0f} GB, {has / 2**30:,.1f} GB are free; "
        f"try {remedy}"
    )


def try_step(device: str) -> None:
    """A step of a tiny model with the features that presets use. Raises whatever torch raises."""
    shape = ModelConfig(vocab_size=4, block_size=8, n_layer=1, n_head=1, n_embd=16, dropout=0.1)
    model, config = GPT(shape), TrainConfig(batch_size=2, precision="bfloat16")
    initialise(model, config.seed)
    model.to(device).train()
    train_step(model, Optimizer(model, config), np.zeros(64, np.uint8), config, 0)
