"""The gate: a product of two experts whose fit is the best one, also on little text."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from conftest import TEXT

from gpt.config import ModelConfig
from gpt.counting import mixture as mixing
from gpt.counting.baseline import Counting
from gpt.counting.mixture import (
    COUNTING_ALONE,
    FEATURES,
    Array,
    Expert,
    Mixture,
    counting_streams,
    fit_gate,
    gate_features,
    log_softmax,
)
from gpt.counting.tables import Numbers, count_ngrams
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
IDS = VOCABULARY.encode(TEXT)
SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def expert() -> Expert:
    return Expert(count_ngrams(IDS[:-400], SIZE, 5), SIZE)


@pytest.fixture(scope="module")
def logits() -> Array:
    """(401, SIZE): a poor GPT, that knows the next character of the last 400 in half the cases."""
    generator = np.random.default_rng(3)
    found = generator.normal(size=(401, SIZE))
    known = generator.random(400) < 0.5
    found[:-1][np.arange(400)[known], IDS[-400:][known]] += 4
    return found


def histories(expert: Expert) -> Numbers:
    """Before each of the last 400 characters, and after them."""
    return expert.trie.histories_at(IDS[-400:], np.array([0]), 401)


def parts(expert: Expert, logits: Array) -> tuple[Array, Array, Array]:
    """Logits, log-probabilities of counting and features, for the last 400 characters."""
    chances = expert.predict(histories(expert))
    counting = np.log(chances)
    return logits[:-1], counting[:-1], gate_features(logits, counting, chances)[:-1]


def fitted(expert: Expert, logits: Array) -> Array:
    gpt, counting, _ = parts(expert, logits)
    return fit_gate(gpt, counting, IDS[-400:])


def test_the_derivatives_are_those_of_the_loss(expert: Expert, logits: Array) -> None:
    gpt, counting, seen = parts(expert, logits)
    gate = np.random.default_rng(0).normal(0.3, 0.1, (2, len(FEATURES)))

    def at(flat: Array) -> tuple[float, Array, Array]:
        return mixing._derivatives(flat.reshape(2, -1), gpt, counting, seen, IDS[-400:])

    _, gradient, curvature = at(gate.ravel())
    for number in range(2 * len(FEATURES)):
        shift = np.zeros(2 * len(FEATURES))
        shift[number] = 1e-5
        above, below = at(gate.ravel() + shift), at(gate.ravel() - shift)
        assert (above[0] - below[0]) / 2e-5 == pytest.approx(gradient[number], rel=1e-5, abs=1e-3)
        assert (above[1] - below[1]) / 2e-5 == pytest.approx(curvature[number], rel=1e-4, abs=1e-2)


def test_both_together_are_a_distribution(expert: Expert, logits: Array) -> None:
    mixture = Mixture(expert, fitted(expert, logits))
    together = mixture.predict(logits, histories(expert))
    for logs in (together.gpt, together.counting, together.both):
        assert np.abs(np.exp(logs).sum(axis=1) - 1).max() < 1e-12
    scores = mixture.scores(logits, histories(expert))
    assert log_softmax(scores) == pytest.approx(together.both, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2])
def test_streams_follow_what_is_drawn(expert: Expert, logits: Array, n: int) -> None:
    mixture, text = Mixture(expert, fitted(expert, logits)), IDS[-400:]
    both = log_softmax(mixture.scores(logits, histories(expert)))
    counting = np.log(expert.predict(histories(expert)))
    together = counting_streams(mixture, text[:10], None, n)
    alone = counting_streams(mixture, text[:10], "counting", n)
    assert together is not None
    assert alone is not None
    assert counting_streams(mixture, text[:10], "gpt", n) is None
    for place in range(10, 400):
        for streams, expected in ((together, both), (alone, counting)):
            scores = log_softmax(streams.scores(np.repeat(logits[place : place + 1], n, axis=0)))
            assert scores == pytest.approx(np.tile(expected[place], (n, 1)), abs=1e-12)
            streams.append(np.repeat(text[place], n))


def equal_logits(logit: float, starts: Numbers, length: int) -> Array:
    return np.full((len(starts) * length, SIZE), logit, np.float32)


def test_a_gpt_without_finite_logits_leaves_the_prediction_to_counting() -> None:
    counting = Counting(IDS, ModelConfig(vocab_size=SIZE, counting=3, block_size=16))
    for step, logit in ((0, 0.0), (1, np.nan), (2, 0.0)):
        mixture = counting.mixture(step, partial(equal_logits, logit))
        assert mixture is not None
        assert (mixture.gate is COUNTING_ALONE) == (step < 2)
