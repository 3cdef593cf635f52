"""The corpus "repeats", words of random letters that are repeated, and its training options.

To predict a repeated word, a model must find the letter that followed the same letter before. So it
learns a previous-character head and an induction head (Olsson et al. 2022) within a minute. Words
differ in length; otherwise a head that looks back a fixed distance would suffice. Letters are drawn
independently: if all letters of a word were different, a model could also learn which ones are
left. Half of the lines have no spaces; with a space before every word, models learn to count from
it instead (benchmarks/LOG.md).
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np

SEED = 1
LINES = 10_000
LENGTHS = range(3, 17)  # letters in a word
TIMES = 4  # occurrences of the word in its line

#: Training options that override the default preset. Every option that the heads depend on is here,
#: so that new defaults cannot change the result (benchmarks/repeats.py).
RECIPE: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 64,
    "block_size": 64,
    "position": "rotary",
    "dropout": 0.0,
    "previous_heads": 0,
    "counting": 0,
    "batch_size": 32,
    "steps": 800,
    "learning_rate": 2e-3,
    "matrix_lr": 0.0,
    "weight_decay": 0.1,
    "precision": "float32",
    "embedding_lr": 1e-2,
    "warmup_steps": 20,
}


def repeats() -> bytes:
    """The text, made from raw draws of Philox (Salmon et al. 2011), so every release of numpy gives
    the same.
    """
    alphabet = string.ascii_lowercase
    draws = np.random.Philox(key=SEED).random_raw(LINES * (max(LENGTHS) + 2)).reshape(LINES, -1)
    lengths, spaced = draws[:, -2] % len(LENGTHS), draws[:, -1] % 2
    lines = []
    for letters, length, space in zip(draws % len(alphabet), lengths, spaced.tolist(), strict=True):
        word = "".join(alphabet[n] for n in letters[: LENGTHS[length]])
        lines.append((" " * space).join([word] * TIMES) + "\n")
    return "".join(lines).encode()
