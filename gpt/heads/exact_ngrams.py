"""The rows of the n-gram table for a text, computed in the simplest way.

Checks the rows that the reader looks up. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.vocabulary import Ids

HASH, MODULUS = 1_000_003, 2**31 - 1


@dataclass(frozen=True)
class Order:
    """The table for the last `order` characters: its base, number of rows, and first row.

    Codes are ids + 1, and 0 before the text: numbers, or arrays of the codes of many places.
    """

    order: int
    base: int
    rows: int
    first: int

    def row(self, codes: Sequence[int] | Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """`order` codes -> a row of the whole table."""
        total = np.asarray(codes[-1], np.int64)
        for code in codes[-2 : -self.order - 1 : -1]:
            total = (total * self.base + code) % MODULUS
        return total % self.rows + self.first


def gram_orders(config: ModelConfig) -> list[Order]:
    """Tables for the last 2, 3 … N characters, stored one after the other."""
    kinds, first, orders = config.vocab_size + 1, 0, []
    for order, rows in enumerate(config.ngram_tables, start=2):
        orders.append(Order(order, kinds if kinds**order <= rows else HASH, rows, first))
        first += rows
    return orders


def gram_rows(config: ModelConfig, ids: Ids) -> npt.NDArray[np.int64]:
    """(T,) ids -> (T, N) rows of the n-gram table."""
    T, reach = len(ids), config.ngram - 1
    codes = np.concatenate((np.zeros(reach, np.int64), np.asarray(ids, np.int64) + 1))
    back = [codes[reach - n : reach - n + T] for n in range(reach, -1, -1)]  # oldest first
    return np.stack([order.row(back) for order in gram_orders(config)], axis=-1)
