"""Fits the gate that mixes counting's predictions with a GPT's.

Both together are a log-linear model, so the fit is a convex problem, which Newton's method solves.
"""

from __future__ import annotations

import numpy as np

from gpt.counting.mixture import Array, Logits, gate_features, slices
from gpt.vocabulary import Ids

#: Factors on the fitted weights of the GPT and of counting. The GPT learns the text around the
#: held-out pieces, which the counts leave out; so on these pieces it is better than on new text.
FACTORS: Array = np.array([[0.9], [1.0]])
#: Prior of the gate: a normal distribution with these means, so that a fit to a few hundred
#: characters stays near them. The means give half of each expert, whatever the features.
PRIOR_MEAN: Array = np.array([[0.5, 0.0, 0.0]] * 2)
DEVIATION = 0.1
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # stop if the next step would gain less, in nats


def fit_gate(gpt: Logits, counting: Logits, ids: Ids) -> Array:
    """(T, V) logits of the GPT, (T, V) log-probabilities of counting, and the (T,) ids that follow
    -> (2, F) the most likely gate, given these and the prior.
    """
    features = np.empty((len(ids), PRIOR_MEAN.shape[1]))
    for part in slices(*gpt.shape):
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
    """The summed loss in nats, and its first and second derivatives with respect to the gate, (2F,)
    and (2F, 2F).
    """
    size = gate.size
    loss, gradient, curvature = 0.0, np.zeros(size), np.zeros((size, size))
    for part in slices(*gpt.shape):
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
