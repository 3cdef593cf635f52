"""How a text that was written differs from its target: the fewest edits of symbols, which these
are, and how sure a rate of errors is. It does not know what a symbol is: characters today.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids

Integers = npt.NDArray[np.int64]
#: A symbol of the target, and what was written in its place. None in the target: the symbol was
#: inserted; None in place of it: it was deleted.
Edit = tuple[Hashable | None, Hashable | None]

CONFIDENCE = 0.95
RESAMPLES, SEED = 1000, 0  # of the bootstrap


def edit_distances(texts: Sequence[Ids], others: Sequence[Ids]) -> Integers:
    """(N,) the fewest symbols to insert, delete or replace that turn a text into the other
    (Levenshtein 1966), for N pairs of texts at once.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    lengths, widths = (np.array([len(each) for each in side]) for side in (texts, others))
    rows, every = np.arange(len(texts)), np.arange(widths.max() + 1)
    columns = np.full((len(others), len(every)), -1)  # the others' symbols, from column 1 on
    columns[(every > 0) & (every <= widths[:, None])] = np.concatenate(others)
    distances = np.tile(every, (len(texts), 1))  # from the text's first symbols to the other's
    found: Integers = distances[rows, widths]
    for length in range(1, int(lengths.max()) + 1):
        same = np.array([text[length - 1] if length <= len(text) else -2 for text in texts])
        replaced = distances[:, :-1] + (columns[:, 1:] != same[:, None])
        distances = distances + 1  # deleted
        distances[:, 1:] = np.minimum(distances[:, 1:], replaced)
        distances = np.minimum.accumulate(distances - every, axis=1) + every  # inserted
        found = np.where(lengths == length, distances[rows, widths], found)
    return found


def edits_of(target: Sequence[Hashable], written: Sequence[Hashable]) -> tuple[Edit, ...]:
    """The edits of the best alignment of two sequences of symbols, in the order of the target.

    The best alignment has the fewest edits and, of these, the fewest substitutions: so most symbols
    stand beside an equal one ("ab" for "ba" is a deletion and an insertion, not two substitutions).
    If several are left, it keeps the first symbols together: what is missing is missing at the end.
    """
    numbers = {symbol: n for n, symbol in enumerate(dict.fromkeys((*target, *written)))}
    rows, columns = (np.array([numbers[each] for each in it], int) for it in (target, written))
    edit = len(rows) + len(columns) + 1  # costs more than all substitutions together
    replaces = (rows[:, None] != columns) * (edit + 1)
    inserted = edit * np.arange(len(columns) + 1)
    costs = [inserted]  # (T + 1, W + 1) between the first symbols of both
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
    """The 95 % interval of sum(errors) / sum(sizes), which has (N,) terms, one for each word.

    Percentiles of the rate over RESAMPLES draws of N words with replacement, always the same draws
    for one N (Efron 1979; for word error rates, Bisani & Ney 2004). None if every draw has the same
    rate, as with one word, or without errors: then it says nothing.
    """
    random, count = np.random.default_rng(SEED), len(errors)
    rates = np.empty(RESAMPLES)
    for draw in range(RESAMPLES):
        words = random.integers(count, size=count)
        rates[draw] = errors[words].sum() / sizes[words].sum()
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(rates, [tail, 1 - tail]).tolist()
    return (low, high) if low < high else None
