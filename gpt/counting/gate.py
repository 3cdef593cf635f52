"""How the GPT and the counting expert predict together: a product of experts with a gate.

ln p(w) = a·ln p_GPT(w) + b·ln p_counting(w) − ln Z. The weights a and b are linear in features that
do not depend on w, so fitting them is a convex problem (a log-linear model), solved by Newton's
method. Fitted on text that neither was trained on (gpt/counting/held_out.py).
Tensor names: T positions, V vocab_size, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.expert import Counted
from gpt.counting.tables import Numbers
from gpt.vocabulary import Ids

#: count and kinds are those of the longest history that something followed; likeliest is the GPT's
#: largest probability; read is how many characters the GPT has read; entropy is that of counting;
#: agreement is the mean of the GPT's log-probabilities, weighted by counting's probabilities.
FEATURES = (
    *("1", "ln count", "ln kinds", "ln likeliest", "1 / read"),
    *("entropy · ln likeliest", "entropy · ln kinds", "agreement"),
)
OLDER = 5  # features of earlier versions: the first ones
PRIOR = 1.0  # curvature, in nats, of the penalty for weights other than ½ and ½
MOST_WEIGHT = 4.0
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # nats that the next step would gain

Array = npt.NDArray[np.float64]
Logits = npt.NDArray[np.floating[Any]]


def log_softmax(logits: Logits) -> Array:
    """(T, V) logits -> (T, V) log-probabilities in float64; NaN for logits that are not finite."""
    with np.errstate(invalid="ignore"):
        scores: Array = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


def features(counted: Counted, gpt: Logits, read: Numbers | int) -> Array:
    """What counting says about T characters, (T, V) logits of the GPT and how many characters the
    GPT has read -> (T, F), see FEATURES; 1 is added to count and kinds before the logarithm.
    """
    with np.errstate(invalid="ignore"):
        below = gpt - gpt.max(axis=-1, keepdims=True).astype(np.float64)
    likeliest = -np.log(np.exp(below).sum(axis=-1))
    count, kinds = np.log1p(counted.total), np.log1p(counted.kinds)
    entropy = -np.einsum("tv,tv->t", counted.chances, counted.logs)
    agreement = np.einsum("tv,tv->t", counted.chances, below) + likeliest
    one = np.ones_like(count)
    first: list[Array] = [one, count, kinds, likeliest, one / read]
    return np.stack([*first, entropy * likeliest, entropy * kinds, agreement], axis=-1)


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
    """The gate that minimises the loss of the blocks; with little text, it stays near ½ and ½."""
    count = len(FEATURES)
    scale = np.ones(count)  # so that the penalty treats all features alike
    for block in blocks:
        np.maximum(scale, np.abs(block.features).max(axis=0), out=scale)
    characters = sum(len(block.ids) for block in blocks)
    prior: Array = np.zeros((2, count))
    prior[:, 0] = 0.5
    weights, step, best = prior, prior, np.inf
    for _ in range(ROUNDS):
        loss = 0.5 * PRIOR * float(((weights - prior) ** 2).sum())
        gradient, curvature = PRIOR * (weights - prior).ravel(), PRIOR * np.eye(2 * count)
        for block in blocks:
            found = _derivatives(weights / scale, block, scale)
            loss, gradient, curvature = loss + found[0], gradient + found[1], curvature + found[2]
        if loss > best:  # the step was too long
            step = step / 2
            weights = weights + step
            continue
        best = loss
        step = np.linalg.solve(curvature, gradient).reshape(2, count).astype(np.float64)
        if float(step.ravel() @ gradient) < ENOUGH * characters:
            break
        weights = weights - step
    return Gate(weights / scale)


def _derivatives(weights: Array, block: Block, scale: Array) -> tuple[float, Array, Array]:
    """The summed loss of a block in nats, and its first and second derivatives, (2F,) and (2F, 2F),
    by the weights times `scale`.
    """
    experts, scaled = (block.gpt, block.counting), block.features / scale
    a, b = weights @ block.features.T
    scores = a[:, None] * block.gpt + b[:, None] * block.counting
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    normaliser = chances.sum(axis=1)
    chances /= normaliser[:, None]
    came = np.arange(len(block.ids)), block.ids
    means = [np.einsum("tv,tv->t", chances, each) for each in experts]
    missed = [mean - each[came] for mean, each in zip(means, experts, strict=True)]

    def covariance(i: int, j: int) -> Array:
        spread = np.einsum("tv,tv,tv->t", chances, experts[i], experts[j]) - means[i] * means[j]
        found: Array = (scaled * spread[:, None]).T @ scaled
        return found

    cross = covariance(0, 1)
    return (
        float((np.log(normaliser) - scores[came]).sum()),
        np.concatenate([each @ scaled for each in missed]),
        np.block([[covariance(0, 0), cross], [cross.T, covariance(1, 1)]]),
    )
