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

from gpt.counting.expert import Counted
from gpt.counting.tables import AT_ONCE, Numbers
from gpt.vocabulary import Ids

#: count and kinds are those of the longest history that something followed; likeliest is the GPT's
#: largest probability; read is how many characters the GPT has read; entropy is that of counting;
#: agreement is the mean of the GPT's log-probabilities, weighted by counting's probabilities.
FEATURES = (
    *("1", "ln count", "ln kinds", "ln likeliest", "1 / read"),
    *("entropy · ln likeliest", "entropy · ln kinds", "agreement"),
)
#: (2, 2, F) means and standard deviations of the weights before they are fitted: those of the gates
#: of twelve texts (English, Slovene, Hungarian, Armenian, Japanese, Python's manual and code). The
#: GPT learned 18,000 characters of a text, the gate was fitted to the next 22,000
#: (benchmarks/gate.py).
USUAL = np.array(
    [
        [
            [0.316, -0.006, 0.009, 0.078, -0.127, -0.035, -0.002, 0.022],
            [0.711, 0.066, -0.212, -0.246, 0.256, 0.131, 0.046, -0.02],
        ],
        [
            [0.09, 0.044, 0.133, 0.133, 0.087, 0.055, 0.026, 0.01],
            [0.119, 0.057, 0.168, 0.228, 0.113, 0.093, 0.04, 0.015],
        ],
    ]
)
#: Characters held out of each of these texts. Gates of longer texts differ more from the means, so
#: the deviations grow with the characters that a gate is fitted to.
HELD = 900
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
    """The gate that is likeliest, given the blocks and that gates are distributed as USUAL says; so
    with little text it stays near the mean.
    """
    characters = sum(len(block.ids) for block in blocks)
    mean, precision = USUAL[0], USUAL[1].ravel() ** -2.0 * min(1.0, HELD / max(1, characters))
    weights, step, best = mean, np.zeros_like(mean), np.inf
    for _ in range(ROUNDS):
        away = (weights - mean).ravel()
        loss, gradient = 0.5 * float(precision @ away**2), precision * away
        curvature = np.diag(precision)
        for block in blocks:
            found = _derivatives(weights, block)
            loss, gradient, curvature = loss + found[0], gradient + found[1], curvature + found[2]
        if loss > best:  # the step was too long
            step = step / 2
            weights = weights + step
            continue
        best = loss
        step = np.linalg.solve(curvature, gradient).reshape(mean.shape).astype(np.float64)
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
