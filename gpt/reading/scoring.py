"""How well a model predicts a text: its loss, by the protocol that training evaluates with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpt.config import ModelConfig
from gpt.reading.reader import Array, Reader
from gpt.vocabulary import Ids

NUMBERS_AT_ONCE = 2**22  # logits or attention weights held while scoring


@dataclass(frozen=True)
class Score:
    """nats: mean per character; characters: how many were predicted."""

    nats: float
    characters: int

    @property
    def bits(self) -> float:
        """Bits per character."""
        return self.nats / math.log(2)

    @property
    def perplexity(self) -> float:
        """e to the nats: among how many equally likely characters the model hesitates."""
        return math.exp(self.nats)


def score(reader: Reader, ids: Ids) -> Score:
    """The loss over (n,) ids, n ≥ 2, in non-overlapping windows of block_size.

    The first character is context only; the last window may be shorter.
    """
    config, targets = reader.config, len(ids) - 1
    block = config.block_size
    rows = windows_at_once(config)
    total = 0.0
    for first in range(0, targets, rows * block):
        last = min(targets, first + rows * block)
        whole = (last - first) // block * block
        for start, end in ((first, first + whole), (first + whole, last)):
            if end > start:
                width = min(block, end - start)
                inputs = np.asarray(ids[start:end]).reshape(-1, width)
                expected = np.asarray(ids[start + 1 : end + 1]).reshape(-1, width)
                losses = surprises(reader.logits(reader.forward(inputs)), expected)
                total += float(losses.sum(dtype=np.float64))
    return Score(total / targets, targets)


def windows_at_once(config: ModelConfig) -> int:
    """How many windows of block_size one forward may take, for the memory that it needs."""
    widest = max(config.vocab_size, 4 * config.n_embd, config.n_head * config.block_size)
    return max(1, NUMBERS_AT_ONCE // (config.block_size * widest))


def surprises(logits: Array, expected: Ids) -> Array:
    """(…, vocab_size) logits and (…) ids -> (…) −ln p(id), in nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, expected[..., None].astype(np.int64), axis=-1)[..., 0]
    return normaliser - chosen  # type: ignore[no-any-return]
