"""The reader's positions: the counterpart of gpt/model/positions.py, in numpy.

The constants are computed as far as a text reaches, not for the whole context: a small file may
name a context of a million characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig

Array = npt.NDArray[Any]

FIRST_ROWS = 512  # of a table, when it is computed for the first time


class Table:
    """Constants with a row for each position, computed as far as they have been asked for.

    make: from a number n of rows to the table's first n rows, (n, …).
    """

    def __init__(self, make: Callable[[int], Array], most: int) -> None:
        self._make, self._most = make, most
        self._rows: Array | None = None

    def __call__(self, end: int) -> Array:
        """(n, …), n ≥ end: at least the rows of the first `end` positions."""
        rows = self._rows  # read once: another thread may put a longer table in its place
        if rows is None or len(rows) < end:
            rows = self._make(min(self._most, max(FIRST_ROWS, 2 * end)))
            rows.flags.writeable = False
            self._rows = rows
        return rows


def added_positions(
    config: ModelConfig, tensors: Mapping[str, Array], dtype: np.dtype[Any]
) -> Table | None:
    """Rows (C,) that are added to the embeddings, if any are."""
    if config.position == "learned":
        return Table(lambda _: tensors["position.weight"].view(), config.block_size)
    if config.position == "sinusoidal":
        columns = np.arange(config.n_embd)
        rates = 10_000.0 ** (-(columns - columns % 2) / config.n_embd)

        def waves(rows: int) -> Array:
            angles = np.outer(np.arange(rows), rates)  # (rows, C)
            table: Array = np.where(columns % 2, np.cos(angles), np.sin(angles)).astype(dtype)
            return table

        return Table(waves, config.block_size)
    return None


def rotary_positions(config: ModelConfig, dtype: np.dtype[Any]) -> Table | None:
    """Rows (2, D/2), the cosines and sines that queries and keys turn by, if they do."""
    if config.position != "rotary":
        return None
    half = config.head_size // 2
    frequencies = 10_000.0 ** (-np.arange(half) / half)

    def turns(rows: int) -> Array:
        angles = np.outer(np.arange(rows), frequencies)
        return np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(dtype)

    return Table(turns, config.block_size)
