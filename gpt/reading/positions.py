"""Adds positions in a trained model: gpt/model/positions.py in numpy.

All kinds inherit the two methods of Position; all but "none" override one of them. Their constants
are computed for the positions of a text, not for the whole context, because a small file may
declare a context of a million characters. Tensor names: B batch, T time, C n_embd, H heads, D
head_size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import read_only
from gpt.config import ModelConfig

Array = npt.NDArray[Any]  # real or complex

FIRST_ROWS = 512  # rows of the smallest table


class Position:
    """No positions; base of the other kinds. at: the positions of a method's arguments.

    Tables have a row for each position, and are kept: FIRST_ROWS rows, or the power of two above
    the number that is needed, so that a growing text seldom needs another table.
    """

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Array], dtype: np.dtype[Any]
    ) -> None:
        self.config, self.tensors, self.dtype = config, tensors, dtype
        self._kept = self._factors = np.empty(0)

    def embed(self, x: Array, at: slice) -> Array:
        """(B, T, C) -> (B, T, C): embeddings, to which positions may be added."""
        return x

    def rotate(self, queries: Array, keys: Array, at: slice) -> tuple[Array, Array]:
        """Two (B, H, T, D) -> two (B, H, T, D)"""
        return queries, keys

    def factors(self, end: int) -> Array:
        """Factors by which the decoder multiplies all heads' queries, then keys: `rotate` and 1/√D.

        `end` rows or more of (2C,), or of (C,) complex if coordinates 2d and 2d + 1 form one
        number.
        """
        found = self._factors  # another thread may replace the attribute
        if len(found) < end:
            rows = self._rows_for(end)
            both = np.tile(self._turns(rows)[:, None], (1, 2, self.config.n_head))
            both[:, 0] *= self.dtype.type(self.config.head_size**-0.5)
            found = self._factors = read_only(both.reshape(rows, -1))
        return found

    def _turns(self, rows: int) -> Array:
        """(rows, D), or (rows, D/2) complex: the factors of a head's coordinates in `rotate`."""
        return np.ones((rows, self.config.head_size), self.dtype)

    def _table(self, end: int) -> Array:
        """The first `end` rows of this kind's constants; may have more rows."""
        found = self._kept
        if len(found) < end:
            found = self._kept = read_only(self._rows(self._rows_for(end)))
        return found

    def _rows_for(self, end: int) -> int:
        """How many rows to compute if `end` are needed."""
        return min(self.config.block_size, max(FIRST_ROWS, 1 << end.bit_length()))

    def _rows(self, rows: int) -> Array:
        """Computes the first rows of this kind's constants."""
        raise NotImplementedError


class Learned(Position):
    """A trained vector for each of the block_size positions, added (GPT-2)."""

    def embed(self, x: Array, at: slice) -> Array:
        added: Array = x + self.tensors["position.weight"][at]
        return added


class Sinusoidal(Position):
    """Fixed sines and cosines, added (Vaswani et al. 2017)."""

    def _rows(self, rows: int) -> Array:
        columns = np.arange(self.config.n_embd)
        rates = 10_000.0 ** (-(columns - columns % 2) / self.config.n_embd)
        angles = np.outer(np.arange(rows), rates)  # (rows, C)
        waves: Array = np.where(columns % 2, np.cos(angles), np.sin(angles))
        return waves.astype(self.dtype)

    def embed(self, x: Array, at: slice) -> Array:
        added: Array = x + self._table(at.stop)[at]
        return added


class Rotary(Position):
    """Rotates queries and keys by an angle that grows with the position (Su et al. 2021)."""

    def _rows(self, rows: int) -> Array:
        half = self.config.head_size // 2
        angles = np.outer(np.arange(rows), 10_000.0 ** (-np.arange(half) / half))  # (rows, D/2)
        return np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(self.dtype)

    def rotate(self, queries: Array, keys: Array, at: slice) -> tuple[Array, Array]:
        cosines, sines = self._table(at.stop)[at].swapaxes(0, 1)  # two (T, D/2)
        return _turn(queries, cosines, sines), _turn(keys, cosines, sines)

    def _turns(self, rows: int) -> Array:
        turns = self._table(rows)[:rows]
        return turns[:, 0] + 1j * turns[:, 1]


def _turn(x: Array, cosines: Array, sines: Array) -> Array:
    """(B, H, T, D): rotates coordinates 2d and 2d + 1 by each position's angles."""
    even, odd = x[..., ::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., ::2] = even * cosines - odd * sines
    turned[..., 1::2] = even * sines + odd * cosines
    return turned


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
}
