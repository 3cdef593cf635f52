"""Counted n-grams: the fast count equals a slow and plain one, and is a distribution."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from conftest import TEXT
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.training import ngrams
from gpt.training.ngrams import witten_bell
from gpt.vocabulary import Vocabulary


def slowly(train: Sequence[int], val: Sequence[int], vocab_size: int, orders: int) -> list[float]:
    """Interpolated Witten–Bell as the books have it: dictionaries and recursion."""
    followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for order in range(1, orders + 1):
        for end in range(order - 1, len(train)):
            followers[tuple(train[end - order + 1 : end])][train[end]] += 1
    text = [*train, *val]

    def probability(place: int, order: int) -> float:
        if order == 0:
            return 1 / vocab_size
        shorter = probability(place, order - 1)
        history = tuple(text[max(0, place - order + 1) : place])
        if len(history) < order - 1 or history not in followers:
            return shorter
        seen = followers[history]
        return (seen[text[place]] + len(seen) * shorter) / (seen.total() + len(seen))

    places = range(len(train) + 1, len(text))  # the first character of val is context only
    return [
        -sum(math.log(probability(place, order)) for place in places) / len(places)
        for order in range(1, orders + 1)
    ]


@pytest.mark.parametrize("bits", [64, 0])  # packed into one number, or not
@pytest.mark.parametrize("at_once", [2**18, 3])
@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(1, 4), st.integers(1, 6))
def test_the_fast_count_equals_the_slow_one(
    bits: int, at_once: int, data: st.DataObject, vocab_size: int, orders: int
) -> None:
    characters = st.integers(0, vocab_size - 1)
    train = data.draw(st.lists(characters, min_size=1, max_size=60))
    val = data.draw(st.lists(characters, min_size=2, max_size=30))
    with mock.patch.multiple(ngrams, PACKED_BITS=bits, AT_ONCE=at_once):
        fast = witten_bell(np.array(train, "u1"), np.array(val, "u1"), vocab_size, orders)
    assert fast == pytest.approx(slowly(train, val, vocab_size, orders), rel=0, abs=1e-9)


def test_a_large_vocabulary_does_not_overflow() -> None:
    size = 0x110000
    text = np.random.default_rng(0).choice([0, 1, 70_000, size - 2, size - 1], 4_000)
    train, val = text[:3_900].astype("u4"), text[3_900:].astype("u4")
    slow = slowly(train.tolist(), val.tolist(), size, 5)
    assert witten_bell(train, val, size) == pytest.approx(slow, rel=0, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 3))
def test_each_order_is_a_distribution(train: list[int], before: int) -> None:
    ids = np.array(train)
    losses = [witten_bell(ids, np.array([before, character]), 4) for character in range(4)]
    assert np.exp(-np.array(losses)).sum(axis=0) == pytest.approx(np.ones(5), abs=1e-12)


def test_one_character_is_no_surprise() -> None:
    zeros = np.zeros(50, "u1")
    assert witten_bell(zeros[:40], zeros[40:], 1) == [0.0] * 5


def test_what_train_never_had_leaves_it_to_the_uniform() -> None:
    # 3 characters of one kind: an unknown one keeps 1 · 1/4 of 3 + 1 counts, at every order.
    losses = witten_bell(np.zeros(3, "u1"), np.array([1, 2, 3], "u1"), 4)
    assert losses == pytest.approx([math.log(16)] * 5)


def test_longer_histories_help_where_a_text_repeats_itself() -> None:
    vocabulary = Vocabulary.from_text(TEXT)
    ids = vocabulary.encode(TEXT)
    losses = witten_bell(ids[:-300], ids[-300:], len(vocabulary))
    assert losses == sorted(losses, reverse=True)
    assert math.log(len(vocabulary)) > losses[0] > 3 * losses[-1]


def test_long_texts_are_cut_to_what_lies_around_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "MOST_TRAIN", 50)
    monkeypatch.setattr(ngrams, "MOST_VAL", 20)
    ids = np.random.default_rng(1).integers(0, 5, 400)
    train, val = ids[:300].tolist(), ids[300:].tolist()
    slow = slowly(train[-50:], val[:20], 5, 5)
    assert witten_bell(ids[:300], ids[300:], 5) == pytest.approx(slow, rel=0, abs=1e-9)
