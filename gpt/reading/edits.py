"""Compares a written text with its target: the fewest edits, and how precise an error rate is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
#: A symbol of the target, and what was written in its place. None as the first: a symbol was
#: inserted; None as the second: the target's symbol was deleted.
Edit = tuple[Hashable | None, Hashable | None]

CONFIDENCE = 0.95
RESAMPLES, SEED = 1000, 0  # of the bootstrap


def find_edits(target: Sequence[Hashable], written: Sequence[Hashable]) -> tuple[Edit, ...]:
    """The edits of the best alignment of two sequences of symbols, in the order of the target.

    The best alignment has the fewest edits (Levenshtein 1966) and, among those, the fewest
    substitutions, so that most symbols stand beside an equal one: "ab" for "ba" is a deletion and
    an insertion. If several alignments are left, it prefers to pair the first symbols.
    """
    if target == written:
        return ()
    numbers = {symbol: n for n, symbol in enumerate(dict.fromkeys((*target, *written)))}
    rows, columns = (np.array([numbers[each] for each in it], int) for it in (target, written))
    edit = len(rows) + len(columns) + 1  # costs more than all substitutions together
    replaces = (rows[:, None] != columns) * (edit + 1)
    inserted = edit * np.arange(len(columns) + 1)
    costs = [inserted]  # (T + 1, W + 1), between the first symbols of both texts
    for differs in replaces:
        row = costs[-1] + edit
        row[1:] = np.minimum(row[1:], costs[-1][:-1] + differs)
        costs.append(np.minimum.accumulate(row - inserted) + inserted)
    found = list[Edit]()
    i, j = len(rows), len(columns)
    while i or j:
        if i and costs[i][j] == costs[i - 1][j] + edit:
            i -= 1
            found.append((target[i], None))
        elif j and costs[i][j] == costs[i][j - 1] + edit:
            j -= 1
            found.append((None, written[j]))
        else:
            i, j = i - 1, j - 1
            if rows[i] != columns[j]:
                found.append((target[i], written[j]))
    return tuple(found[::-1])


def bootstrap(errors: Integers, sizes: Integers) -> tuple[float, float] | None:
    """The 95 % interval of sum(errors) / sum(sizes); both have (N,) terms, one for each word.

    Percentiles of the rate over RESAMPLES draws of N words with replacement; the draws depend only
    on N (Efron 1979; for word error rates, Bisani & Ney 2004). None if every draw has the same
    rate, as with one word or without errors, because then the interval says nothing.
    """
    random, count = np.random.default_rng(SEED), len(errors)
    rates = np.empty(RESAMPLES)
    for draw in range(RESAMPLES):
        words = random.integers(count, size=count)
        rates[draw] = errors[words].sum() / sizes[words].sum()
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(rates, [tail, 1 - tail]).tolist()
    return (low, high) if low < high else None
