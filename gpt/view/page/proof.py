"""What a page proves when it opens: that it computes numpy's logits with the weights in its file.

The logits are those of the weights as the file stores them. If it stores float16, the record also
says how far the logits may be from those of the unrounded model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.heads.proof import promised
from gpt.reading.gpt import Reader
from gpt.reading.score import windows_at_once
from gpt.storage.model_file import StoredModel, pick
from gpt.view.page.packing import Bits, in_base64
from gpt.view.page.shipping import fitting, rounded
from gpt.vocabulary import Ids

LOGITS = 8  # of each position
LONGEST = 32  # characters of a random text that the page proves
FEWEST, MOST = 2, 8  # of these texts; more than FEWEST if the probe lacks characters
#: The page, too, computes with float32. Its error may be PAGE times numpy's, and is at most
#: ORDINARY where that is less.
PAGE, ORDINARY = 4, 1e-4
SAMPLED = 64  # random texts that show what rounding the weights does to logits
WINDOW = 256  # most characters of one of them
#: The stated bound, as a multiple of the largest difference that these texts show.
SAFETY = 4


def proof_record(stored: StoredModel, bits: Bits) -> dict[str, Any]:
    """Texts as ids, with K logits of each position; tolerance: by how much the page's logits may
    differ from these; rounding: how far float16 moves the logits, None for float32.

    Position p has the logits of K characters from p·K on, where the first follows the last. The
    texts are the model's probe and random ones; together they have every character, unless the
    vocabulary is very large.
    """
    bits = fitting(stored.tensors, bits)
    weights = rounded(stored.tensors, bits)
    reader = Reader(stored.config, weights)
    exact = Reader(stored.config, {name: each.astype(np.float64) for name, each in weights.items()})
    kept = min(LOGITS, stored.config.vocab_size)
    texts, tolerance = [], 0.0
    for ids in (stored.probe.ids, _random_texts(stored)):
        logits = exact.logits(exact.forward(ids))
        error = float(np.abs(reader.logits(reader.forward(ids)) - logits).max())
        bound = promised(reader, ids, logits, PAGE * error)
        tolerance = max(tolerance, bound if PAGE * error > ORDINARY else min(bound, ORDINARY))
        for row, expected in zip(ids, logits, strict=True):
            numbers = pick(expected[None], kept).astype("<f4")
            texts.append({"ids": row.tolist(), "logits": in_base64(numbers)})
    return {
        "texts": texts,
        "kept": kept,
        "tolerance": tolerance,
        "rounding": rounding(stored, reader) if bits == 16 else None,
    }


def rounding(stored: StoredModel, reader: Reader) -> float:
    """SAFETY times the largest difference between the logits of the stored weights and a reader's.

    On the probe and SAMPLED random texts, as long as the context or WINDOW.
    """
    exact, largest = Reader(stored.config, stored.tensors), 0.0
    length, random = min(stored.config.block_size, WINDOW), np.random.default_rng(7)
    sampled = random.integers(stored.config.vocab_size, size=(SAMPLED, length))
    for ids in (stored.probe.ids, *_batches(stored, sampled)):
        moved = reader.logits(reader.forward(ids)) - exact.logits(exact.forward(ids))
        largest = max(largest, float(np.abs(moved).max()))
    return SAFETY * largest


def _batches(stored: StoredModel, ids: Ids) -> Iterator[Ids]:
    """(N, T) ids, as many rows at once as memory allows."""
    size = windows_at_once(stored.config)
    for first in range(0, len(ids), size):
        yield ids[first : first + size]


def _random_texts(stored: StoredModel) -> npt.NDArray[np.int64]:
    """(R, T) ids: the characters that the probe lacks, in a random order, then random ones."""
    random, size = np.random.default_rng(6), stored.config.vocab_size
    length = min(stored.config.block_size, LONGEST)
    missing = random.permutation(np.setdiff1d(np.arange(size), stored.probe.ids))
    rows = min(max(-(-len(missing) // length), FEWEST), MOST)
    ids = np.concatenate((missing, random.integers(size, size=rows * length)))
    return ids[: rows * length].reshape(rows, length)
