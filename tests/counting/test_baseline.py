"""Counted n-grams: fast counting equals the definition and gives a distribution."""

from __future__ import annotations

import io
import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kneser_ney import Definition

from gpt.corpus.sources import find_sources
from gpt.counting import baseline as counting
from gpt.counting.baseline import ORDERS, count_baseline, kneser_ney
from gpt.counting.mixture import estimate_discounts
from gpt.counting.tables import MOST_CHARACTERS, count_levels
from gpt.storage.manifest import Baseline
from gpt.vocabulary import Vocabulary


def slowly(
    train: Sequence[int], val: Sequence[int], vocab_size: int, orders: int
) -> list[list[float]]:
    """The probabilities of each order as the paper defines them."""
    text, defined = [*train, *val], Definition(train, vocab_size, orders)
    places = range(len(train) + 1, len(text))  # the first character of val is context only
    return [
        [
            defined.probability(text[max(0, place - order) : place], text[place], order)
            for place in places
        ]
        for order in range(1, orders + 1)
    ]


def losses_of(probabilities: list[list[float]]) -> list[float]:
    return [-sum(map(math.log, each)) / len(each) for each in probabilities]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 5).flatmap(
        lambda size: st.tuples(
            st.just(size),
            st.lists(st.integers(0, size - 1), min_size=1, max_size=80),
            st.lists(st.integers(0, size - 1), min_size=2, max_size=30),
        )
    ),
    st.integers(1, ORDERS),
)
@example((1, [0] * 40, [0] * 9), 8)  # one distinct character
@example((4, [0, 1, 2], [3, 2, 1, 0, 1, 2]), 8)  # shorter than the order; no gram twice
@example((4, [0, 1, 0, 1, 0, 1], [2, 3, 2, 3]), 3)  # histories that were never seen
@example((2, [0], [1, 0]), 2)  # no pair at all
def test_fast_counting_equals_the_definition(
    drawn: tuple[int, list[int], list[int]], orders: int
) -> None:
    vocab_size, train, val = drawn
    ids = np.array(train, "u1")
    levels = count_levels(ids, vocab_size, orders)
    fast = list(kneser_ney(levels, ids, np.array(val, "u1"), vocab_size))
    slow = slowly(train, val, vocab_size, orders)
    assert np.array(fast) == pytest.approx(np.array(slow), rel=1e-9, abs=0)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The embedded corpus of this Python."""
    (source,) = find_sources([], tmp_path_factory.mktemp("data"), io.BytesIO())
    return source.path.read_text(encoding="utf-8")


def counted(text: str) -> Baseline:
    """Counting's losses on the last tenth of a text."""
    vocabulary = Vocabulary.from_text(text)
    ids = vocabulary.encode(text)
    boundary = int(0.9 * len(ids))
    return count_baseline(ids[:boundary], ids[boundary:], len(vocabulary))


def test_fast_counting_equals_the_definition_on_a_real_text(reference: str) -> None:
    """A long text has all the counts of counts that discounts need; a short text rarely does."""
    text = reference[:12_000]
    vocabulary = Vocabulary.from_text(text)
    ids = vocabulary.encode(text).tolist()
    train, val = ids[:10_800], ids[10_800:]
    levels = Definition(train, len(vocabulary), ORDERS).counted
    assert all(level.discounts[1] != 0.5 for level in levels[1:-1])
    slow = losses_of(slowly(train, val, len(vocabulary), ORDERS))
    assert counted(text).losses == pytest.approx(slow, rel=0, abs=1e-12)


def test_best_order_reaches_the_known_loss_on_the_embedded_text(reference: str) -> None:
    """1.1213 nats on the text of Python 3.11.7 (Witten–Bell, before: 1.320); 3.10: 1.115, 3.12:
    1.155, 3.13: 1.164.
    """
    found = counted(reference)
    assert found.order == 8
    assert 1.10 < found.nats < 1.18
    if found.counted == 418_543:  # for this text; other Python versions have longer or shorter ones
        expected = [3.2376, 2.3166, 1.6941, 1.3439, 1.2051, 1.1592, 1.1397, 1.1213]
        assert found.losses == pytest.approx(expected, rel=0, abs=0.002)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 1, 1, 1, 2, 2, 3, 4], [0, 0.5, 1.25, 1]),
        ([1, 1, 1, 2, 2, 3, 3, 4], [0, 3 / 7, 5 / 7, 15 / 7]),
        ([1, 1, 3, 4], [0, 0.5, 1, 1.5]),  # no count of two
        ([1, 2, 3, 5], [0, 0.5, 1, 1.5]),  # no count of four
        ([7] * 9, [0, 0.5, 1, 1.5]),
        ([1, 2, 3, 3, 3, 3, 4], [0, 0.5, 1, 1.5]),  # the second would be 2 − 4
    ],
)
def test_discounts_follow_from_counts_of_counts(counts: list[int], expected: list[float]) -> None:
    found = estimate_discounts(np.array([0, 0, *counts, 99], np.int32))
    assert found.tolist() == pytest.approx(expected)


def test_the_largest_numbers_fit_64_bits() -> None:
    most = MOST_CHARACTERS
    largest = (most * 0x110000 + 0x10FFFF).bit_length() + (most - 1).bit_length()
    assert largest <= 64


def test_counting_a_large_vocabulary_does_not_overflow() -> None:
    size = 0x110000
    text = np.random.default_rng(0).choice([0, 1, 70_000, size - 2, size - 1], 4_000)
    train, val = text[:3_900].astype("u4"), text[3_900:].astype("u4")
    slow = losses_of(slowly(train.tolist(), val.tolist(), size, ORDERS))
    found = count_baseline(train, val, size).losses
    assert found == pytest.approx(slow, rel=0, abs=1e-9)


def test_one_distinct_character_has_no_loss() -> None:
    zeros = np.zeros(50, "u1")
    found = count_baseline(zeros[:40], zeros[40:], 1)
    assert found == Baseline((0.0,) * ORDERS, 40, 9)
    assert "-" not in str(found.losses)


def test_only_the_part_around_the_split_of_a_long_text_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "MOST_CHARACTERS", 50)
    monkeypatch.setattr(counting, "MOST_VAL", 20)
    ids = np.random.default_rng(1).integers(0, 5, 400)
    train, val = ids[:300].tolist(), ids[300:].tolist()
    slow = losses_of(slowly(train[-50:], val[:21], 5, ORDERS))
    found = count_baseline(ids[:300], ids[300:], 5)
    assert found.losses == pytest.approx(slow, rel=0, abs=1e-9)
    assert (found.counted, found.scored) == (50, 20)


@pytest.mark.parametrize("size", [256, 5000])
def test_counting_random_text_takes_less_than_eighty_bytes_a_character(size: int) -> None:
    ids = np.random.default_rng(1).integers(0, size, 2**19).astype(np.min_scalar_type(size - 1))
    tracemalloc.start()
    try:
        count_baseline(ids, ids[: 2**18], size)
        baseline = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        list(count_levels(ids, size, 2))
        tables = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(baseline, tables) < 80 * len(ids), (baseline / len(ids), tables / len(ids))
