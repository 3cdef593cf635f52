"""Predicts the next character by counting, and mixes these predictions with a GPT's by a gate.

The counting expert is interpolated modified Kneser–Ney (Chen & Goodman 1999):
P_n(w | h) = (c(hw) − D(c(hw)) + Σ_v D(c(hv)) · P_{n−1}(w | h')) / Σ_v c(hv).
Here h is a history (the characters before w), h' is h without its first character, c counts n-grams
and D are discounts. If nothing followed h in the text, P_n(w | h) is P_{n−1}(w | h'). P_0 is
uniform over the vocabulary. The probabilities are float64, and sum to 1 within 1e-12.

The mixture is a product of experts: ln p(w) = a·ln p_GPT(w) + b·ln p_counting(w) − ln Z. The gate
computes a and b as linear functions of features that do not depend on w. So the mixture is a
log-linear model, and fitting the gate is a convex problem, which Newton's method solves.
Tensor names: T positions, N orders, V vocab_size, F features.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config.fields import require
from gpt.config.model import Only
from gpt.counting.tables import Numbers, Trie, unpack_trie
from gpt.errors import CheckpointError
from gpt.storage.checkpoint_files import StoredModel
from gpt.vocabulary import Ids

Array = npt.NDArray[np.float64]
Logits = npt.NDArray[np.floating[Any]]

AT_ONCE = 2**16  # probabilities computed at once
FALLBACK = (0.5, 1.0, 1.5)  # discounts if the text is too short to estimate them
MOST_CACHED = 2**21  # most probabilities that CachedExpert stores: 16 MB

#: The inputs of the gate. entropy: that of counting's prediction, in nats. agreement: the mean, in
#: nats, of the GPT's log-probabilities, weighted by counting's probabilities.
FEATURES = ("1", "entropy", "agreement")
MOST_WEIGHT = 4.0  # largest a and b
#: A gate that lets counting predict alone: a = 0 and b = 1 everywhere.
COUNTING_ALONE = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
#: The gate's prior is a normal distribution with these means and the standard deviation DEVIATION.
#: So a fit to few characters stays near a = b = 0.5.
PRIOR_MEAN: Array = np.array([[0.5, 0.0, 0.0]] * 2)
DEVIATION = 0.1
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # the fit ends when a step gains less than this, in nats per character


def row_slices(characters: int, vocab_size: int) -> Iterator[slice]:
    """Divides `characters` positions into slices of about AT_ONCE probabilities."""
    rows = max(1, AT_ONCE // vocab_size)
    return (slice(first, first + rows) for first in range(0, characters, rows))


def estimate_discounts(counts: Numbers) -> Array:
    """Counts of all n-grams of an order -> (4,) discounts for the counts 0, 1, 2, and 3 or more.
    The estimates are those of Chen & Goodman 1999. They are replaced by FALLBACK if one of the
    counts 1, 2, 3 and 4 does not occur, or if an estimate is not above 0.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == n)) for n in (1, 2, 3, 4))
    discounts = FALLBACK
    if n1 and n2 and n3 and n4:
        y = n1 / (n1 + 2 * n2)
        estimated = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        if min(estimated) > 0:
            discounts = estimated
    return np.array([0.0, *discounts])


class Expert:
    """Predicts the next character from the counts of n-grams in a trie."""

    def __init__(self, trie: Trie, vocab_size: int) -> None:
        self.trie, self.vocab_size = trie, vocab_size
        orders = [trie.counts[first:end] for first, end in pairwise(trie.ends)]
        self.discounts = np.stack([estimate_discounts(counts) for counts in orders])  # (N, 4)

    def predict(self, histories: Numbers) -> Array:
        """(N, T) histories -> (T, V) probabilities of the next characters."""
        chances = np.empty((histories.shape[1], self.vocab_size))
        for part in row_slices(*chances.shape):
            chances[part] = self._predict(histories[:, part])
        return chances

    def _predict(self, histories: Numbers) -> Array:
        orders, T = histories.shape
        first = self.trie.starts[histories].ravel()  # (N · T,)
        kinds = self.trie.starts[histories + 1].ravel() - first
        # `grams` are the n-grams of all histories. `pair` is order · T + position of every n-gram.
        pair = np.repeat(np.arange(orders * T), kinds)
        grams = np.arange(len(pair)) + (first - np.cumsum(kinds) + kinds)[pair]
        counts = self.trie.counts[grams]
        taken = self.discounts[pair // T, np.minimum(counts, 3)]
        total = np.bincount(pair, counts, orders * T)
        divisor = np.maximum(total, 1)
        left = np.bincount(pair, taken, orders * T) / divisor  # the weight of the lower order
        left[total == 0] = 1.0
        below = np.ones((orders + 1, T))  # the products of these weights over the higher orders
        np.cumprod(left.reshape(orders, T)[::-1], axis=0, out=below[1:])
        shares = (counts - taken) * (below[-2::-1].ravel() / divisor)[pair]
        cells = pair % T * self.vocab_size + self.trie.symbols[grams]
        chances = np.bincount(cells, shares, T * self.vocab_size).view(np.float64).reshape(T, -1)
        chances += below[-1][:, None] / self.vocab_size
        return chances


class CachedExpert:
    """Predicts as Expert does, for a text that grows by one character at a time. It caches
    probabilities, because short histories occur again and again. The nodes of a text are its
    histories of 0, 1, 2 … characters in the trie, as far as the trie has them.
    """

    def __init__(self, expert: Expert) -> None:
        def items(array: Numbers) -> memoryview:  # faster than an array for single items
            return memoryview(np.require(array, requirements="A"))  # type: ignore[arg-type]

        trie = expert.trie
        self._orders, self._discounts = trie.orders, expert.discounts.tolist()
        self._symbols, self._counts = items(trie.symbols), items(trie.counts)
        self._starts = items(trie.starts)
        self._uniform = np.full(expert.vocab_size, 1 / expert.vocab_size)
        self._cached: dict[int, Array] = {}

    def predict(self, nodes: Sequence[int]) -> Array:
        """Nodes of a text -> (V,) probabilities of the next character."""
        order = len(nodes)
        while order and nodes[order - 1] not in self._cached:
            order -= 1
        chances = self._cached[nodes[order - 1]] if order else self._uniform
        for node, discounts in zip(nodes[order:], self._discounts[order:], strict=False):
            chances = self._after(node, discounts, chances)
            if len(self._cached) * len(chances) >= MOST_CACHED:
                self._cached.clear()
            self._cached[node] = chances
        return chances

    def _after(self, node: int, discounts: Sequence[float], lower: Array) -> Array:
        """(V,) probabilities by the order below -> (V,) probabilities after this history."""
        part = slice(self._starts[node], self._starts[node + 1])
        counts = self._counts[part].tolist()
        total = sum(counts)
        if not total:  # nothing follows this history
            return lower
        taken = [discounts[count if count < 3 else 3] for count in counts]
        chances = lower * (sum(taken) / total)
        cells: Any = chances.data
        for symbol, seen, less in zip(self._symbols[part].tolist(), counts, taken, strict=True):
            cells[symbol] += (seen - less) / total
        return chances

    def advance(self, nodes: Sequence[int], symbol: int) -> list[int]:
        """The nodes of a text -> its nodes after one more character."""
        after = [0]
        for node in nodes[: self._orders - 1]:
            first, end = self._starts[node], self._starts[node + 1]
            place = bisect_left(self._symbols, symbol, first, end)
            if place == end or self._symbols[place] != symbol:
                break  # longer n-grams contain this one, so the trie does not have them either
            after.append(place + 1)
        return after


def log_softmax(logits: Logits) -> Array:
    """(T, V) logits -> (T, V) log-probabilities in float64; NaN for logits that are not finite."""
    with np.errstate(invalid="ignore"):
        scores: Array = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


def gate_features(gpt: Logits, counting: Array, chances: Array) -> Array:
    """(T, V) logits of the GPT, logarithms and probabilities of counting -> (T, F) features."""
    with np.errstate(invalid="ignore"):
        below = gpt - gpt.max(axis=-1, keepdims=True).astype(np.float64)
    features = np.ones((len(gpt), len(FEATURES)))
    features[:, 1] = -(chances * counting).sum(axis=-1)
    features[:, 2] = (chances * below).sum(axis=-1) - np.log(np.exp(below).sum(axis=-1))
    return features


def fit_gate(gpt: Logits, counting: Logits, ids: Ids) -> Array:
    """Fits the gate: (T, V) logits of the GPT, (T, V) log-probabilities of counting, (T,) next ids
    -> (2, F), the gate with the largest posterior probability.
    """
    features = np.empty((len(ids), PRIOR_MEAN.shape[1]))
    for part in row_slices(*gpt.shape):
        logs = counting[part].astype(np.float64)
        features[part] = gate_features(gpt[part], logs, np.exp(logs))
    precision, gate, step, best = DEVIATION**-2, PRIOR_MEAN, np.zeros_like(PRIOR_MEAN), np.inf
    for _ in range(ROUNDS):
        loss, gradient, curvature = _derivatives(gate, gpt, counting, features, ids)
        away = (gate - PRIOR_MEAN).ravel()
        loss += 0.5 * precision * float(away @ away)
        if loss > best:  # the step was too long
            step = step / 2
            gate = gate + step
            continue
        best = loss
        gradient += precision * away
        curvature += precision * np.eye(len(away))
        step = np.linalg.solve(curvature, gradient).reshape(gate.shape).astype(np.float64)
        if float(step.ravel() @ gradient) < ENOUGH * len(ids):
            break
        gate = gate - step
    return gate


def _derivatives(
    gate: Array, gpt: Logits, counting: Logits, features: Array, ids: Ids
) -> tuple[float, Array, Array]:
    """Returns the summed loss in nats, its gradient (2F,) and its Hessian (2F, 2F)."""
    size = gate.size
    loss, gradient, curvature = 0.0, np.zeros(size), np.zeros((size, size))
    for part in row_slices(*gpt.shape):
        seen, rows = features[part], np.arange(len(ids[part]))
        experts = np.stack([gpt[part], counting[part]])  # (2, T, V)
        a, b = gate @ seen.T
        scores = a[:, None] * experts[0] + b[:, None] * experts[1]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        normaliser = chances.sum(axis=1)
        chances /= normaliser[:, None]
        loss += float((np.log(normaliser) - scores[rows, ids[part]]).sum())
        weighted = chances * experts
        means = weighted.sum(axis=2)  # (2, T)
        missed = means - experts[:, rows, ids[part]]
        spread = np.einsum("itv,jtv->ijt", weighted, experts) - means[:, None] * means
        gradient += (missed @ seen).ravel()
        curvature += np.einsum("ijt,tf,tg->ifjg", spread, seen, seen).reshape(size, size)
    return loss, gradient, curvature


@dataclass(frozen=True)
class MixedPrediction:
    """Predictions of T characters. gpt, counting, both: (T, V) log-probabilities by the GPT, by
    counting and by their mixture. weights: (2, T) the gate's a and b.
    """

    gpt: Array
    counting: Array
    both: Array
    weights: Array


@dataclass(frozen=True)
class Mixture:
    """A checkpoint's counting expert, and the gate that mixes it with the GPT. gate: (2, F). Its
    rows, multiplied by the features of a position, are a and b.
    """

    expert: Expert
    gate: Array

    def predict(self, logits: Logits, histories: Numbers) -> MixedPrediction:
        """(T, V) logits of the GPT, (N, T) histories -> log-probabilities by the GPT, by counting
        and by their mixture, and the gate's weights.
        """
        chances = self.expert.predict(histories)
        scores, weights = self.mix(logits, chances)
        return MixedPrediction(log_softmax(logits), np.log(chances), log_softmax(scores), weights)

    def scores(self, logits: Logits, histories: Numbers) -> Array:
        """(T, V) logits of the GPT, (N, T) histories -> (T, V) logits of the mixture."""
        return self.mix(logits, self.expert.predict(histories))[0]

    def losses(self, logits: Logits, histories: Numbers, ids: Ids) -> Array:
        """(T, V) logits of the GPT, (N, T) histories, (T,) next ids -> (T,) losses in nats."""
        losses = np.empty(len(ids))
        for part in row_slices(*logits.shape):
            both = log_softmax(self.scores(logits[part], histories[:, part]))
            losses[part] = -both[np.arange(len(both)), ids[part]]
        return losses

    def mix(self, logits: Logits, chances: Array) -> tuple[Array, Array]:
        """(T, V) logits of the GPT, (T, V) probabilities by counting -> (T, V) logits of the
        mixture, and (2, T) weights a and b.
        """
        counting: Array = np.log(chances)
        features = gate_features(logits, counting, chances)
        weights: Array = np.minimum(np.maximum(self.gate @ features.T, 0.0), MOST_WEIGHT)
        scores: Array = weights[0, :, None] * logits
        scores += weights[1, :, None] * counting
        return scores, weights

    def stored_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the arrays that a model file stores (checkpoint_files.COUNTING)."""
        return {**self.expert.trie.stored_arrays(), "gate": self.gate}


def load_mixture(stored: StoredModel) -> Mixture | None:
    """Returns the mixture of a model file, or None without counting. Raises CheckpointError."""
    if stored.counting is None:
        return None
    size, gate = len(stored.vocabulary), stored.counting["gate"]
    try:
        if gate.shape != (2, len(FEATURES)):
            raise ValueError("the gate has the wrong shape")
        trie = unpack_trie(stored.counting, size, stored.config.counting)
    except ValueError as error:
        raise CheckpointError(f"damaged: {stored.source} ({error})") from error
    return Mixture(Expert(trie, size), gate)


class CountingStreams:
    """B texts that grow from the same (n,) prompt ids, and the mixture's predictions for them."""

    def __init__(self, mixture: Mixture, prompt: Ids, count: int) -> None:
        self._mixture, self._expert = mixture, CachedExpert(mixture.expert)
        nodes = [0]
        for symbol in prompt[1 - mixture.expert.trie.orders :].tolist():
            nodes = self._expert.advance(nodes, symbol)
        self._nodes = [nodes] * count  # of each text

    def scores(self, logits: Logits) -> Array:
        """(B, V) logits of the GPT -> (B, V) logits of the mixture."""
        chances = np.array([self._expert.predict(nodes) for nodes in self._nodes])
        return self._mixture.mix(logits, chances)[0]

    def append(self, ids: Ids) -> None:
        texts = zip(self._nodes, ids.tolist(), strict=True)
        self._nodes = [self._expert.advance(nodes, symbol) for nodes, symbol in texts]


def counting_streams(
    mixture: Mixture | None, ids: Ids, only: Only | None = None, texts: int = 1
) -> CountingStreams | None:
    """Returns streams of `texts` texts that begin with (n,) ids, or None if the GPT predicts alone.

    only: "gpt" or "counting", which then predicts alone. Raises ConfigError for "counting" if the
    model has no counting.
    """
    possible = mixture is not None or only != "counting"
    require(possible, "only", "this model was trained without counting")
    if mixture is None or only == "gpt":
        return None
    if only == "counting":
        mixture = replace(mixture, gate=COUNTING_ALONE)
    return CountingStreams(mixture, ids, texts)
