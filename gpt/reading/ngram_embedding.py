"""Embeddings of the last 2, 3 … characters, which models of earlier releases add to a character's.

One table has the rows of all orders (hashed n-gram embeddings: Svenstrup et al. 2017, Clark et al.
2022). If all n-grams of an order fit its part of the table, each has its own row; else a hash
selects the row, and some n-grams share one. Only numpy computes these embeddings, and nothing
trains them any more. Tensor names: B batch, T time, N orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig

MULTIPLIER, MODULUS = 1_000_003, 2**31 - 1  # of the hash, whose products fit in 63 bits


def ngram_rows(
    config: ModelConfig, ids: npt.NDArray[Any], new: int | None = None
) -> npt.NDArray[np.int64]:
    """(B, T) ids -> (B, new, N) rows of the n-gram table, for the orders 2 … N + 1 and the last
    `new` characters, or all. A row is a polynomial in the characters' codes (id + 1; 0 before the
    text), the last one first. Its base is the number of codes if each n-gram has its own row; else
    MULTIPLIER, a hash.
    """
    new, reach = new or ids.shape[1], config.ngram - 1
    codes = ids[:, -new - reach :].astype(np.int64) + 1
    if codes.shape[1] < new + reach:
        codes = np.pad(codes, ((0, 0), (new + reach - codes.shape[1], 0)))
    back = [codes[:, reach - n :][:, :new] for n in range(reach + 1)]  # each (B, new)
    firsts, kinds = np.cumsum([0, *config.ngram_tables]), config.vocab_size + 1
    row, used = back[0], 0
    rows = np.empty((len(ids), new, reach), np.int64)
    for n, table in enumerate(config.ngram_tables):
        base = kinds if kinds ** (n + 2) <= table else MULTIPLIER
        row, more = (row, back[n + 1 : n + 2]) if base == used else (back[0], back[1 : n + 2])
        for code in more:
            row = (row * base + code) % MODULUS
        rows[..., n], used = row % table + firsts[n], base
    return rows
