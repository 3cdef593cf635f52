"""Targets that a model with an encoder writes for sources: greedy.

A decoder reads FIRST, then the target so far; a target ends before LAST.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt.reading.gpt import Reader
from gpt.reading.plain_decode import PlainDecoder
from gpt.reading.stages import Memory
from gpt.vocabulary import Ids

#: The characters before a target and after it: those between and after the sides of a pair.
FIRST, LAST = "\t", "\n"


def encoded(reader: Reader, sources: Sequence[Ids]) -> Memory:
    """B sources of (S,) ids each, S ≥ 1 -> what cross-attention reads for them."""
    lengths = np.array([len(source) for source in sources])
    seen = np.arange(lengths.max()) < lengths[:, None]  # (B, S)
    ids = np.zeros(seen.shape, np.int64)
    ids[seen] = np.concatenate(sources)
    return reader.encode(ids, None if seen.all() else seen)


def greedy(reader: Reader, sources: Sequence[Ids], first: int, last: int) -> list[Ids]:
    """The likeliest next characters, one after the other, for B sources -> B targets.

    first, last: ids of FIRST and LAST. A target has at most block_size − 1 characters.
    """
    decoder, B = PlainDecoder(reader), len(sources)
    logits = decoder.start(np.full((B, 1), first), encoded(reader, sources))
    rows: list[Ids] = []
    done = np.zeros(B, np.bool_)
    while len(rows) < reader.config.block_size - 1:
        ids = logits.argmax(axis=-1)
        done |= ids == last
        if done.all():
            break
        rows.append(ids)
        logits = decoder.step(ids)
    written = np.array([*rows, np.full(B, last)], np.int64).T  # (B, T + 1)
    return [row[: (row == last).argmax()] for row in written]
