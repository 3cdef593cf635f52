"""One optimizer step: reads its windows, checks the memory, and explains errors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus.batches import DROPOUT, batch, batch_starts, philox
from gpt.counting.held_out import HeldOut
from gpt.errors import OutOfMemory
from gpt.model import GPT, initialise
from gpt.training import ranks
from gpt.training.net import Net
from gpt.training.optim import Optimizer
from gpt.training.precision import precision_context
from gpt.vocabulary import Ids

IGNORED = -100  # the target of held-out text: torch's cross_entropy leaves it out


def train_step(
    model: GPT,
    optimizer: Optimizer,
    text: Ids,
    config: TrainConfig,
    step: int,
    held: HeldOut | None = None,
    net: Net | None = None,
) -> tuple[float, float]:
    """Makes the next step on a text, after `step` steps; returns its loss in nats and the norm of
    its gradient.

    The loss ignores held-out characters. The norm is the one before clipping. net: computes the
    model; needed with several ranks.

    If loss or norm is not finite, the step is not made and no weight changes. Each rank computes
    its rows of the batch, one micro-batch after another; loss and gradient are those of the whole
    batch. With dropout, each rank draws its own masks.
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
        arrays = batch_rows(text, config, step, block_size, rows, held)
        ids, targets = (torch.from_numpy(array).to(device) for array in arrays)
        share = (part.stop - part.start) / config.batch_size
        net.send(now=number == len(pieces))
        with precision_context(config, device):
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
) -> tuple[Ids, Ids]:
    """These rows of a step's batch: (b, T) inputs and (b, T) targets, IGNORED for held-out text."""
    order = config.seed, step, config.batch_size, block_size, config.window_order
    inputs, targets = batch(text, *order, rows)
    if held is not None:
        places = batch_starts(text, *order)[rows, None] + np.arange(1, block_size + 1)
        targets = np.where(held.contains(places), IGNORED, targets)
    return inputs, targets


def _mean_loss(logits: Tensor, targets: Tensor, held: HeldOut | None) -> Tensor:
    """(b, T, vocab_size) logits and (b, T) targets -> the mean loss.

    IGNORED targets do not count. With held-out text, the sum over the others is divided by their
    expected number, so that a batch's loss does not depend on how it is split into parts.
    """
    if held is None:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    total = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (targets.numel() * (1 - held.share))


@contextlib.contextmanager
def memory_errors(model: ModelConfig, config: TrainConfig) -> Iterator[None]:
    """Turns torch's out-of-memory errors into OutOfMemory with a remedy."""
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
    # The sum: weights, gradients and two moments; what each sublayer keeps for its gradient;
    # logits.
    # Before these, the ids that this rank reads.
    fixed = 16 * model.parameters() + 8 * (model.block_size + 1) * share
    layer = (6 + 2 * model.feed_forward) * model.n_embd + 2 * model.ffn_hidden
    kept = model.n_layer * layer + 3 * model.vocab_size
    sequence = 4 * kept * model.block_size
    if fixed + at_once * sequence <= has:
        return
    room = has - 16 * model.parameters()
    fits = room // (2 * sequence)  # half of the room, as the estimate above is a minimum
    remedy = f"`batch_size={fits * ranks}`"
    if fixed < has:
        remedy = f"`micro_batch_size={fits}`, which gives the same result, or {remedy}"
    if fits < 1:
        remedy = "a smaller model: `n_embd`, `n_layer`"
        if model.vocab_size * model.n_embd > model.parameters() // 4:
            remedy += ", or a text with fewer different characters"
    raise OutOfMemory(
        f"out of memory: a step needs {(fixed + at_once * sequence) / 2**30:,.0f} GB, "
        f"{has / 2**30:,.1f} GB are free; try {remedy}"
    )


def try_step(device: str) -> None:
    """A step of a tiny model with the features that presets use. Raises whatever torch raises."""
    shape = ModelConfig(vocab_size=4, block_size=8, n_layer=1, n_head=1, n_embd=16, dropout=0.1)
    model = GPT(shape)
    config = TrainConfig(batch_size=2, precision="bfloat16")
    initialise(model, config.seed)
    model.to(device).train()
    train_step(model, Optimizer(model, config), np.zeros(64, np.uint8), config, 0)
