"""Counted n-grams: fast counting equals the definition and gives a distribution."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kneser_ney import Definition

from gpt.corpus.sources import Texts
from gpt.counting import baseline as counting
from gpt.counting.baseline import (
    MOST,
    ORDERS,
    HeldOutPieces,
    count_baseline,
    count_experts,
    kneser_ney,
)
from gpt.counting.tables import count_levels
from gpt.storage.checkpoint_files import Baseline
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
    (source,) = Texts().sources(tmp_path_factory.mktemp("data"))
    return source.path.read_text(encoding="utf-8")


def counted(text: str) -> Baseline:
    """Counting's losses on the last tenth of a text."""
    vocabulary = Vocabulary.from_text(text)
    ids = vocabulary.encode(text)
    boundary = int(0.9 * len(ids))
    return count_baseline(ids[:boundary], ids[boundary:], len(vocabulary))


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


@pytest.mark.parametrize(
    ("characters", "vocab_size"),
    [(1, 2), (100, 65), (1_000, 30_000), (18_000, 2), (1_003_854, 65), (5_000_000, 30_000)],
)
def test_pieces_are_few_and_apart_from_what_is_counted_to_fit_the_gate(
    characters: int, vocab_size: int
) -> None:
    held = HeldOutPieces.of_split(characters, vocab_size)
    places = np.arange(characters)
    inside = held.contains(places)
    assert inside.sum() == held.length * len(held.starts)
    assert inside.sum() <= min(MOST, characters / 20)
    assert held.share == inside.mean()
    expected = np.concatenate([start + np.arange(held.length) for start in held.starts] or [[]])
    assert np.array_equal(places[inside], expected)
    ids = places.astype("u4")
    margin = (characters - held.start) // 100
    near = np.zeros(characters, bool)
    for start in held.starts:
        near[max(0, start - margin) : start + held.length + margin] = True
    assert np.array_equal(held.without_pieces(ids), places[held.start :][~near[held.start :]])
    assert (~near[held.start :]).mean() > 0.75


@pytest.mark.parametrize("size", [60, 5000])
def test_experts_of_random_text_take_less_than_160_bytes_a_character_and_keep_60(size: int) -> None:
    ids = np.random.default_rng(1).integers(0, size, 2**17).astype(np.min_scalar_type(size - 1))
    tracemalloc.start()
    try:
        experts = count_experts(ids, size, 8)
        kept, most = (each / len(ids) for each in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    held = experts.held.nbytes / len(ids)
    kept, most = kept - held, most - held
    assert (kept < 60, most < 160) == (True, True), (kept, most)
