"""Counting that begins before torch is imported gives what counting later gives."""

from __future__ import annotations

import numpy as np

from gpt.counting.ahead import CountedAhead, count_expert
from gpt.counting.baseline import count_baseline

IDS = np.random.default_rng(1).integers(0, 5, 3000).astype(np.uint8)


def test_counts_begun_before_are_those_of_a_training() -> None:
    ahead = CountedAhead(IDS[:2700], IDS[2700:], 5, 4)
    assert ahead.baseline() == count_baseline(IDS[:2700], IDS[2700:], 5)
    begun = ahead.expert(4)
    assert begun is not None
    found, expected = begun.result().trie.packed(), count_expert(IDS[:2700], 5, 4).trie.packed()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_an_expert_of_other_orders_is_not_used() -> None:
    assert CountedAhead(IDS[:2700], IDS[2700:], 5, 4).expert(3) is None
    assert CountedAhead(IDS[:2700], IDS[2700:], 5, 0).expert(0) is None
