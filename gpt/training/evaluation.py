"""Validation loss on torch: every character of a split, once."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from gpt.model import GPT
from gpt.training.ranks import ONE, Ranks
from gpt.vocabulary import Ids

NUMBERS_AT_ONCE = {"cpu": 2**20}  # in the widest layer; more would not fit a CPU's cache
NUMBERS_ELSEWHERE = 2**23


@torch.no_grad()
def evaluate(model: GPT, ids: Ids, device: str, ranks: Ranks = ONE) -> float:
    """Mean nats per character over `ids` in non-overlapping windows of block_size.

    The first character is context only; the last window may be shorter. No dropout, float32. The
    ranks share the windows; all know the result.
    """
    block, vocab = model.config.block_size, model.config.vocab_size
    targets = len(ids) - 1
    whole = targets // block
    most = NUMBERS_AT_ONCE.get(device, NUMBERS_ELSEWHERE)
    rows = max(1, most // (block * max(vocab, 4 * model.config.n_embd)))
    spans = [(first * block, min(rows, whole - first), block) for first in range(0, whole, rows)]
    if targets % block:
        spans.append((whole * block, 1, targets % block))
    was_training, total = model.training, 0.0
    model.eval()
    for number in range(ranks.rank, -(-len(spans) // ranks.size) * ranks.size, ranks.size):
        # A sharded model answers only when all ranks ask: who has no span left takes one again.
        start, count, length = spans[min(number, len(spans) - 1)]
        inputs = _windows(ids, start, count, length).to(device)
        expected = _windows(ids, start + 1, count, length).to(device)
        losses = F.cross_entropy(model(inputs).flatten(0, 1), expected.flatten(), reduction="sum")
        total += float(losses) if number < len(spans) else 0.0
    model.train(was_training)
    return ranks.total(total)[0] / targets


def _windows(ids: Ids, start: int, count: int, length: int) -> torch.Tensor:
    """(count, length) consecutive windows as int64."""
    part = np.asarray(ids[start : start + count * length]).astype(np.int64)
    return torch.from_numpy(part.reshape(count, length))
