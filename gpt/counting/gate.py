"""Fits the gate that mixes counting's predictions with a GPT's.

The GPT trains on its own loss, as if it were alone. If a gate learned at the same time, it would
ignore the GPT, as counting is better at first, and the GPT would get no gradient. Both together are
a log-linear model, so the fit is a convex problem, which Newton's method solves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.counting.baseline import PIECES, Experts, HeldOut, count_experts
from gpt.counting.mixture import COUNTING_ALONE, Array, Logits, Mixture, gate_features, slices
from gpt.counting.tables import release_memory
from gpt.vocabulary import Ids

#: (B,) starts of windows and their length -> (B · length, V) the GPT's logits after each character.
Predict = Callable[[npt.NDArray[np.int64], int], Logits]
WINDOWS = 16  # windows that the GPT computes together

#: Factors on the fitted weights of the GPT and of counting. The GPT learns the text around the
#: held-out pieces, which the counts leave out; so on these pieces it is better than on new text.
FACTORS: Array = np.array([[0.9], [1.0]])
#: Prior of the gate: a normal distribution with these means, so that a fit to a few hundred
#: characters stays near them. The means give half of each expert, whatever the features.
PRIOR_MEAN: Array = np.array([[0.5, 0.0, 0.0]] * 2)
DEVIATION = 0.1
ROUNDS = 30  # most Newton steps
ENOUGH = 1e-10  # stop if the next step would gain less, in nats


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
