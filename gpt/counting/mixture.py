"""The counting expert and its gate beside a GPT; they predict together as a product of
experts.

ln p(w) = a·ln p_GPT(w) + b·ln p_counting(w) − ln Z. The gate gives the weights a and b, linear
functions of features that do not depend on w. So fitting the gate is a convex problem (a log-linear
model), which Newton's method solves. It is fitted to text that neither the GPT nor the counts have
learned (gpt/counting/held_out.py).
Tensor names: B streams, T positions, N orders, V vocab_size, F features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config.fields import require
from gpt.config.sample import Only
from gpt.counting.expert import AT_ONCE, Array, CachedExpert, CountingPrediction, Expert
from gpt.counting.tables import Numbers, unpack_trie
from gpt.errors import CheckpointError
from gpt.storage.model_file import StoredModel
from gpt.vocabulary import Ids

#: entropy: of counting's prediction, in nats; agreement: the mean of the GPT's log-probabilities,
#: weighted by counting's probabilities, in nats.
FEATURES = ("1", "entropy", "agreement")
#: Prior of the weights: a normal distribution with these means, so that a fit to a few hundred
#: characters stays near them. The means give half of each expert, whatever the features.
PRIOR_MEAN = np.array([[0.5, 0.0, 0.0]] * 2)
DEVIATION = 0.1
MOST_WEIGHT = 4.0
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # stop if the next step would gain less, in nats

Logits = npt.NDArray[np.floating[Any]]


def slices(characters: int, vocab_size: int) -> Iterator[slice]:
    """How many characters' probabilities are computed together."""
    rows = max(1, AT_ONCE // vocab_size)
    return (slice(first, first + rows) for first in range(0, characters, rows))


def log_softmax(logits: Logits) -> Array:
    """(T, V) logits -> (T, V) log-probabilities in float64; NaN for logits that are not finite."""
    with np.errstate(invalid="ignore"):
        scores: Array = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


def gate_features(counted: CountingPrediction, gpt: Logits) -> Array:
    """What counting says about T characters, and (T, V) logits of the GPT -> (T, F) FEATURES."""
    with np.errstate(invalid="ignore"):
        below = gpt - gpt.max(axis=-1, keepdims=True).astype(np.float64)
    normaliser = np.log(np.exp(below).sum(axis=-1))
    entropy = -np.einsum("tv,tv->t", counted.chances, counted.logs)
    agreement = np.einsum("tv,tv->t", counted.chances, below) - normaliser
    return np.stack([np.ones_like(entropy), entropy, agreement], axis=-1)


@dataclass(frozen=True)
class Gate:
    """The gate. weights: (2, F); a and b of a position are its features times the two rows."""

    weights: Array

    def scaled(self, factor: float) -> Gate:
        """The same gate, but with the GPT's weight multiplied by `factor`."""
        return Gate(self.weights * [[factor], [1.0]])

    def shares(self, features: Array) -> Array:
        """(T, F) features -> (2, T) a and b."""
        found: Array = np.minimum(np.maximum(self.weights @ features.T, 0.0), MOST_WEIGHT)
        return found

    def shares_of_position(self, features: Sequence[float]) -> tuple[float, float]:
        """F features -> a and b."""
        a, b = (sum(map(mul, row, features)) for row in self._rows)
        return min(max(a, 0.0), MOST_WEIGHT), min(max(b, 0.0), MOST_WEIGHT)

    @cached_property
    def _rows(self) -> list[list[float]]:
        rows: list[list[float]] = self.weights.tolist()
        return rows

    def scores(self, gpt: Logits, counting: Array, features: Array) -> Array:
        """(T, V) logits of the GPT, (T, V) log-probabilities of counting, (T, F) features -> (T, V)
        the logits of both together.
        """
        a, b = self.shares(features)[:, :, None]
        scores: Array = a * gpt + b * counting
        return scores


#: A gate with weights a = 0 and b = 1 everywhere: counting alone.
COUNTING_ALONE = Gate(np.eye(2, len(FEATURES), -1) * [[0], [1]])


@dataclass(frozen=True)
class Block:
    """A part of the text to which the gate is fitted: (T, V) logits of the GPT and
    log-probabilities of counting, (T, F) features, and the (T,) ids that follow.
    """

    gpt: Logits
    counting: Logits
    features: Array
    ids: Ids


def fit_gate(blocks: Sequence[Block]) -> Gate:
    """The most likely gate, given the blocks and the prior."""
    characters = sum(len(block.ids) for block in blocks)
    precision, weights, step, best = DEVIATION**-2, PRIOR_MEAN, np.zeros_like(PRIOR_MEAN), np.inf
    for _ in range(ROUNDS):
        away = (weights - PRIOR_MEAN).ravel()
        loss, gradient = 0.5 * precision * float(away @ away), precision * away
        curvature = precision * np.eye(len(away))
        for block in blocks:
            found = _derivatives(weights, block)
            loss, gradient, curvature = loss + found[0], gradient + found[1], curvature + found[2]
        if loss > best:  # the step was too long
            step = step / 2
            weights = weights + step
            continue
        best = loss
        step = np.linalg.solve(curvature, gradient).reshape(PRIOR_MEAN.shape).astype(np.float64)
        if float(step.ravel() @ gradient) < ENOUGH * characters:
            break
        weights = weights - step
    return Gate(weights)


def _derivatives(weights: Array, block: Block) -> tuple[float, Array, Array]:
    """The summed loss of a block in nats, and its first and second derivatives with respect to the
    weights, (2F,) and (2F, 2F).
    """
    characters, features = len(block.ids), block.features
    a, b = weights @ features.T
    loss, missed = np.empty(characters), np.empty((2, characters))
    spread = np.empty((3, characters))
    for part in slices(characters, block.gpt.shape[1]):
        experts, ids = (block.gpt[part], block.counting[part]), block.ids[part]
        scores = a[part, None] * experts[0] + b[part, None] * experts[1]
        scores -= scores.max(axis=1, keepdims=True)
        came = np.arange(len(ids)), ids
        loss[part] = -scores[came]
        chances = np.exp(scores, out=scores)
        normaliser = chances.sum(axis=1)
        loss[part] += np.log(normaliser)
        chances /= normaliser[:, None]
        means = [np.einsum("tv,tv->t", chances, each) for each in experts]
        missed[:, part] = [mean - each[came] for mean, each in zip(means, experts, strict=True)]
        for row, (i, j) in enumerate(((0, 0), (0, 1), (1, 1))):
            squares = np.einsum("tv,tv,tv->t", chances, experts[i], experts[j])
            spread[row, part] = squares - means[i] * means[j]
    first, cross, last = ((features * each[:, None]).T @ features for each in spread)
    return (
        float(loss.sum()),
        np.concatenate([each @ features for each in missed]),
        np.block([[first, cross], [cross.T, last]]),
    )


LARGEST_WEIGHT = 1e6  # of a gate in a file; fitted weights are below 10
LEAST = -600.0  # a log-probability; float64 has no number for exp of less than −745


@dataclass(frozen=True)
class MixedPrediction:
    """Predictions of T characters: (T, V) log-probabilities of the GPT, of counting and of both;
    (2, T) the gate's weights of the first two; and what counting says.
    """

    gpt: Array
    counting: Array
    both: Array
    weights: Array
    counted: CountingPrediction


@dataclass(frozen=True)
class Mixture:
    """The counting expert of a checkpoint, and the gate that mixes it with the GPT."""

    expert: Expert
    gate: Gate

    def predict(self, logits: Logits, histories: Numbers) -> MixedPrediction:
        """(T, V) logits of the GPT and (N, T) histories -> both alone and together."""
        counted = self.expert.predict(histories)
        seen = gate_features(counted, logits)
        both = log_softmax(self.gate.scores(logits, counted.logs, seen))
        weights = self.gate.shares(seen)
        return MixedPrediction(log_softmax(logits), counted.logs, both, weights, counted)

    def losses(self, logits: Logits, histories: Numbers, ids: Ids) -> Array:
        """As `predict` -> (T,) losses of both together in nats, for the (T,) ids that follow."""
        both = np.empty(len(ids))
        for part in slices(*logits.shape):
            found = log_softmax(self.scores(logits[part], histories[:, part]))
            both[part] = found[np.arange(len(found)), ids[part]]
        return -both

    def scores(self, logits: Logits, histories: Numbers) -> Array:
        """As `predict` -> (T, V) the logits of both together."""
        counted = self.expert.predict(histories)
        return self.gate.scores(logits, counted.logs, gate_features(counted, logits))

    @cached_property
    def cached(self) -> CachedExpert:
        """The expert, with a cache for one text."""
        return CachedExpert(self.expert)

    def packed(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that a model file stores (model_file.COUNTING)."""
        return {**self.expert.trie.packed(), "gate": self.gate.weights}


def load_mixture(stored: StoredModel) -> Mixture | None:
    """The mixture in a model file; None without counting. Raises CheckpointError."""
    if stored.counting is None:
        return None
    size, gate = len(stored.vocabulary), stored.counting["gate"]
    try:
        if gate.shape != (2, len(FEATURES)):
            raise ValueError("the gate has the wrong shape")
        if not np.abs(gate).max() <= LARGEST_WEIGHT:
            raise ValueError("the gate has a weight that is too large, or not a number")
        expert = Expert(unpack_trie(stored.counting, size, stored.config.counting), size)
        if expert.least < LEAST:
            raise ValueError("the counts leave some characters no probability")
        return Mixture(expert, Gate(gate))
    except ValueError as error:
        raise CheckpointError(f"damaged: {stored.source} ({error})") from error


class Streams:
    """B texts to continue, with (N, B) histories. alone: counting predicts without the GPT."""

    def __init__(self, mixture: Mixture, prompt: Ids, count: int, alone: bool = False) -> None:
        """All texts begin with the same (n,) prompt ids."""
        self.mixture, self.alone, trie = mixture, alone, mixture.expert.trie
        last = trie.histories(prompt[max(0, len(prompt) - trie.orders + 1) :])[:, -1:]
        self._histories = np.repeat(last, count, axis=1)

    def scores(self, logits: Logits) -> Array:
        """(B, V) logits of the GPT -> (B, V) logits of the prediction."""
        if self.alone:
            return self.mixture.expert.predict(self._histories).logs
        return self.mixture.scores(logits, self._histories)

    def append(self, ids: Ids) -> None:
        """Appends the (B,) characters that were drawn."""
        self._histories = self.mixture.expert.trie.advance(self._histories, ids)

    @property
    def histories(self) -> npt.NDArray[np.int64]:
        """(N, B), see Trie.histories."""
        return self._histories


class OneStream(Streams):
    """Does what Streams does, for one text and in a third of the time."""

    def __init__(self, mixture: Mixture, prompt: Ids, alone: bool = False) -> None:
        self.mixture, self.alone, self._nodes = mixture, alone, [0]
        self.append(prompt[1 - mixture.expert.trie.orders :])  # earlier ones are in no history

    def scores(self, logits: Logits) -> Array:
        """(1, V) logits of the GPT -> (1, V) logits of the prediction."""
        chances = self.mixture.cached.predict(self._nodes)
        counting: Array = np.log(chances)
        if self.alone:
            return counting[None]
        gpt = logits[0].astype(np.float64)
        gpt -= gpt.max()
        entropy = -float(chances @ counting)
        agreement = float(chances @ gpt) - math.log(np.exp(gpt).sum())
        a, b = self.mixture.gate.shares_of_position((1.0, entropy, agreement))
        gpt *= a
        counting *= b
        counting += gpt
        return counting[None]

    def append(self, ids: Ids) -> None:
        """Appends the (n,) characters that were drawn, one after the other."""
        for symbol in ids.tolist():
            self._nodes = self.mixture.cached.advance(self._nodes, symbol)

    @property
    def histories(self) -> npt.NDArray[np.int64]:
        """(N, 1)"""
        trie = self.mixture.expert.trie
        found = np.full((trie.orders, 1), trie.unseen_node)
        found[: len(self._nodes), 0] = self._nodes
        return found


def counting_streams(
    mixture: Mixture | None, ids: Ids, only: Only | None = None, texts: int = 1
) -> Streams | None:
    """The counting streams of `texts` texts after (n,) ids; None if the GPT predicts alone.

    Raises ConfigError if `only` asks for a counting expert and the model has none.
    """
    require(
        mixture is not None or only != "counting",
        "only",
        "this model was trained without counting",
    )
    if mixture is None or only == "gpt":
        return None
    alone = only == "counting"
    if texts == 1:
        return OneStream(mixture, ids, alone)
    return Streams(mixture, ids, texts, alone)
