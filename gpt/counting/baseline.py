"""What a training counts: the expert, with the gate that mixes it with the GPT, and the baseline,
the loss of counting n-grams on the validation text, which a trained model has to beat.

The GPT trains on its own loss, as if it were alone. If a gate learned at the same time, it would
ignore the GPT, as counting is better at first, and the GPT would get no gradient.

n-grams predict counted text far too well, and so does a GPT a text that it has read several times.
So the gate is fitted to pieces of the training split that neither has learned (HeldOut). Text just
before and after a piece is similar, too, so the counts for the fit also leave out a margin around
each piece. The counts used later to predict include everything.
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
    slices,
)
from gpt.counting.tables import (
    MOST_CHARACTERS,
    Level,
    Numbers,
    Trie,
    count,
    count_levels,
    find,
    first_grams,
    join,
    keep,
    release_memory,
)
from gpt.storage.manifest import Baseline
from gpt.vocabulary import Ids

ORDERS = 8
MOST_VAL = 1_000_000  # characters to score

PIECES = 8  # evenly spread, so that the fit does not depend on one place in the text
MOST = 2**14  # characters in all pieces together
SHARE = 1 / 20  # of the text, at most
MARGIN = 1 / 100  # of the text, before and after each piece
MOST_NUMBERS = 2**22  # probabilities of each expert that are kept for the fit

#: (B,) starts of windows and their length -> (B · length, V) the GPT's logits after each character.
Predict = Callable[[npt.NDArray[np.int64], int], Logits]
WINDOWS = 16  # windows that the GPT computes together
#: Factors on the fitted weights of the GPT and of counting. The GPT learns the text around the
#: held-out pieces, which the counts leave out; so on these pieces it is better than on new text.
FACTORS: Array = np.array([[0.9], [1.0]])


@dataclass(frozen=True)
class HeldOut:
    """Pieces of `length` characters in the middle of each `period`; the first begins at `start`."""

    start: int
    period: int
    length: int
    end: int

    @staticmethod
    def of(characters: int, vocab_size: int) -> HeldOut:
        """The held-out pieces in the counted end of a training split of this length."""
        start = max(0, characters - MOST_CHARACTERS)
        counted = characters - start
        held = min(MOST, int(SHARE * counted), MOST_NUMBERS // vocab_size)
        return HeldOut(start, max(1, counted // PIECES), held // PIECES, characters)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the pieces begin; empty if the text is too short for them."""
        return self._first + self.period * np.arange(PIECES if self.length else 0)

    @property
    def _first(self) -> int:
        return self.start + (self.period - self.length) // 2

    @property
    def share(self) -> float:
        """The share of the split that is held out."""
        return self.length * PIECES / self.end

    def contains(self, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        after = places - self._first
        inside: npt.NDArray[np.bool_] = (after >= 0) & (after % self.period < self.length)
        return inside & (after < PIECES * self.period)

    def apart(self, ids: Ids) -> Ids:
        """The counted part of the split without the pieces and their margins."""
        counted = np.asarray(ids[self.start : self.end])
        margin = int(MARGIN * len(counted))
        away = np.ones(len(counted), np.bool_)
        for first in (self.starts - self.start).tolist():
            away[max(0, first - margin) : first + self.length + margin] = False
        return counted[away]


@dataclass(frozen=True)
class Experts:
    """The counting experts of a training. whole: of all text. held: (T, V) log-probabilities of the
    T held-out characters, in float32, by an expert that has not counted them.
    """

    whole: Expert
    held: npt.NDArray[np.float32]


def count_ahead(
    train: Ids, val: Ids, vocab_size: int, orders: int
) -> Future[tuple[Baseline, Experts | None]]:
    """Begins to count in a thread, while torch is imported: numpy sorts without the interpreter's
    lock. orders: of the experts; 0: no experts.
    """
    thread = ThreadPoolExecutor(1, "counting")
    counts = thread.submit(count_splits, train, val, vocab_size, orders)
    thread.shutdown(wait=False)
    return counts


def count_splits(
    train: Ids, val: Ids, vocab_size: int, orders: int
) -> tuple[Baseline, Experts | None]:
    """The baseline and the experts, whose n-grams are counted once."""
    if not orders:
        return count_baseline(train, val, vocab_size), None
    kept: list[Level] = []
    levels = keep(count_levels(train, vocab_size, max(orders, ORDERS)), kept, orders)
    baseline = count_baseline(train, val, vocab_size, levels)
    for _ in levels:  # those of more orders than the baseline has
        pass
    return baseline, count_experts(train, vocab_size, orders, join(kept))


def count_experts(train: Ids, vocab_size: int, orders: int, whole: Trie | None = None) -> Experts:
    """The experts of a training split. whole: its n-grams, if they are already counted."""
    held = HeldOut.of(len(train), vocab_size)
    apart = Expert(count(held.apart(train), vocab_size, orders), vocab_size)
    histories = apart.trie.histories_at(train, held.starts, held.length)
    logs = np.empty((held.length * PIECES, vocab_size), np.float32)
    for part in slices(*logs.shape):
        logs[part] = np.log(apart.predict(histories[:, part]))
    del apart, histories
    return Experts(Expert(whole or count(train, vocab_size, orders), vocab_size), logs)


def count_baseline(
    train: Ids, val: Ids, vocab_size: int, levels: Iterable[Level] | None = None
) -> Baseline:
    """Mean nats per character of `val`, whose first one is only context, under n-grams of `train`,
    for the orders 1 … ORDERS. levels: those of `train`; None: count them now.

    For a long text, only the last MOST_CHARACTERS of `train` are counted, and the first MOST_VAL of
    `val` scored. The scored text also chooses the best order, which makes the baseline a little too
    strong, never too weak.
    """
    train, val = train[-MOST_CHARACTERS:], val[: MOST_VAL + 1]
    if levels is None:
        levels = count_levels(train, vocab_size, ORDERS)
    probabilities = kneser_ney(islice(levels, ORDERS), train, val, vocab_size)
    losses = tuple(max(0.0, float(-np.log(order).mean())) for order in probabilities)
    return Baseline(losses, counted=len(train), scored=len(val) - 1)


def kneser_ney(levels: Iterable[Level], train: Ids, val: Ids, vocab_size: int) -> Iterator[Array]:
    """(len(val) − 1,) for each of the orders 1, 2, … of `train`: the probability of each character
    after the first one of `val`, the continuation of `train` (the formula is in mixture.py).
    """
    text = np.concatenate((train[-ORDERS:], val))
    first = len(text) - len(val) + 1  # the first character to score
    histories = np.zeros(len(text), np.int32)
    lower = np.full(len(text), 1.0 / vocab_size)
    for level in levels:
        starts = first_grams(level.children)
        grams = find(starts, level.symbols, histories, text).astype(np.int32)
        yield _interpolated(starts, level.often, histories, grams, lower)[first:]
        lower = _interpolated(starts, level.counts, histories, grams, lower)
        histories[0], histories[1:] = -1, grams[:-1]
        del level, starts, grams  # frees them while the next order is counted


def _interpolated(
    starts: Numbers, counts: Numbers, histories: Numbers, grams: Numbers, lower: Array
) -> Array:
    """(T,) histories, n-grams (−1 = none), lower order's probabilities -> (T,) probabilities."""
    if not len(counts):  # the text is shorter than the order
        return lower
    discounts = estimate_discounts(counts)
    total, left = np.zeros(len(starts), np.int32), np.zeros(len(starts))  # last item: history −1
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
    """The counting of a training. Counts the (n,) ids of the training split, unless experts are
    given. held: the text that the gate is fitted to; None for a model without counting.
    """

    def __init__(self, ids: Ids, config: ModelConfig, experts: Experts | None = None) -> None:
        self.ids, self.config = ids, config
        size, orders = config.vocab_size, config.counting
        self.held = HeldOut.of(len(ids), size) if orders else None
        if orders and experts is None:
            experts = count_experts(ids, size, orders)
        self.experts = experts
        self._latest: tuple[int, Mixture] | None = None  # with its step

    @property
    def note(self) -> str:
        """A note if MOST_GRAMS allows fewer orders than asked; else ""."""
        asked = self.config.counting
        if self.experts is None or self.experts.whole.trie.orders == min(asked, len(self.ids)):
            return ""
        orders = self.experts.whole.trie.orders
        return f"counts n-grams up to {orders}, not {asked}: this text has too many different ones"

    def mixture(self, step: int, predict: Predict) -> Mixture | None:
        """The expert with the gate that best predicts the held-out text together with the model at
        this step; None without counting. At step 0, and if the model's logits are not finite, the
        gate lets counting predict alone.
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

    def _fitted(self, held: HeldOut, counting: Logits, predict: Predict) -> Array:
        """The gate after a pass of the GPT over the held-out text, in windows of block_size; the
        character before each is context. counting: see Experts.held.
        """
        if not held.length:  # the text is too short to hold anything out
            return PRIOR_MEAN * FACTORS
        length = min(self.config.block_size, held.length)
        read = held.length - held.length % length  # of each piece
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
