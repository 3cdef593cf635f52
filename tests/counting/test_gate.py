"""The gate: a product of two experts whose fit is the best one, also on little text."""

from __future__ import annotations

import math
from operator import mul

import numpy as np
import pytest
from conftest import TEXT

from gpt.counting import mixture as gates
from gpt.counting.expert import Array, Expert
from gpt.counting.mixture import (
    DEVIATION,
    FEATURES,
    PRIOR_MEAN,
    Block,
    Gate,
    Mixture,
    OneStream,
    Streams,
    fit_gate,
    gate_features,
    log_softmax,
)
from gpt.counting.tables import count
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
IDS = VOCABULARY.encode(TEXT)
SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def expert() -> Expert:
    return Expert(count(IDS[:-400], SIZE, 5), SIZE)


@pytest.fixture(scope="module")
def logits() -> Array:
    """(401, SIZE): a poor GPT, that knows the next character of the last 400 in half the cases."""
    generator = np.random.default_rng(3)
    found = generator.normal(size=(401, SIZE))
    known = generator.random(400) < 0.5
    found[:-1][np.arange(400)[known], IDS[-400:][known]] += 4
    return found


def parts(expert: Expert, logits: Array) -> tuple[Array, Array, Array]:
    histories = expert.trie.histories(IDS[-400:])
    counted = expert.predict(histories)
    counting, seen = np.log(counted.chances), gate_features(counted, logits)
    return logits[:-1], counting[:-1], seen[:-1]


def cut(gpt: Array, counting: Array, seen: Array) -> list[Block]:
    """The text in three blocks."""
    ids = IDS[-400:]
    parts = slice(0, 128), slice(128, 300), slice(300, 400)
    return [Block(gpt[part], counting[part], seen[part], ids[part]) for part in parts]


def test_features_are_those_of_their_names(expert: Expert, logits: Array) -> None:
    counted = expert.predict(expert.trie.histories(IDS[-400:]))
    seen = gate_features(counted, logits)
    for place in (0, 1, 7, 250, 400):
        gpt = [score - math.log(sum(map(math.exp, logits[place]))) for score in logits[place]]
        chances = counted.chances[place].tolist()
        expected = {
            "1": 1.0,
            "entropy": -sum(chance * math.log(chance) for chance in chances),
            "agreement": sum(map(mul, chances, gpt)),
        }
        assert dict(zip(FEATURES, seen[place], strict=True)) == pytest.approx(expected, rel=1e-12)


def test_the_derivatives_are_those_of_the_loss(expert: Expert, logits: Array) -> None:
    gpt, counting, seen = parts(expert, logits)
    weights = np.random.default_rng(0).normal(0.3, 0.1, (2, len(FEATURES)))

    def at(flat: Array) -> tuple[float, Array, Array]:
        block = Block(gpt, counting, seen, IDS[-400:])
        return gates._derivatives(flat.reshape(2, -1), block)

    _, gradient, curvature = at(weights.ravel())
    for number in range(2 * len(FEATURES)):
        shift = np.zeros(2 * len(FEATURES))
        shift[number] = 1e-5
        above, below = at(weights.ravel() + shift), at(weights.ravel() - shift)
        assert (above[0] - below[0]) / 2e-5 == pytest.approx(gradient[number], rel=1e-5, abs=1e-3)
        assert (above[1] - below[1]) / 2e-5 == pytest.approx(curvature[number], rel=1e-4, abs=1e-2)


def test_no_other_gate_near_the_fitted_one_is_likelier(expert: Expert, logits: Array) -> None:
    blocks = cut(*parts(expert, logits))
    fitted = fit_gate(blocks)

    def unlikely(gate: Gate) -> float:
        """−ln of its probability, but for a constant."""
        usual = 0.5 * (((gate.weights - PRIOR_MEAN) / DEVIATION) ** 2).sum()
        text = sum(gates._derivatives(gate.weights, block)[0] for block in blocks)  # not clipped
        return text + float(usual)

    best = unlikely(fitted)
    generator = np.random.default_rng(1)
    for size in (0.001, 0.01, 0.1):
        for _ in range(20):
            other = Gate(fitted.weights + generator.normal(0, size, fitted.weights.shape))
            assert unlikely(other) > best


def test_without_text_the_gate_is_the_usual_one() -> None:
    assert fit_gate([]).weights == pytest.approx(PRIOR_MEAN)


def test_weights_are_never_negative(expert: Expert, logits: Array) -> None:
    _, _, seen = parts(expert, logits)
    shares = Gate(-np.eye(2, len(FEATURES))[:1].repeat(2, axis=0)).shares(seen)
    assert (shares == 0).all()


def test_both_together_are_a_distribution(expert: Expert, logits: Array) -> None:
    mixture = Mixture(expert, fit_gate(cut(*parts(expert, logits))))
    together = mixture.predict(logits, expert.trie.histories(IDS[-400:]))
    for each in (together.gpt, together.counting, together.both):
        assert np.abs(np.exp(each).sum(axis=1) - 1).max() < 1e-12
    scores = mixture.scores(logits, expert.trie.histories(IDS[-400:]))
    assert log_softmax(scores) == pytest.approx(together.both, abs=1e-12)


def test_streams_follow_what_is_drawn(expert: Expert, logits: Array) -> None:
    mixture = Mixture(expert, fit_gate(cut(*parts(expert, logits))))
    text = IDS[-400:]
    expected = mixture.scores(logits, expert.trie.histories(text))
    whole = expert.trie.histories(text)
    alone = np.log(expert.predict(whole).chances)
    two, two_alone = Streams(mixture, text[:10], 2), Streams(mixture, text[:10], 2, alone=True)
    one, one_alone = OneStream(mixture, text[:10]), OneStream(mixture, text[:10], alone=True)
    for place in range(10, 400):
        both = log_softmax(expected[place : place + 1])
        for streams in (one, two, one_alone, two_alone):
            n = streams.histories.shape[1]
            assert np.array_equal(streams.histories, np.repeat(whole[:, place, None], n, axis=1))
            found = log_softmax(streams.scores(np.repeat(logits[place : place + 1], n, axis=0)))
            wanted = alone[place : place + 1] if streams.alone else both
            assert found == pytest.approx(np.repeat(wanted, n, axis=0), abs=1e-12)
            streams.append(np.repeat(text[place], n))
