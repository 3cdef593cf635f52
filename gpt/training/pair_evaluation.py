"""Validation loss of a model with an encoder: nats per target character, over a whole split."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from gpt.config import ModelConfig
from gpt.corpus.pair_batches import IGNORED, PairLines, padded
from gpt.corpus.pairs import Integers
from gpt.model import GPT
from gpt.training.device_batches import on_device
from gpt.training.distributed import ONE, Ranks

NUMBERS_AT_ONCE = 2**21  # in the widest layer


@torch.no_grad()
def pair_loss(model: GPT, split: PairLines, device: str, ranks: Ranks = ONE) -> float:
    """Mean nats per target character, the NEWLINE of each included. No dropout, float32.

    Lines of similar lengths are computed together. The ranks share the batches; all get the result.
    """
    batches = _batches(split, model.config)
    was_training, total = model.training, 0.0
    model.eval()
    for turn in range(-(-len(batches) // ranks.size)):
        number = turn * ranks.size + ranks.rank
        # All ranks must call a sharded model: a rank without a batch computes the last one again.
        lines = batches[min(number, len(batches) - 1)]
        given, targets = on_device(padded(split.pairs, lines), device)
        logits = model(**given)  # (b, T, vocab_size)
        losses = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        total += float(losses) if number < len(batches) else 0.0
    model.train(was_training)
    return ranks.total(total) / split.characters


def _batches(split: PairLines, config: ModelConfig) -> list[Integers]:
    """The lines, shortest first, in batches whose widest layer has at most NUMBERS_AT_ONCE."""
    pairs, lines = split.pairs, split.lines
    lengths = np.maximum(pairs.source_lengths[lines], pairs.target_lengths[lines])
    ordered = lines[np.lexsort((pairs.source_lengths[lines], lengths))]
    size = max(1, NUMBERS_AT_ONCE // (int(lengths.max()) * max(config.widened, config.vocab_size)))
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]
