"""The longest copied run equals an exhaustive search, in any script."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pydivsufsort")

from gpt.errors import ConfigError
from gpt.reading.novelty import Copies, usual
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
        copies = Copies(vocabulary.encode(other), vocabulary)
        found = copies.longest(vocabulary.encode(text))
        assert (len(found), found.start, found.at, found.times) == plainly(text, other)
        assert found.text == text[found.start : found.start + len(found)]
        assert other[found.at : found.at + len(found)] == found.text


def test_the_usual_copy_is_measured_all_over_the_text() -> None:
    copies = Copies(SMALL.encode("to be or not to be"), SMALL)
    assert usual(copies, SMALL.encode("x" * 1000 + "not to be"), 9) == (0, 9)
    assert usual(copies, SMALL.encode("to be or"), 100) == (8, 8)
    assert usual(copies, SMALL.encode("zzz"), 1) == (0, 0)


def test_without_the_library_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydivsufsort", None)
    with pytest.raises(ConfigError, match=r"^novelty: needs .* pip install pydivsufsort"):
        Copies(SMALL.encode("abc"), SMALL)
