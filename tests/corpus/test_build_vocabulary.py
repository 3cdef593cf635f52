"""Vocabularies: sorted, counted; rare characters are replaced and reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.corpus.corpus import CharacterIds, build_vocabulary
from gpt.corpus.sources import Source
from gpt.corpus.text import Piece, measure_text
from gpt.errors import TextError
from gpt.vocabulary import Vocabulary

Counts = npt.NDArray[np.int64]


def counted(text: str, val: str = "") -> Counts:
    """(2, code points) counts of each character in a training and a validation text."""
    pieces = [
        Piece(n, Source(Path(), ""), 0, len(each.encode()), each.encode())
        for n, each in enumerate((text, val))
        if each
    ]
    return measure_text(pieces, sources=2).counts


def meaning(found: CharacterIds, text: str) -> str:
    """The text after rare characters are replaced."""
    assert found.table.dtype == found.vocabulary.dtype
    return found.vocabulary.decode(found.table[[ord(each) for each in text]])


@settings(deadline=None, max_examples=50)
@given(st.text("abcdé東😀\n", min_size=1, max_size=60), st.integers(0, 6))
def test_rare_characters_become_one_and_the_others_stay(text: str, min_count: int) -> None:
    counts = Counter(text)
    found = build_vocabulary(counted(text), None, min_count)
    rare = {each: n for each, n in counts.items() if n < min_count and min_count > 1}
    expected = "".join("\ufffd" if each in rare else each for each in text)
    assert found.folded == rare
    assert meaning(found, text) == expected
    assert found.vocabulary == Vocabulary.from_text(expected)


def test_a_replacement_that_occurs_in_the_text_is_rejected() -> None:
    with pytest.raises(TextError, match=r"^'�' \(U\+FFFD\) stands .* has it itself \(3 ×\)"):
        build_vocabulary(counted("aaa���b"), None, 2)
    assert build_vocabulary(counted("aaa��bb"), None, 2).folded == {}  # nothing is rare: no harm


@settings(deadline=None, max_examples=50)
@given(st.text("abé", min_size=1), st.text("aé東😀", min_size=1))
def test_characters_that_only_validate_are_rejected_or_folded(text: str, val: str) -> None:
    new = set(val) - set(text)
    made, counts = counted(text, val), Counter(text + val)
    if new:
        with pytest.raises(TextError, match="only in the text that validates") as caught:
            build_vocabulary(made)
        assert repr(min(new)) in str(caught.value)
    else:
        assert build_vocabulary(made).vocabulary == Vocabulary.from_text(text)
    found = build_vocabulary(made, None, 2)
    assert set(found.folded) == new | {each for each, n in counts.items() if n < 2}
    assert new.isdisjoint(found.vocabulary.characters)


@settings(deadline=None, max_examples=50)
@given(st.text("abcé", min_size=1), st.text("abcéd", min_size=1))
def test_known_vocabulary_is_used_if_complete_and_lists_replaced_characters(
    before: str, text: str
) -> None:
    first = build_vocabulary(counted(before), None, 2)
    made, known = counted(text), first.vocabulary
    found = build_vocabulary(made, known, 2)
    if first.folded:
        assert found.vocabulary == known
        expected = "".join(each if each in known.characters else "\ufffd" for each in text)
        assert meaning(found, text) == expected
    made = counted(before)
    assert build_vocabulary(made, known, 2).folded == first.folded


def test_known_vocabulary_must_contain_every_character_without_min_count() -> None:
    known = Vocabulary("abc")
    assert build_vocabulary(counted("ab"), known).vocabulary == known
    assert build_vocabulary(counted("abd"), known).vocabulary == Vocabulary("abd")


@settings(deadline=None, max_examples=50)
@given(
    st.text("abz東", min_size=1),
    st.text("abcé東😀", min_size=1, max_size=30),
    st.text("acé", max_size=5),
    st.integers(0, 4),
)
def test_vocabulary_grows_by_characters_that_are_not_rare(
    before: str, text: str, val: str, min_count: int
) -> None:
    """Known characters keep their ids, are never replaced, and may be only in the validation text;
    the grown vocabulary alone gives the same ids again.
    """
    known, counts = Vocabulary.from_text(before), Counter(text + val)
    new = {each for each in counts if each not in before}
    untaught = {each for each in new if each not in text}
    if untaught and min_count <= 1:
        with pytest.raises(TextError, match="is only in the text that validates"):
            build_vocabulary(counted(text, val), known, min_count, grows=True)
        return
    found = build_vocabulary(counted(text, val), known, min_count, grows=True)
    rare = {each for each in new if min_count > 1 and counts[each] < min_count} | untaught
    assert set(found.folded) == rare
    added = sorted((new - rare) | {"\ufffd"} if rare else new - rare)
    assert found.vocabulary.characters == known.characters + "".join(added)
    expected = "".join("\ufffd" if each in rare else each for each in text)
    assert meaning(found, text) == expected
    again = build_vocabulary(counted(text, val), found.vocabulary, min_count)
    assert (again.vocabulary, again.folded) == (found.vocabulary, found.folded)
    assert meaning(again, text) == expected
