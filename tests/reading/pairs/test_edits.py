"""Edits between a target and what was written: alignments, intervals of rates."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpt.reading.edits import bootstrap, find_edits


def best(text: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[int, int]:
    """(edits, substitutions) of the best alignment: the definition, as a recursion."""

    @cache
    def of(i: int, j: int) -> tuple[int, int]:
        if not i or not j:
            return i + j, 0
        differs = text[i - 1] != other[j - 1]
        ways = [(of(i - 1, j - 1), differs, differs), (of(i - 1, j), 1, 0), (of(i, j - 1), 1, 0)]
        return min((edits + one, swaps + more) for (edits, swaps), one, more in ways)

    return of(len(text), len(other))


TEXTS = some.lists(some.integers(0, 2), max_size=6).map(tuple)


@given(TEXTS, TEXTS)
def test_edits_are_the_fewest_with_the_fewest_substitutions(
    target: tuple[int, ...], written: tuple[int, ...]
) -> None:
    edits = find_edits(target, written)
    swaps = [edit for edit in edits if None not in edit]
    assert (len(edits), len(swaps)) == best(target, written)
    assert all(one != other for one, other in edits)
    removed = sorted(one for one, _ in edits if one is not None)
    added = sorted(other for _, other in edits if other is not None)
    assert sorted([*target, *added]) == sorted([*written, *removed])


@pytest.mark.parametrize(
    ("target", "written", "edits"),
    [
        ("hɛ", "hɛ", ()),
        ("ab", "ba", ((None, "b"), ("b", None))),
        ("kitten", "sitting", (("k", "s"), ("e", "i"), (None, "g"))),
        ("", "a", ((None, "a"),)),
        (["ʃː", "eː"], ["ʃ", "eː", "t"], (("ʃː", "ʃ"), (None, "t"))),  # of several characters
    ],
)
def test_edits_name_the_symbols_in_their_order(target: Any, written: Any, edits: Any) -> None:
    assert find_edits(target, written) == edits


def test_the_interval_of_a_rate_is_that_of_draws_of_words() -> None:
    random = np.random.default_rng(1)
    errors, sizes = random.integers(0, 3, 400), random.integers(3, 9, 400)
    found = bootstrap(errors, sizes)
    assert found is not None
    rate = errors.sum() / sizes.sum()
    deviation = np.sqrt(((errors - rate * sizes) ** 2).sum()) / sizes.sum()  # of a ratio
    assert found == pytest.approx((rate - 1.96 * deviation, rate + 1.96 * deviation), abs=0.004)
    assert bootstrap(errors, sizes) == found


def test_an_interval_covers_the_true_rate_in_most_samples() -> None:
    random, covered = np.random.default_rng(2), 0
    for _ in range(100):
        interval = bootstrap((random.random(200) < 0.3).astype(int), np.ones(200, np.int64))
        assert interval is not None
        covered += interval[0] <= 0.3 <= interval[1]
    assert 88 <= covered <= 100


@pytest.mark.parametrize(
    ("errors", "sizes"), [([0, 0, 0], [1, 2, 3]), ([2], [3]), ([1, 1], [1, 1])]
)
def test_without_different_words_there_is_no_interval(errors: list[int], sizes: list[int]) -> None:
    assert bootstrap(np.array(errors), np.array(sizes)) is None
