"""The page reads for an unknown character what Python reads for it."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from javascript import JavaScript

from gpt.vocabulary import Vocabulary, fold

TYPED = "'’‘\"“”„-–—` \u00a0\u3000(eéoőö\u0301\u030b日か\u3099\u1100\u1161가😀Á\n"


@settings(deadline=None, max_examples=150)
@given(known=st.text(TYPED, min_size=1), text=st.text(TYPED, max_size=12))
@example(known="가", text="\u1100\u1161\u0301")  # a mark after the parts of a syllable
@example(known="“”", text="'" * 9 + '"')  # quotation marks before a quotation mark
def test_the_page_folds_as_python_does(script: JavaScript, known: str, text: str) -> None:
    vocabulary = Vocabulary.from_text(known)
    found = fold(text, vocabulary)
    read, noted = script("fold", text, vocabulary.characters, vocabulary.folds)
    assert read == found.text
    assert noted == bool(found.folded)
