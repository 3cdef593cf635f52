"""Provisional ids and what is counted of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.corpus.draft_ids import Numbers, TooMany, width_for

WIDE, NARROW = np.dtype(np.uint16), np.dtype(np.uint8)
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), max_size=8)


def written(numbers: Numbers, texts: Iterable[str]) -> str:
    """What the ids of texts, ASCII or not, stand for."""
    parts = [numbers.ids(text.encode() if text.isascii() else text) for text in texts]
    return "".join(numbers.characters[each] for part in parts for each in part.tolist())


@settings(deadline=None, max_examples=100)
@given(texts=TEXTS, known=st.text("abcé東", max_size=3), plenty=st.integers(0, 9))
def test_ids_stand_for_the_text_and_what_is_not_counted_has_come_often(
    texts: list[str], known: str, plenty: int
) -> None:
    known = "".join(sorted(set(known)))
    for width in (WIDE, NARROW):
        numbers, times = Numbers(known, width, plenty), Counter("".join(texts))
        assert written(numbers, texts) == "".join(texts)
        assert numbers.characters.startswith(known)
        found = dict(zip(numbers.characters, numbers.counts.tolist(), strict=True))
        assert found.keys() == {*known, *times}
        for character in found:
            enough = min(plenty, times[character]) if plenty else times[character]
            assert enough <= found[character] <= times[character]


def test_a_character_that_has_come_often_is_not_counted_on() -> None:
    numbers, texts = Numbers("", NARROW, plenty=6), ["abba" * 3, "aaab" * 9, "c", "abc"]
    assert written(numbers, texts[:2]) == "".join(texts[:2])
    assert numbers.counts.tolist() == [6, 6]
    assert written(numbers, texts[2:]) == "".join(texts[2:])
    assert numbers.counts.tolist() == [6, 6, 2]


def test_what_is_known_to_come_often_is_not_counted_at_all() -> None:
    numbers = Numbers("ab", NARROW, plenty=6, often="a")
    assert written(numbers, ["abcab"]) == "abcab"
    assert dict(zip(numbers.characters, numbers.counts.tolist(), strict=True)) == {
        "a": 0,
        "b": 2,
        "c": 1,
    }


@pytest.mark.parametrize(("width", "most"), [(NARROW, 127), (WIDE, 32767)])
def test_there_are_as_many_characters_as_half_of_the_numbers(width: np.dtype, most: int) -> None:
    text = "".join(map(chr, range(0x10000, 0x10000 + most)))
    assert written(Numbers(text[:9], width), [text]) == text
    with pytest.raises(TooMany):
        Numbers(text, width).ids("a")


@pytest.mark.parametrize(
    ("characters", "width"), [(65, 1), (112, 1), (114, 2), (29_000, 2), (30_000, 4)]
)
def test_ids_are_as_wide_as_the_characters_ask_for_with_room_for_more(
    characters: int, width: int
) -> None:
    assert width_for(characters).itemsize == width
