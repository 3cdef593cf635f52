"""The counting expert's distributions equal the definition, in rational numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from conftest import TEXT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kneser_ney import Definition

from gpt.counting import mixture as experts
from gpt.counting import tables
from gpt.counting.mixture import CachedExpert, Expert
from gpt.counting.tables import count_ngrams, unpack_trie
from gpt.vocabulary import Vocabulary


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.integers(1, 8),
)
@example([0] * 40, [0] * 9, 8)  # one distinct character
@example([0, 1, 2], [4, 4, 4], 8)  # a text shorter than the order; unknown characters
@example([0, 1, 0, 1, 0, 1, 2, 2, 2, 1, 1, 0, 3, 3, 2] * 4, [0, 1, 2, 2], 5)  # estimated discounts
def test_a_distribution_equals_its_definition_in_rational_numbers(
    train: list[int], history: list[int], orders: int
) -> None:
    expert = Expert(count_ngrams(np.array(train, "u1"), 5, orders), 5)
    after = expert.trie.histories_at(np.array(history, "u1"), np.array([len(history)]), 1)
    defined = Definition(train, 5, orders, one=Fraction(1))
    expected = [defined.probability(history, character, orders) for character in range(5)]
    assert sum(expected) == 1
    cached, nodes = CachedExpert(expert), [0]
    for symbol in history:
        nodes = cached.advance(nodes, symbol)
    both = expert.predict(after)[0], cached.predict(nodes), cached.predict(nodes)
    for found in both:
        assert found == pytest.approx([float(each) for each in expected], rel=1e-12, abs=0)


@pytest.fixture(scope="module")
def counted() -> tuple[Expert, np.ndarray]:
    vocabulary = Vocabulary.from_text(TEXT)
    ids = vocabulary.encode(TEXT)
    return Expert(count_ngrams(ids[:-200], len(vocabulary), 6), len(vocabulary)), ids


@pytest.mark.parametrize("most", [0, 1000, 2**21])
def test_distributions_sum_to_one_and_are_the_same_one_by_one(
    counted: tuple[Expert, np.ndarray], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(experts, "MOST_CACHED", most)
    expert, ids = counted
    cached, nodes = CachedExpert(expert), [0]
    together = expert.predict(expert.trie.histories_at(ids[-200:], np.array([0]), 201))
    assert together.min() > 0
    assert np.abs(together.sum(axis=1) - 1).max() < 1e-12
    for place in range(200):
        chances = cached.predict(nodes)
        assert chances == pytest.approx(together[place], rel=1e-13, abs=0)
        nodes = cached.advance(nodes, int(ids[-200:][place]))
    assert len(cached._cached) * len(chances) <= most + len(chances)


@pytest.mark.parametrize("orders", [1, 2, 8])
def test_orders_that_would_exceed_the_limit_are_not_counted(
    orders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.random.default_rng(0).integers(0, 12, 3000).astype("u1")
    whole, fewer = count_ngrams(ids, 12, 8), count_ngrams(ids, 12, orders)
    monkeypatch.setattr(tables, "MOST_GRAMS", whole.ends[orders] - 1)
    assert count_ngrams(ids, 12, 8).orders == max(1, orders - 1)
    monkeypatch.setattr(tables, "MOST_GRAMS", whole.ends[orders])
    arrays = count_ngrams(ids, 12, 8).stored_arrays()
    for name, array in fewer.stored_arrays().items():
        assert np.array_equal(arrays[name], array)
    assert unpack_trie(arrays, 12, 8).ends == whole.ends[: orders + 1]
