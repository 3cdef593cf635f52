"""Vocabularies of texts: sorted, known, grown."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.corpus.corpus import build_vocabulary
from gpt.corpus.text import CODE_POINTS
from gpt.errors import TextError
from gpt.vocabulary import Ids, Vocabulary, code_points

Counts = npt.NDArray[np.int64]


def counted(text: str, val: str = "") -> Counts:
    """(2, code points) counts of each character in a training and a validation text."""
    return np.array([np.bincount(code_points(each), minlength=CODE_POINTS) for each in (text, val)])


def meaning(vocabulary: Vocabulary, table: Ids, text: str) -> str:
    """The text, encoded with the table and decoded again."""
    assert table.dtype == vocabulary.dtype
    return vocabulary.decode(table[[ord(each) for each in text]])


@settings(deadline=None, max_examples=50)
@given(st.text("abé", min_size=1), st.text("aé東😀", min_size=1))
def test_characters_that_only_validate_are_rejected(text: str, val: str) -> None:
    new, made = set(val) - set(text), counted(text, val)
    if new:
        with pytest.raises(TextError, match="only in the text that validates") as caught:
            build_vocabulary(made)
        assert repr(min(new)) in str(caught.value)
    else:
        vocabulary, table = build_vocabulary(made)
        assert vocabulary == Vocabulary.from_text(text)
        assert meaning(vocabulary, table, text + val) == text + val


def test_known_vocabulary_must_contain_every_character() -> None:
    known = Vocabulary("abc")
    assert build_vocabulary(counted("ab"), known)[0] == known
    assert build_vocabulary(counted("abd"), known)[0] == Vocabulary("abd")


@settings(deadline=None, max_examples=50)
@given(
    st.text("abz東", min_size=1),
    st.text("abcé東😀", min_size=1, max_size=30),
    st.text("acé", max_size=5),
)
def test_vocabulary_grows_by_the_new_characters(before: str, text: str, val: str) -> None:
    """Known characters keep their ids and may be only in the validation text; the grown vocabulary
    alone gives the same ids again.
    """
    known, new = Vocabulary.from_text(before), set(text + val) - set(before)
    if new - set(text):
        with pytest.raises(TextError, match="is only in the text that validates"):
            build_vocabulary(counted(text, val), known, grows=True)
        return
    vocabulary, table = build_vocabulary(counted(text, val), known, grows=True)
    assert vocabulary.characters == known.characters + "".join(sorted(new))
    assert meaning(vocabulary, table, text + val) == text + val
    again, same = build_vocabulary(counted(text, val), vocabulary)
    assert again == vocabulary
    np.testing.assert_array_equal(same, table)
