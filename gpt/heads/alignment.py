"""Aligns pieces of a source with pieces of its target, by the weights of cross-attention.

Tensor names: N heads, T characters of the target, S characters of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unicodedata import category

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Note, Paragraph, format_number
from gpt.reading.layers import Array
from gpt.vocabulary import Symbols, join_symbols

MODIFIES = {"Lm", "Mn", "Mc"}  # categories of letters and marks that modify the one before


@dataclass(frozen=True)
class Alignment:
    """The pieces of a source and of its target, by the head that aligns them best.

    pieces: (source, target), in order; joined, they are the two texts. aligned: see `alignments`;
    uniform: the same for a head of uniform attention; monotone: see `correlations`.
    """

    layer: int
    head: int
    aligned: float
    uniform: float
    monotone: float
    pieces: tuple[tuple[Symbols, Symbols], ...]

    def blocks(self) -> list[Block]:
        """The pieces, and the head that aligns them."""
        values = [f"aligned {format_number(self.aligned)} (uniform {format_number(self.uniform)})"]
        values += [f"monotone {format_number(self.monotone)}"]
        from gpt.characters import labels  # imports rich

        pieces = "  ".join("–".join(map(labels, pair)) for pair in self.pieces)
        where = f"source–target by layer {self.layer} head {self.head}, which aligns them best"
        return [Paragraph(pieces, "strong"), Note(" · ".join([where, *values]))]

    @property
    def record(self) -> dict[str, Any]:
        """The alignment for programs."""
        pieces = [{"source": join_symbols(s), "target": join_symbols(t)} for s, t in self.pieces]
        return {**vars(self), "pieces": pieces}


def align(weights: Array, source: Symbols, target: Symbols) -> Alignment | None:
    """The alignment by the head with the largest `alignments`; None without a target.

    weights: (L, H, T, S), a row for each character of the target.
    """
    if not target:
        return None
    heads = weights.reshape(-1, *weights.shape[2:])
    values = alignments(heads)
    best = int(values.argmax())
    layer, head = divmod(best, weights.shape[1])
    monotone = float(correlations(heads[best : best + 1])[0])
    pieces = tuple(_pieces(heads[best], source, target))
    return Alignment(layer, head, float(values[best]), 1 / len(source), monotone, pieces)


def alignments(weights: Array) -> npt.NDArray[np.float64]:
    """(N, T, S) -> (N,) the largest total weight of pairs of a row and a column that never cross,
    where each row and column is in one pair at most; divided by the largest number of pairs, min(T,
    S).

    It is 1 for a head that goes through the source step by step, as hard monotonic attention does
    (Raffel et al. 2017), and 1/S for a uniform head. The pairs are found as by Needleman & Wunsch
    (1970).
    """
    return _totals(weights)[:, -1, -1] / min(weights.shape[1:])  # type: ignore[no-any-return]


def _totals(weights: Array) -> npt.NDArray[np.float64]:
    """(N, T + 1, S + 1) the same total within the first rows and columns."""
    N, T, S = weights.shape
    totals = np.zeros((N, T + 1, S + 1))
    for row in range(T):
        paired = np.maximum(totals[:, row, 1:], totals[:, row, :-1] + weights[:, row])
        totals[:, row + 1, 1:] = np.maximum.accumulate(paired, axis=1)
    return totals


def _pieces(weights: Array, source: Symbols, target: Symbols) -> list[tuple[Symbols, Symbols]]:
    """The texts between cuts. The pairs of a row and a column with the most weight above a uniform
    head's never cross; each is a piece. A character between two pairs joins the neighbour with
    which it has more weight; a mark, or a letter that modifies, joins the one before.
    """
    above = weights - 1 / len(source)
    totals = _totals(above[None])[0]
    i, j = weights.shape
    pairs = list[tuple[int, int]]()
    while i and j:
        if totals[i, j] == totals[i - 1, j - 1] + above[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs.insert(0, (i, j))
        elif totals[i, j] == totals[i - 1, j]:
            i -= 1
        else:
            j -= 1
    cuts = [(0, 0)]
    for (t, s), (t2, s2) in pairwise(pairs):
        rows, columns = slice(t + 1, t2), slice(s + 1, s2)
        row = t + 1 + _first_of_next(target[rows], above[rows, s], above[rows, s2])
        column = s + 1 + _first_of_next(source[columns], above[t, columns], above[t2, columns])
        if not {category(target[row][0]), category(source[column][0])} & MODIFIES:
            cuts.append((row, column))
    cuts.append((len(target), len(source)))
    return [(source[s:s2], target[t:t2]) for (t, s), (t2, s2) in pairwise(cuts)]


def _first_of_next(text: Symbols, before: Array, after: Array) -> int:
    """How many of the characters between two pairs belong to the first pair."""
    count = int(np.concatenate([[0], np.cumsum(before - after)]).argmax())
    while count < len(text) and category(text[count][0]) in MODIFIES:
        count += 1
    return count


def correlations(weights: Array) -> npt.NDArray[np.float64]:
    """(N, T, S) -> (N,) Pearson's correlation of row and column number. Every row has the same
    probability; within a row, columns have the probability of their weights. 0 with one row, or one
    column in use.
    """
    weights = weights.astype(np.float64)
    T, S = weights.shape[1:]
    row, column = np.arange(T) - (T - 1) / 2, np.arange(S)
    of_columns = weights.mean(axis=1)  # (N, S) probability of each column
    away = column - (of_columns @ column)[:, None]  # (N, S) distance from the mean column
    spread = (of_columns * away**2).sum(axis=-1)
    together = np.einsum("nts,t,ns->n", weights, row, away) / T
    moved = (spread > 1e-12) & (T > 1)
    scale = np.sqrt(np.where(moved, spread * (row**2).mean(), 1.0))
    found: npt.NDArray[np.float64] = np.where(moved, together / scale, 0.0)
    return np.where(np.abs(found) < 1e-12, 0.0, found)  # a uniform head has rounding errors only
