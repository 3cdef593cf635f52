"""How the GPT and the counting expert predict together: a product of experts with a gate.

ln p(w) = a·ln p_GPT(w) + b·ln p_counting(w) − ln Z. The weights a and b are linear in features of
the two distributions, so fitting them is a convex problem (a log-linear model), solved by Newton's
method. Fitted on text that neither was trained on: counts flatter the text that was counted.
Tensor names: T positions, V vocab_size, F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.expert import Counted
from gpt.vocabulary import Ids

FEATURES = ("1", "entropy of the GPT", "its largest probability", "order", "ln count", "ln kinds")
PRIOR = 1.0  # curvature, in nats, of the penalty for weights other than ½ and ½
MOST_WEIGHT = 4.0
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # nats that the next step would gain

Array = npt.NDArray[np.float64]


def log_softmax(logits: npt.NDArray[np.floating[Any]]) -> Array:
    """(T, V) logits -> (T, V) log-probabilities in float64."""
    scores: Array = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
    scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return scores


def features(gpt: Array, counted: Counted, orders: int) -> Array:
    """(T, V) log-probabilities of the GPT, and what counting says up to so many orders -> (T, F),
    see FEATURES.
    """
    found = np.ones((len(gpt), len(FEATURES)))
    chances = np.exp(gpt)
    np.einsum("tv,tv->t", chances, -gpt, out=found[:, 1])
    chances.max(axis=1, out=found[:, 2])
    np.divide(counted.depth, orders, out=found[:, 3])
    np.log1p(counted.total, out=found[:, 4])
    np.log1p(counted.kinds, out=found[:, 5])
    return found


@dataclass(frozen=True)
class Gate:
    """weights: (2, F), so that a and b of a position are its features times the two rows."""

    weights: Array

    def shares(self, features: Array) -> Array:
        """(T, F) -> (2, T): a and b."""
        found: Array = np.minimum(np.maximum(self.weights @ features.T, 0.0), MOST_WEIGHT)
        return found

    def scores(self, gpt: Array, counting: Array, features: Array) -> Array:
        """(T, V) log-probabilities of both and (T, F) -> (T, V) the logits of the two together."""
        a, b = self.shares(features)[:, :, None]
        scores: Array = a * gpt + b * counting
        return scores


def fit_gate(gpt: Array, counting: Array, features: Array, ids: Ids) -> Gate:
    """The gate that minimises the loss of (T,) ids.

    gpt, counting: (T, V) log-probabilities; features: (T, F). With little text, the weights stay
    near ½ and ½.
    """
    count = features.shape[1]
    scale = np.abs(features).max(axis=0, initial=0.0)  # so that the prior treats all features alike
    scale[scale == 0] = 1.0
    scaled = features / scale
    prior: Array = np.zeros((2, count))
    prior[:, 0] = 0.5
    weights, step, best = prior, prior, np.inf
    for _ in range(ROUNDS):
        loss, gradient, curvature = _derivatives(weights, gpt, counting, scaled, ids)
        loss += 0.5 * PRIOR * float(((weights - prior) ** 2).sum())
        if loss > best:  # the step was too long
            step = step / 2
            weights = weights + step
            continue
        best = loss
        gradient += PRIOR * (weights - prior).ravel()
        curvature += PRIOR * np.eye(2 * count)
        step = np.linalg.solve(curvature, gradient).reshape(2, count).astype(np.float64)
        if float(step.ravel() @ gradient) < ENOUGH * len(ids):
            break
        weights = weights - step
    return Gate(weights / scale)


def _derivatives(
    weights: Array, gpt: Array, counting: Array, features: Array, ids: Ids
) -> tuple[float, Array, Array]:
    """The summed loss of the ids in nats, (2F,) its gradient, (2F, 2F) its second derivatives."""
    a, b = weights @ features.T
    scores = a[:, None] * gpt + b[:, None] * counting
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    normaliser = chances.sum(axis=1)
    chances /= normaliser[:, None]
    rows = np.arange(len(ids))
    loss = float((np.log(normaliser) - scores[rows, ids]).sum())
    experts = gpt, counting
    means = [np.einsum("tv,tv->t", chances, each) for each in experts]
    missed = [mean - each[rows, ids] for mean, each in zip(means, experts, strict=True)]
    gradient = np.concatenate([each @ features for each in missed])

    def covariance(i: int, j: int) -> Array:
        spread = np.einsum("tv,tv,tv->t", chances, experts[i], experts[j]) - means[i] * means[j]
        found: Array = (features * spread[:, None]).T @ features
        return found

    cross = covariance(0, 1)
    return loss, gradient, np.block([[covariance(0, 0), cross], [cross.T, covariance(1, 1)]])
