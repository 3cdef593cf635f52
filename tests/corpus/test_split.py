"""Splits: every character is used once, to train or to validate."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpt.corpus import split as module
from gpt.corpus.split import SplitOrder, choose_split
from gpt.errors import TextError


def test_nothing_is_moved_by_default_or_for_separate_validation_texts() -> None:
    assert choose_split((0, 9), 1, 0) == choose_split((0, 3, 9), 2, 0) == SplitOrder()
    assert choose_split((0, 3, 9, 11), 2, 0) == SplitOrder(boundary=9)


def test_the_name_of_an_order_does_not_change_between_releases() -> None:
    division = choose_split((0, 3, 9, 11), 3, 2)
    assert division == SplitOrder(5, 0, (3, 9), "87a800bbe5086e37")


def moved(division: SplitOrder) -> list[int]:
    """The positions that are moved to the end."""
    pairs = zip(*[iter(division.borders)] * 2, strict=True)
    return [place for first, last in pairs for place in range(first, last)]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(2, 9))
def test_every_nth_text_validates(lengths: list[int], every: int) -> None:
    starts = [0, *itertools.accumulate(lengths)]
    texts = [list(range(*ends)) for ends in itertools.pairwise(starts)]
    texts = [text for text in texts if text]  # empty texts do not count
    assume(len(texts) >= 2)
    if len(texts) < every:
        with pytest.raises(TextError, match=rf"^`split='every:{every}'`: there are {len(texts)} "):
            choose_split(starts, len(lengths), every)
        return
    division = choose_split(starts, len(lengths), every)
    val = [place for n, text in enumerate(texts) if (n + 1) % every == 0 for place in text]
    train = [place for n, text in enumerate(texts) if (n + 1) % every for place in text]
    assert moved(division) == val
    assert (division.boundary, division.block) == (len(train), 0)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 3000), st.integers(2, 9), st.integers(1, 40), st.integers(9, 50))
def test_every_nth_block_of_a_single_text_validates(
    characters: int, every: int, longest: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_BLOCK", longest)
        patch.setattr(module, "MOST_BLOCKS", most)
        if characters < every:
            with pytest.raises(TextError):
                choose_split((0, characters), 1, every)
            return
        division = choose_split((0, characters), 1, every)
    block = division.block
    assert block >= 1
    assert characters // block <= most + most // 2 or block == 1
    val = [place for place in range(characters) if (place // block + 1) % every == 0]
    train = [place for place in range(characters) if (place // block + 1) % every]
    assert moved(division) == val
    assert division.boundary == len(train)


def test_blocks_are_as_long_as_ten_validation_blocks_allow() -> None:
    assert choose_split((0, 10**9), 1, 10).block == 65_536
    assert choose_split((0, 10**12), 1, 10).block == 10**7
    shakespeare = choose_split((0, 1_115_394), 1, 10)
    assert shakespeare.block == 11_153
    assert shakespeare.boundary is not None
    assert 1_115_394 - shakespeare.boundary == 10 * 11_153
