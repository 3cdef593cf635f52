"""Validation loss with torch: on a split, or on evenly spread windows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from gpt.config import ModelConfig
from gpt.counting.mixture import Mixture
from gpt.model import GPT
from gpt.storage.manifest import characters_read
from gpt.training import ranks
from gpt.vocabulary import Ids

NUMBERS_AT_ONCE = {"cpu": 2**20}  # numbers in the widest layer; more would not fit a CPU's cache
NUMBERS_ELSEWHERE = 2**23
SHOWN = 50  # progress reports of a long evaluation

#: Windows: their starts and their length.
Span: TypeAlias = tuple[npt.NDArray[np.int64], int]


@dataclass(frozen=True)
class Losses:
    """Mean nats per character. gpt: the loss of the GPT alone, if counting predicts with it."""

    nats: float
    gpt: float | None = None


def evaluate(
    model: GPT, ids: Ids, device: str, most: int = 0, mixture: Mixture | None = None
) -> Losses:
    """The losses that `evaluate_with_progress` yields at its end."""
    *_, losses = evaluate_with_progress(model, ids, device, most, mixture)
    assert isinstance(losses, Losses)
    return losses


def evaluate_with_progress(
    model: GPT, ids: Ids, device: str, most: int = 0, mixture: Mixture | None = None
) -> Iterator[float | Losses]:
    """Computes the losses over ids, of which the first is context only, in windows of block_size
    that do not overlap. Yields the share that is done, at the end the losses.

    most: how many characters to predict, in evenly spread windows of the split; 0: all. No dropout,
    float32. The ranks share the windows; all get the result and yield equally often.
    """
    block_size, gpt, together = model.config.block_size, 0.0, 0.0
    rows = windows_together(model.config, device)
    spans = [
        (starts[first : first + rows], length)
        for starts, length in window_starts(len(ids) - 1, block_size, most)
        for first in range(0, len(starts), rows)
    ]
    rounds = -(-len(spans) // ranks.world_size())
    for turn in range(rounds):
        number = turn * ranks.world_size() + ranks.rank()
        if number < len(spans):  # in the last round, a rank may have no span left
            span = spans[number]
            logits, came = predict_span(model, ids, span, device)
            gpt += float(F.cross_entropy(logits, came, reduction="sum"))
            if mixture is not None:
                histories = mixture.expert.trie.histories_at(ids, span[0] + 1, span[1])
                losses = mixture.losses(logits.cpu().numpy(), histories, came.cpu().numpy())
                together += float(losses.sum())
        if turn % (rounds // SHOWN + 1) == 0 and turn < rounds - 1:
            yield (turn + 1) / rounds
    read = characters_read(len(ids) - 1, block_size, most)
    alone = ranks.sum_over_ranks(gpt) / read
    if mixture is None:
        yield Losses(alone)
    else:
        yield Losses(ranks.sum_over_ranks(together) / read, alone)


def windows_together(config: ModelConfig, device: str) -> int:
    """How many windows are evaluated together."""
    most = NUMBERS_AT_ONCE.get(device, NUMBERS_ELSEWHERE)
    return max(1, most // (config.block_size * config.widest_layer))


def window_starts(total: int, block: int, most: int = 0) -> list[Span]:
    """The starts and the length of windows, each predicted from its second character on: all of a
    split (`total` characters after the first one) or, if `most` allows fewer, evenly spread ones.
    """
    read, whole = characters_read(total, block, most), total // block
    if read == total:
        spans = [
            (np.arange(whole, dtype=np.int64) * block, block),
            (np.array([whole * block], dtype=np.int64), total % block),
        ]
        return [(starts, length) for starts, length in spans if len(starts) and length]
    count, length = (read // block, block) if read >= block else (1, read)
    spread = (2 * np.arange(count, dtype=np.int64) + 1) * max(1, whole) // (2 * count)
    return [(spread * block, length)]


@torch.no_grad()
def predict_span(
    model: GPT, ids: Ids, span: Span, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(b · T, vocab_size) logits of b windows without dropout, and the ids that follow."""
    starts, length = span
    rows = np.asarray(ids[starts[:, None] + np.arange(length + 1)]).astype(np.int64)
    windows = torch.from_numpy(rows).to(device)
    was_training = model.training
    model.eval()
    logits = model(windows[:, :-1])  # (b, T, vocab_size)
    model.train(was_training)
    return logits.flatten(0, 1), windows[:, 1:].flatten()
