"""The longest copied run equals an exhaustive search, in any script."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.reading import writing as module
from gpt.reading.writing import Copy, Novelty, longest_copies
from gpt.vocabulary import Vocabulary

LETTERS = st.text(alphabet="abé東\U0001f600\u0301\n\0", max_size=40)
SMALL = Vocabulary.from_text("\0\nabé\u0129\u0301東条\ud800\U0001f600 cdefortnxz")
LARGE = Vocabulary.from_text(SMALL.characters, "".join(map(chr, range(0x200, 0x600))))


def plainly(text: str, other: str) -> tuple[int, int, int, int]:
    """Length, start, first position and frequency of the longest copy, by brute force."""
    for length in range(len(text), 0, -1):
        for start in range(len(text) - length + 1):
            run = text[start : start + length]
            if run in other:
                times = sum(other.startswith(run, at) for at in range(len(other)))
                return length, start, other.index(run), times
    return 0, 0, 0, 0


@settings(deadline=None, max_examples=300)
@given(LETTERS, LETTERS)
@example("", "")
@example("abc", "")
@example("", "abc")
@example("é", "\u0129")
@example("東", "条")
@example("aaaa", "aaaaaaa")
@example("\ud800a", "b\ud800a")
def test_the_longest_copy_equals_an_exhaustive_search(text: str, other: str) -> None:
    for vocabulary in (SMALL, LARGE):  # ids of one byte and of two
        found, none, again = longest_copies([text, "", text], vocabulary.encode(other), vocabulary)
        assert (len(found), found.start, found.at, found.times) == plainly(text, other)
        assert found.text == text[found.start : found.start + len(found)]
        assert other[found.at : found.at + len(found)] == found.text
        assert (again, len(none)) == (found, 0)


@pytest.mark.parametrize("chunk", [4, 5, 7])
def test_copies_across_chunks_are_found_and_counted_once(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    for text, other in (("bra!", "abracadabra"), ("aaa", "aaaaaaaaa"), ("xyz", "abc")):
        vocabulary = Vocabulary.from_text(text + other)
        (found,) = longest_copies([text], vocabulary.encode(other), vocabulary)
        assert (len(found), found.start, found.at, found.times) == plainly(text, other)


def test_equal_hashes_are_not_yet_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_powers", lambda base, count: np.ones(count, "u8"))
    copies = longest_copies(["ab", "ba"], SMALL.encode("ab"), SMALL)  # the sums of ids are equal
    assert [len(copy) for copy in copies] == [2, 1]


def test_a_copy_is_quoted_with_its_place() -> None:
    assert str(Novelty(1000, Copy("to be\n", 3, 72_212, 1))) == (
        "the longest copied passage has 6 of 1,000 characters: “to be⏎”, at character 72,212 of "
        "the training text"
    )
    assert str(Novelty(9, Copy("a", 0, 5, 3))).endswith("and 2 more times")
    assert str(Novelty(9, Copy())) == "none of the 9 characters is in the training text"
