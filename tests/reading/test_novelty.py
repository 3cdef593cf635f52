"""The longest copied run equals an exhaustive search, in any script."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.reading import novelty as module
from gpt.reading.novelty import longest_copies, novelty
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
        ids = vocabulary.encode(text)
        found, none, again = longest_copies(
            [ids, ids[:0], ids], vocabulary.encode(other), vocabulary
        )
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
        (found,) = longest_copies([vocabulary.encode(text)], vocabulary.encode(other), vocabulary)
        assert (len(found), found.start, found.at, found.times) == plainly(text, other)


def test_equal_hashes_are_not_yet_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_powers", lambda base, count: np.ones(count, "u8"))
    texts = [SMALL.encode("ab"), SMALL.encode("ba")]  # the sum of their ids is one number
    assert [len(each) for each in longest_copies(texts, SMALL.encode("ab"), SMALL)] == [2, 1]


def test_the_usual_copy_is_measured_all_over_the_text() -> None:
    def usual(text: str, length: int) -> tuple[int, int]:
        train, val = SMALL.encode("to be or not to be"), SMALL.encode(text)
        (found,) = novelty(["x" * length], train, val, SMALL)
        return found.median, found.largest

    assert usual("x" * 1000 + "not to be", 9) == (0, 9)
    assert usual("to be or", 100) == (8, 8)
    assert usual("zzz", 1) == (0, 0)
