"""Counts n-grams for a training: for the counting expert, its gate, and the baseline.

The expert predicts characters from counts, and the gate mixes its predictions with the GPT's
(mixture.py). The baseline is the loss of counting alone on the validation text. A trained model
must have a lower loss to be useful.

The GPT trains on its own loss, as if it were alone, and the gate is fitted afterwards. A gate that
learned together with the GPT would ignore the GPT, because counting predicts better at first. Then
the GPT would get no gradient.

Counting predicts the counted text far too well, and a GPT predicts the text that it trains on too
well. So the gate is fitted to held-out pieces of the training split (HeldOutPieces), whose
characters are never the GPT's targets. Text next to a piece is similar to the piece, so the counts
for the fit also leave out a margin around every piece. The saved model predicts with the counts of
the whole split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.counting.mixture import (
    AT_ONCE,
    COUNTING_ALONE,
    PRIOR_MEAN,
    Array,
    Expert,
    Logits,
    Mixture,
    estimate_discounts,
    fit_gate,
    row_slices,
)
from gpt.counting.tables import (
    MOST_CHARACTERS,
    Level,
    Numbers,
    Trie,
    count_levels,
    count_ngrams,
    find_grams,
    first_grams,
    join_levels,
    keep_levels,
    release_memory,
)
from gpt.storage.checkpoint_files import Baseline
from gpt.vocabulary import Ids

ORDERS = 8
MOST_VAL = 1_000_000  # characters of the validation text on which the baseline is measured

PIECES = 8  # spread evenly, so that the fit does not depend on one place in the text
MOST = 2**14  # characters in all pieces together
SHARE = 1 / 20  # largest share of the text in all pieces together
MARGIN = 1 / 100  # share of the text that the counts leave out before and after each piece
MOST_NUMBERS = 2**22  # most probabilities of each expert that are stored for the fit

#: (B,) starts of windows, their length -> (B · length, V) logits of the GPT after each character.
Predict = Callable[[npt.NDArray[np.int64], int], Logits]
WINDOWS = 16  # windows in one forward pass of the GPT
#: Factors by which the fitted weights of the GPT and of counting are multiplied. The GPT trains on
#: the margins around the held-out pieces, so it predicts the pieces better than it predicts new
#: text.
FACTORS: Array = np.array([[0.9], [1.0]])


@dataclass(frozen=True)
class HeldOutPieces:
    """The held-out pieces of a training split. The characters from `start` to `end` are divided
    into PIECES periods. In the middle of every period is a piece of `length` characters.
    """

    start: int
    period: int
    length: int
    end: int

    @staticmethod
    def of_split(characters: int, vocab_size: int) -> HeldOutPieces:
        """Places the pieces in the last MOST_CHARACTERS of a training split of `characters`."""
        start = max(0, characters - MOST_CHARACTERS)
        counted = characters - start
        held = min(MOST, int(SHARE * counted), MOST_NUMBERS // vocab_size)
        return HeldOutPieces(start, max(1, counted // PIECES), held // PIECES, characters)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """(PIECES,) where the pieces begin; empty if the text is too short for pieces."""
        return self._first + self.period * np.arange(PIECES if self.length else 0)

    @property
    def _first(self) -> int:
        return self.start + (self.period - self.length) // 2

    @property
    def share(self) -> float:
        """The share of the split's characters that are held out."""
        return self.length * PIECES / self.end

    def contains(self, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Returns booleans in the shape of `places`: whether a place is in a piece."""
        after = places - self._first
        inside: npt.NDArray[np.bool_] = (after >= 0) & (after % self.period < self.length)
        return inside & (after < PIECES * self.period)

    def without_pieces(self, ids: Ids) -> Ids:
        """Returns the counted part of the split without the pieces and their margins."""
        counted = np.asarray(ids[self.start : self.end])
        margin = int(MARGIN * len(counted))
        away = np.ones(len(counted), np.bool_)
        for first in (self.starts - self.start).tolist():
            away[max(0, first - margin) : first + self.length + margin] = False
        return counted[away]


@dataclass(frozen=True)
class Experts:
    """The counting experts of a training. whole: the one that has counted the whole training split.

    held: (T, V) log-probabilities of the T held-out characters, in float32, by a second expert,
    which has not counted these characters.
    """

    whole: Expert
    held: npt.NDArray[np.float32]


def start_counting(
    train: Ids, val: Ids, vocab_size: int, orders: int
) -> Future[tuple[Baseline, Experts | None]]:
    """Starts `count_splits` in a thread, to count while torch is imported. Counting sorts, and
    numpy releases the interpreter's lock while it sorts, so both run at the same time.
    """
    thread = ThreadPoolExecutor(1, "counting")
    counts = thread.submit(count_splits, train, val, vocab_size, orders)
    thread.shutdown(wait=False)
    return counts


def count_splits(
    train: Ids, val: Ids, vocab_size: int, orders: int
) -> tuple[Baseline, Experts | None]:
    """Computes the baseline and the experts from one count of n-grams. orders: the longest n-grams
    of the experts, in characters; 0: there are no experts (None).
    """
    kept: list[Level] = []
    levels = keep_levels(count_levels(train, vocab_size, max(orders, ORDERS)), kept, orders)
    baseline = count_baseline(train, val, vocab_size, levels)
    for _ in levels:  # `keep_levels` still has to keep the orders above ORDERS
        pass
    return baseline, count_experts(train, vocab_size, orders, join_levels(kept)) if orders else None


def count_experts(train: Ids, vocab_size: int, orders: int, whole: Trie | None = None) -> Experts:
    """Makes the experts of a training split. whole: its n-grams, if they are already counted."""
    held = HeldOutPieces.of_split(len(train), vocab_size)
    apart = Expert(count_ngrams(held.without_pieces(train), vocab_size, orders), vocab_size)
    histories = apart.trie.histories_at(train, held.starts, held.length)
    logs = np.empty((held.length * PIECES, vocab_size), np.float32)
    for part in row_slices(*logs.shape):
        logs[part] = np.log(apart.predict(histories[:, part]))
    del apart, histories
    return Experts(Expert(whole or count_ngrams(train, vocab_size, orders), vocab_size), logs)


def count_baseline(
    train: Ids, val: Ids, vocab_size: int, levels: Iterable[Level] | None = None
) -> Baseline:
    """Measures the loss of counting: mean nats per character of `val`, for the orders 1 … ORDERS.

    The n-grams are those of `train`. levels: their counts; if None, they are counted here. The
    first character of `val` is not predicted. Only the last MOST_CHARACTERS of `train` are counted,
    and only the first MOST_VAL of `val` are predicted.
    `val` itself chooses the best order, so the baseline may be too strong, but never too weak.
    """
    train, val = train[-MOST_CHARACTERS:], val[: MOST_VAL + 1]
    levels = levels or count_levels(train, vocab_size, ORDERS)
    probabilities = kneser_ney(islice(levels, ORDERS), train, val, vocab_size)
    losses = tuple(max(0.0, float(-np.log(order).mean())) for order in probabilities)
    return Baseline(losses, counted=len(train), scored=len(val) - 1)


def kneser_ney(levels: Iterable[Level], train: Ids, val: Ids, vocab_size: int) -> Iterator[Array]:
    """Yields for the orders 1, 2, … the (len(val) − 1,) probabilities of the characters of `val`
    after its first, by modified Kneser–Ney (the formula is in mixture.py).

    levels: the n-grams of `train`. The histories of val's first characters begin in `train`.
    """
    text = np.concatenate((train[-ORDERS:], val))
    first = len(text) - len(val) + 1  # the first character to score
    histories = np.zeros(len(text), np.int32)
    lower = np.full(len(text), 1.0 / vocab_size)
    for level in levels:
        starts = first_grams(level.children)
        grams = find_grams(starts, level.symbols, histories, text).astype(np.int32)
        yield _interpolated(starts, level.often, histories, grams, lower)[first:]
        lower = _interpolated(starts, level.counts, histories, grams, lower)
        histories[0], histories[1:] = -1, grams[:-1]
        del level, starts, grams  # frees memory before the next order is counted


def _interpolated(
    starts: Numbers, counts: Numbers, histories: Numbers, grams: Numbers, lower: Array
) -> Array:
    """(T,) histories, n-grams (−1: none), chances by the lower order -> (T,) probabilities."""
    if not len(counts):  # the text is shorter than the order
        return lower
    discounts = estimate_discounts(counts)
    # The last item of these arrays belongs to the history −1.
    total, left = np.zeros(len(starts), np.int32), np.zeros(len(starts))
    for node in range(0, len(starts) - 1, AT_ONCE):
        ends = starts[node : node + AT_ONCE + 1]
        followed = np.flatnonzero(np.diff(ends))  # the histories that have n-grams
        if len(followed):
            part, places = counts[ends[0] : ends[-1]], ends[followed] - ends[0]
            total[node + followed] = np.add.reduceat(part, places, dtype=np.int32)
            left[node + followed] = np.add.reduceat(discounts[np.minimum(part, 3)], places)
    seen = np.where(grams < 0, 0, counts[grams])
    mixed = seen - discounts[np.minimum(seen, 3)]
    mixed += left[histories] * lower
    mixed /= np.maximum(total[histories], 1)
    return np.where(total[histories] > 0, mixed, lower)


class Counting:
    """The counting of a training: the experts, and the gate that `mixture` fits to the GPT.

    ids: (n,) of the training split. experts: its experts; if None, they are counted here.
    held: the text to which the gate is fitted, or None for a model without counting.
    """

    def __init__(self, ids: Ids, config: ModelConfig, experts: Experts | None = None) -> None:
        self.ids, self.config = ids, config
        size, orders = config.vocab_size, config.counting
        self.held = HeldOutPieces.of_split(len(ids), size) if orders else None
        if orders and experts is None:
            experts = count_experts(ids, size, orders)
        self.experts = experts
        self._latest: tuple[int, Mixture] | None = None  # the step and its mixture

    @property
    def note(self) -> str:
        """A note if MOST_GRAMS allows fewer orders than the option `counting`; otherwise ""."""
        option = self.config.counting
        if self.experts is None or self.experts.whole.trie.orders == min(option, len(self.ids)):
            return ""
        orders = self.experts.whole.trie.orders
        return (
            f"counts n-grams of up to {orders} characters, not {option}, because this text has too "
            "many different n-grams"
        )

    def mixture(self, step: int, predict: Predict) -> Mixture | None:
        """Returns the expert with a gate fitted to the held-out text, or None without counting.

        predict: computes the logits of the GPT at this step. At step 0, and if the GPT's logits are
        not finite, the gate lets counting predict alone.
        """
        release_memory()
        if self.experts is None or self.held is None:
            return None
        if self._latest is None or self._latest[0] != step:
            gate = COUNTING_ALONE
            if step:
                gate = self._fitted(self.held, self.experts.held, predict)
            self._latest = step, Mixture(self.experts.whole, gate)
            release_memory()
        return self._latest[1]

    def _fitted(self, held: HeldOutPieces, counting: Logits, predict: Predict) -> Array:
        """Fits the gate to the predictions of the GPT and of counting (Experts.held). The GPT reads
        windows of block_size, which begin one character before the first predicted character.
        """
        if not held.length:  # the text is too short to hold anything out
            return PRIOR_MEAN * FACTORS
        length = min(self.config.block_size, held.length)
        read = held.length - held.length % length  # characters of each piece that the GPT reads
        starts = (held.starts[:, None] + np.arange(0, read, length)).ravel()
        counting = counting.reshape(PIECES, held.length, -1)[:, :read].reshape(PIECES * read, -1)
        gpt = np.empty(counting.shape, np.float32)
        for first in range(0, len(starts), WINDOWS):
            logits = predict(starts[first : first + WINDOWS] - 1, length)
            gpt[first * length :][: len(logits)] = logits
        release_memory()
        if not np.isfinite(gpt).all():
            return COUNTING_ALONE
        came = self.ids[starts[:, None] + np.arange(length)].ravel()
        return fit_gate(gpt, counting, came) * FACTORS
