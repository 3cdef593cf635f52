"""The vocabulary: any text round trips, unknown characters are named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.errors import TextError
from gpt.vocabulary import Vocabulary

#: Characters that careless programs change: line ends, NUL, NEL, combining marks, joiners.
DELICATE = "\r\n\r\n\0\x85\u2028\x1b é e\u0301 ﬁ ① 👩\u200d🚀 \ufeff \U0010ffff"


@settings(deadline=None)
@given(st.text(min_size=1))
@example(DELICATE)
def test_decoding_inverts_encoding(text: str) -> None:
    vocabulary = Vocabulary.from_text(text)
    assert vocabulary.characters == "".join(sorted(set(text)))
    assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1, "u1"), (256, "u1"), (257, "u2"), (20_000, "u2"), (65_536, "u2"), (65_537, "u4")],
)
def test_ids_use_the_smallest_integer_type(size: int, dtype: str) -> None:
    points = [point for point in range(70_000) if not 0xD800 <= point < 0xE000]
    text = "".join(map(chr, points[:size]))
    vocabulary = Vocabulary.from_text(text)
    ids = vocabulary.encode(text)
    assert (len(vocabulary), ids.dtype) == (size, np.dtype(dtype))
    assert vocabulary.decode(ids) == text


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("é", "'é' (U+00E9 LATIN SMALL LETTER E WITH ACUTE)"),
        ("\x1b", r"'\x1b' (U+001B no name)"),
        ("\udce9", r"'\udce9' (U+DCE9 no name)"),  # an invalid byte in a program's argument
    ],
)
def test_error_names_an_unknown_character_and_its_position(character: str, name: str) -> None:
    with pytest.raises(TextError) as caught:
        Vocabulary(" abcf").encode(f"caf {character} {character}")
    assert str(caught.value) == (
        f"{name} at position 4 is not in this model's vocabulary; "
        "leave it out or pass `unknown='skip'`"
    )
    assert caught.value.exit_code == 3


@settings(deadline=None)
@given(
    st.text(min_size=1, max_size=20),
    st.text(st.characters(codec=None), min_size=1, max_size=20),
)
@example("'", "`a")  # what can be folded is not skipped
def test_first_unknown_character_is_reported_or_skipped(known: str, text: str) -> None:
    vocabulary = Vocabulary.from_text(known)
    foreign = [position for position, character in enumerate(text) if character not in known]
    folded = vocabulary.adapt(text, "fold").text
    kept = "".join(character for character in folded if character in known)
    assert vocabulary.unknown(text) == "".join(sorted(set(text) - set(known)))
    assert vocabulary.decode(vocabulary.encode(text, unknown="skip")) == kept
    if foreign:
        first = foreign[0]
        with pytest.raises(TextError, match=rf"\(U\+{ord(text[first]):04X} .* position {first} is"):
            vocabulary.encode(text)
    else:
        assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize("characters", ["", "abb"])
def test_empty_or_duplicate_vocabulary_is_refused(characters: str) -> None:
    with pytest.raises(ValueError, match="one or more distinct characters"):
        Vocabulary(characters)


#: A novel with typographic quotation marks, dashes and composed letters.
NOVEL = Vocabulary.from_text("“It’s ‘the’ King’s horse—an árvíztűrő one”, she said – no.\n")
PLAIN = Vocabulary.from_text(
    "\"It's the King's horse - an a\u0301rvi\u0301ztu\u030bro\u030b one\"\n"
)


@pytest.mark.parametrize(
    ("vocabulary", "typed", "read"),
    [
        (NOVEL, "King's", "King’s"),
        (NOVEL, '"It\'s the", she said', "“It’s the”, she said"),
        (NOVEL, "'the' ('the')", "‘the’ ‘the’"),
        (NOVEL, 'horse—" she', "horse—” she"),  # a dash that interrupts
        (NOVEL, 'horse—"it', "horse—“it"),
        (NOVEL, "\"'it", "“‘it"),
        (NOVEL, "one - no", "one – no"),
        (NOVEL, "one\u00a0is\u202fno\u3000", "one is no "),
        (NOVEL, "a\u0301rvi\u0301ztu\u030bro\u030b", "árvíztűrő"),
        (PLAIN, "“It’s” – „no‟", '"It\'s" - "no"'),
        (Vocabulary("„” a"), '"a"', "„a”"),  # Hungarian
        (Vocabulary("가a"), "\u1100\u1161a", "가a"),
        (Vocabulary("が a"), "か\u3099 a", "が a"),
    ],
)
def test_characters_that_mean_the_same_become_known_ones(
    vocabulary: Vocabulary, typed: str, read: str
) -> None:
    found = vocabulary.adapt(typed, "fold")
    expected = "".join(each for each in read if each in vocabulary.characters)
    assert "".join(each for each in found.text if each in vocabulary.characters) == expected
    assert vocabulary.decode(vocabulary.encode(typed, "skip")) == expected
    assert found.folded
    (note,) = found.notes()
    assert note.startswith("note: the model reads ")


@settings(deadline=None)
@given(
    st.text(
        st.sampled_from("'’“\"-–—eé\u0301 \u00a0áÁ") | st.characters(codec="utf-8"), min_size=1
    ),
    st.text(st.sampled_from("'’‘“”\"-–—eé\u0301\u030b \u00a0áÁ") | st.characters(codec="utf-8")),
)
def test_folding_keeps_known_characters_and_says_where_each_stood(known: str, text: str) -> None:
    vocabulary = Vocabulary.from_text(known)
    assert vocabulary.adapt(text, "error").text == text
    found, kept = vocabulary.adapt(text, "fold"), vocabulary.adapt(text, "skip")
    if vocabulary.knows(text).all():
        assert found == kept
        assert (found.text, found.folded, found.places) == (text, (), None)
        return
    for each in (found, kept):
        assert each.places is not None
        places = each.places.tolist()
        assert len(places) == len(each.text)
        assert places == sorted(places)
        for character, place in zip(each.text, places, strict=True):
            same = character == text[place]
            assert same or not vocabulary.knows(text[place : place + 2]).all()
    assert not vocabulary.unknown(kept.text)
    assert kept.left_out == "".join(it for it in found.text if it not in vocabulary.characters)


def test_an_unknown_letter_is_one_character_composed_or_decomposed() -> None:
    vocabulary = Vocabulary("Oo s")
    for text in ("Ő s", "O\u030b s"):
        with pytest.raises(TextError, match=r"^'Ő' \(U\+0150 .*\) at position 0 is not"):
            vocabulary.encode(text, "fold")
        assert vocabulary.decode(vocabulary.encode(text, "skip")) == " s"
    with pytest.raises(TextError, match=r"'s' .* at position 2 is not"):
        Vocabulary("Ő").encode("O\u030bs", "fold")
    with pytest.raises(TextError, match=r"COMBINING DOUBLE ACUTE ACCENT.* at position 1 "):
        vocabulary.encode("O\u030b s", "error")


def test_a_capital_that_the_model_never_saw_is_offered_in_lower_case() -> None:
    with pytest.raises(TextError, match=r"'Á' .* position 2 is not .*; the model knows 'á'; leave"):
        Vocabulary("á '").encode("’ Á", "fold")


def test_carriage_returns_that_the_model_does_not_know_are_line_ends() -> None:
    assert Vocabulary("a\n").adapt("a\r\na\r").text == "a\na\n"
    assert Vocabulary("a\r\n").adapt("a\r\na").text == "a\r\na"
    with pytest.raises(TextError, match=r"U\+000D"):
        Vocabulary("a\n").encode("a\r\n")
