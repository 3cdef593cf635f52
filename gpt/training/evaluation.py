"""Validation loss with torch, on a whole split or on evenly distributed windows of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from gpt.config import ModelConfig
from gpt.config.schedule import characters_read
from gpt.model import GPT
from gpt.training.distributed import ONE, Ranks
from gpt.vocabulary import Ids

NUMBERS_AT_ONCE = {"cpu": 2**20}  # in the widest layer; more would not fit a CPU's cache
NUMBERS_ELSEWHERE = 2**23
SHOWN = 50  # progress reports of a long evaluation


def at_once(config: ModelConfig, device: str) -> int:
    """Number of windows that are evaluated together."""
    most = NUMBERS_AT_ONCE.get(device, NUMBERS_ELSEWHERE)
    return max(1, most // (config.block_size * max(config.vocab_size, config.widened)))


def evaluate(model: GPT, ids: Ids, device: str, ranks: Ranks = ONE, most: int = 0) -> float:
    """Mean nats per character over `ids` in non-overlapping windows of block_size.

    The first character is context only; the last window may be shorter. most: characters to
    predict, in evenly distributed windows of the split; 0: all. No dropout, float32. The ranks
    share the windows; all get the result.
    """
    *_, (_, loss) = evaluating(model, ids, device, ranks, most)
    return loss


@torch.no_grad()
def evaluating(
    model: GPT, ids: Ids, device: str, ranks: Ranks = ONE, most: int = 0
) -> Iterator[tuple[float, float]]:
    """As `evaluate`, with progress: yields (share done, loss so far), at the end the whole loss.

    With several ranks, the losses before the end are each rank's own; all yield equally often.
    """
    rows, total, done = at_once(model.config, device), 0.0, 0
    spans = [
        (starts[first : first + rows], length)
        for starts, length in window_starts(len(ids) - 1, model.config.block_size, most)
        for first in range(0, len(starts), rows)
    ]
    rounds = -(-len(spans) // ranks.size)
    for turn in range(rounds):
        number = turn * ranks.size + ranks.rank
        # All ranks must call a sharded model: a rank without a span computes the last one again.
        starts, length = spans[min(number, len(spans) - 1)]
        places = starts[:, None] + np.arange(length + 1)
        windows = torch.from_numpy(np.asarray(ids[places]).astype(np.int64)).to(device)
        was_training = model.training
        model.eval()
        logits = model(windows[:, :-1])  # (b, T, vocab_size)
        losses = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum")
        model.train(was_training)
        if number < len(spans):
            total, done = total + float(losses), done + len(starts) * length
        if turn % (rounds // SHOWN + 1) == 0 and turn < rounds - 1:
            yield (turn + 1) / rounds, total / max(1, done)
    yield 1.0, ranks.total(total) / characters_read(len(ids) - 1, model.config.block_size, most)


def window_starts(total: int, block: int, most: int = 0) -> list[tuple[npt.NDArray[np.int64], int]]:
    """The start and length of each window; all its characters but the first are predicted.

    The windows cover the whole split (`total` characters after the first), or as many of them as
    `most` allows, evenly distributed. Pure, so that all evaluations of a run read the same windows.
    """
    read, every = characters_read(total, block, most), total // block
    if read == total:
        starts = np.arange(every, dtype=np.int64) * block
        return [(starts, block)] * (every > 0) + [
            (np.array([every * block], dtype=np.int64), total % block)
        ] * (total % block > 0)
    count, length = (read // block, block) if read >= block else (1, read)
    chosen = (2 * np.arange(count, dtype=np.int64) + 1) * max(1, every) // (2 * count)
    return [(chosen * block, length)]
