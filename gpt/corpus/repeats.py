"""The corpus "repeats", words of random letters that are repeated, and its training options.

To predict a repeated word, a model must find the letter that followed the same letter before. So it
learns a previous-character head and an induction head (Olsson et al. 2022) within a minute. Words
differ in length, as otherwise a head at a fixed distance would suffice. Half of the lines have no
spaces: if spaces mark every beginning, models learn to count from them instead (benchmarks/LOG.md).
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np

SEED = 1
LINES = 10_000
LENGTHS = range(3, 17)  # letters of a word, all different, so that a letter determines its position
TIMES = 4  # occurrences of the word in its line

#: Training options that override the default preset. Every option that the heads depend on is here,
#: so that new defaults cannot change the result (benchmarks/repeats.py).
RECIPE: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 64,
    "block_size": 64,
    "position": "rotary",
    "norm": "layer",
    "qk_norm": False,
    "dropout": 0.0,
    "previous_heads": 0,
    "counting": 0,
    "batch_size": 32,
    "steps": 800,
    "learning_rate": 2e-3,
    "embedding_lr": 1e-2,
    "warmup_steps": 20,
}


def repeats() -> bytes:
    """The text, from raw draws of Philox (Salmon et al. 2011), equal in every release of numpy."""
    letters = len(string.ascii_lowercase)
    draws = np.random.Philox(key=SEED).random_raw(LINES * (letters + 2)).reshape(LINES, -1)
    orders = draws[:, :letters].argsort(axis=1, kind="stable")  # one permutation per line
    lengths, spaced = draws[:, letters] % len(LENGTHS), draws[:, letters + 1] % 2
    lines = []
    for order, length, space in zip(orders, lengths.tolist(), spaced.tolist(), strict=True):
        word = "".join(string.ascii_lowercase[n] for n in order[: LENGTHS[length]])
        lines.append((" " * space).join([word] * TIMES) + "\n")
    return "".join(lines).encode()
