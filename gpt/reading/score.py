"""How well a model predicts a text: its loss, by the protocol that training evaluates with.

That protocol's windows do not overlap, so the first characters of each have little or no context.
It is fair between models, but not between characters; so the surprises of single characters can
also come from windows that overlap by half: each character with the context that the sampler would
have for it (sampler.window_start).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.checks import Result
from gpt.config import ModelConfig
from gpt.errors import TextError
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
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
        """e to the nats: the number of equally likely characters with the same loss."""
        return math.exp(self.nats)


@dataclass(frozen=True)
class Surprises(Result):
    """Of each of the (n − 1,) characters after the first: −ln of its probability in nats, the
    likeliest id, and the probability of that id.
    """

    nats: Array
    likeliest: npt.NDArray[np.int64]
    chances: Array

    @property
    def score(self) -> Score:
        """Their mean."""
        return Score(float(self.nats.mean(dtype=np.float64)), len(self.nats))


def score(reader: Reader, ids: Ids) -> Score:
    """The loss over (n,) ids in non-overlapping windows of block_size.

    The first character is context only; the last window may be shorter. Raises TextError if n < 2.
    """
    total = 0.0
    for logits, expected in _windows(reader, ids):
        total += float(surprises(logits, expected).sum(dtype=np.float64))
    return Score(total / (len(ids) - 1), len(ids) - 1)


def surprise_of_each(reader: Reader, ids: Ids, *, overlapping: bool = False) -> Surprises:
    """As `score`, for each character. Raises TextError for fewer than two.

    overlapping: each character with at least half of block_size before it, where the text has it.
    """
    nats, likeliest, chances = [], [], []
    for logits, expected in _windows(reader, ids, overlapping):
        most = logits.argmax(axis=-1)
        nats.append(surprises(logits, expected).ravel())
        likeliest.append(most.ravel())
        chances.append(np.exp(-surprises(logits, most)).ravel())
    return Surprises(np.concatenate(nats), np.concatenate(likeliest), np.concatenate(chances))


def _windows(reader: Reader, ids: Ids, overlapping: bool = False) -> Iterator[tuple[Array, Ids]]:
    """Logits and the ids that came, (B, T, vocab_size) and (B, T), in the text's order.

    overlapping: windows begin half of one apart, and only the second half of each counts.
    """
    if len(ids) < 2:
        raise TextError("the text is too short to score: it needs two characters")
    block, targets = reader.config.block_size, len(ids) - 1
    told = max(1, block // 2) if overlapping else block  # last characters of a window that count
    before = min(block - told, targets)
    if before:
        yield reader.logits(reader.forward(ids[None, :before])), ids[None, 1 : before + 1]
    starts = np.arange(before, targets, told)
    rows, whole = windows_at_once(reader.config), (targets - before) // told
    for group in np.split(starts, [*range(rows, whole, rows), whole]):  # the last one is shorter
        if len(group):
            places = group[:, None] + np.arange(-before, min(told, targets - group[0]))
            x = reader.forward(ids[places])[:, before:]
            yield reader.logits(x), ids[places[:, before:] + 1]


def windows_at_once(config: ModelConfig) -> int:
    """How many windows of block_size one forward may take, for the memory that it needs."""
    widest = max(config.vocab_size, config.widened, config.n_head * config.block_size)
    return max(1, NUMBERS_AT_ONCE // (config.block_size * widest))


def surprises(logits: Array, expected: Ids) -> Array:
    """(…, vocab_size) logits and (…) ids -> (…) −ln p(id), in nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, expected[..., None].astype(np.int64), axis=-1)[..., 0]
    return normaliser - chosen  # type: ignore[no-any-return]
