"""Counting that begins before torch is imported gives what counting later gives."""

from __future__ import annotations

import numpy as np

from gpt.counting.ahead import CountedAhead, count_experts
from gpt.counting.baseline import count_baseline

IDS = np.random.default_rng(1).integers(0, 5, 3000).astype(np.uint8)


def test_counts_begun_before_are_those_of_a_training() -> None:
    ahead = CountedAhead(IDS[:2700], IDS[2700:], 5, 4)
    assert ahead.baseline() == count_baseline(IDS[:2700], IDS[2700:], 5)
    begun, later = ahead.experts(4), count_experts(IDS[:2700], 5, 4)
    assert begun is not None
    for one, other in zip(begun, later, strict=True):
        found, expected = one.result().trie.packed(), other.result().trie.packed()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    whole, apart = (each.result().trie.counts.sum() for each in begun)
    assert apart < whole


def test_experts_of_other_orders_are_not_used() -> None:
    assert CountedAhead(IDS[:2700], IDS[2700:], 5, 4).experts(3) is None
    assert CountedAhead(IDS[:2700], IDS[2700:], 5, 0).experts(0) is None
