"""How the GPT and the counting expert predict together: a product of experts with a gate.

ln p(w) = a·ln p_GPT(w) + b·ln p_counting(w) − ln Z. The weights a and b are linear in features that
do not depend on w, so fitting them is a convex problem (a log-linear model), solved by Newton's
method. Fitted on text that neither was trained on (gpt/counting/held_out.py).
Tensor names: T positions, V vocab_size, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.expert import AT_ONCE, Counted
from gpt.vocabulary import Ids

#: entropy is that of counting's prediction; agreement is the mean of the GPT's log-probabilities,
#: weighted by counting's probabilities. Both in nats.
FEATURES = ("1", "entropy", "agreement")
#: Before they are fitted, the weights are normally distributed around these means, so that a fit to
#: a few hundred characters stays near them: half of each expert, whatever the features.
USUAL = np.array([[0.5, 0.0, 0.0]] * 2)
DEVIATION = 0.1
MOST_WEIGHT = 4.0
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # nats that the next step would gain

Array = npt.NDArray[np.float64]
Logits = npt.NDArray[np.floating[Any]]


def parts(characters: int, vocab_size: int) -> Iterator[slice]:
    """The characters whose probabilities are computed at the same time."""
    rows = max(1, AT_ONCE // vocab_size)
    return (slice(first, first + rows) for first in range(0, characters, rows))


def log_softmax(logits: Logits) -> Array:
    """(T, V) logits -> (T, V) log-probabilities in float64; NaN for logits that are not finite."""
    with np.errstate(invalid="ignore"):
        scores: Array = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


def features(counted: Counted, gpt: Logits) -> Array:
    """What counting says about T characters, (T, V) logits of the GPT -> (T, F) FEATURES."""
    with np.errstate(invalid="ignore"):
        below = gpt - gpt.max(axis=-1, keepdims=True).astype(np.float64)
    normaliser = np.log(np.exp(below).sum(axis=-1))
    entropy = -np.einsum("tv,tv->t", counted.chances, counted.logs)
    agreement = np.einsum("tv,tv->t", counted.chances, below) - normaliser
    return np.stack([np.ones_like(entropy), entropy, agreement], axis=-1)


@dataclass(frozen=True)
class Gate:
    """weights: (2, F), so that a and b of a position are its features times the two rows."""

    weights: Array

    def scaled(self, factor: float) -> Gate:
        """The gate with the GPT's weight multiplied by `factor`."""
        return Gate(self.weights * [[factor], [1.0]])

    def shares(self, features: Array) -> Array:
        """(T, F) -> (2, T): a and b."""
        found: Array = np.minimum(np.maximum(self.weights @ features.T, 0.0), MOST_WEIGHT)
        return found

    def shares_of_one(self, features: Sequence[float]) -> tuple[float, float]:
        """F features -> a and b."""
        a, b = (sum(map(mul, row, features)) for row in self._rows)
        return min(max(a, 0.0), MOST_WEIGHT), min(max(b, 0.0), MOST_WEIGHT)

    @cached_property
    def _rows(self) -> list[list[float]]:
        rows: list[list[float]] = self.weights.tolist()
        return rows

    def scores(self, gpt: Logits, counting: Array, features: Array) -> Array:
        """(T, V) logits of the GPT, (T, V) log-probabilities of counting and (T, F) -> (T, V) the
        logits of the two together.
        """
        a, b = self.shares(features)[:, :, None]
        scores: Array = a * gpt + b * counting
        return scores


#: Weights 0 and 1 everywhere.
COUNTING_ALONE = Gate(np.eye(2, len(FEATURES), -1) * [[0], [1]])


@dataclass(frozen=True)
class Block:
    """A part of the text that the gate is fitted to: (T, V) logits of the GPT and log-probabilities
    of counting, (T, F) features, and (T,) the ids that came.
    """

    gpt: Logits
    counting: Logits
    features: Array
    ids: Ids


def fit_gate(blocks: Sequence[Block]) -> Gate:
    """The gate that is likeliest, given the blocks and how gates are distributed without them."""
    characters = sum(len(block.ids) for block in blocks)
    precision, weights, step, best = DEVIATION**-2, USUAL, np.zeros_like(USUAL), np.inf
    for _ in range(ROUNDS):
        away = (weights - USUAL).ravel()
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
        step = np.linalg.solve(curvature, gradient).reshape(USUAL.shape).astype(np.float64)
        if float(step.ravel() @ gradient) < ENOUGH * characters:
            break
        weights = weights - step
    return Gate(weights)


def _derivatives(weights: Array, block: Block) -> tuple[float, Array, Array]:
    """The summed loss of a block in nats, and its first and second derivatives by the weights,
    (2F,) and (2F, 2F).
    """
    characters, features = len(block.ids), block.features
    a, b = weights @ features.T
    loss, missed, spread = (
        np.empty(characters),
        np.empty((2, characters)),
        np.empty((3, characters)),
    )
    for part in parts(characters, block.gpt.shape[1]):
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
