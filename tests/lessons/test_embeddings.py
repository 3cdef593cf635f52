"""Embeddings from a file: accepted formats, and errors with their place."""

from __future__ import annotations

import pytest

from gpt.errors import ConfigError
from gpt.lessons.embeddings import read_embeddings, words_of


@pytest.mark.parametrize(
    "text",
    [
        "[[1, 2], [3, -0.5]]",
        "1 2\n3 -0.5\n",
        "1,2\r\n3,-0.5",
        "# x, y\n\n 1\t2 \n3;-.5",
        "1e0, 2\n3, -5e-1,\n",
    ],
)
def test_embeddings_without_words_are_read(text: str) -> None:
    assert read_embeddings(text, "f") == (None, [[1, 2], [3, -0.5]])


@pytest.mark.parametrize(
    "text",
    ['{"fény": [1, 2], "日本": [3, 4]}', "fény 1 2\n日本 3 4", '"fény",1,2\n"日本",3,4'],
)
def test_embeddings_with_words_are_read(text: str) -> None:
    assert read_embeddings(text, "f") == (["fény", "日本"], [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no numbers in it"),
        ("# only a comment", "no numbers in it"),
        ("[]", "no numbers in it"),
        ("[[]]", "row 1 has 0 numbers"),
        ("word", "row 1 has 0 numbers"),
        ("1 2\n3", "row 2 has 1 numbers, row 1 has 2"),
        ("1 2\n3 x", "line 2: 'x' is not a number"),
        ("[[1, true]]", "row 1: 'True' is not a number"),
        ("[[1, null]]", "row 1: 'None' is not a number"),
        ("[1, 2]", "row 1 is not a list of numbers"),
        ("[[1, 2]", "Expecting"),
        ("[" * 100_000, "too deep"),
        ("[[1" + "0" * 400 + "]]", "is not a number"),
        ("a 1\n2", "name every row or none"),
    ],
)
def test_invalid_embeddings_are_refused_with_their_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"^embeddings f\.csv: ") as refused:
        read_embeddings(text, "f.csv")
    assert problem in str(refused.value)


def test_text_is_split_into_words_and_a_single_word_into_characters() -> None:
    assert words_of(" To be,\nor not ") == ["To", "be,", "or", "not"]
    assert words_of("日本語") == ["日", "本", "語"]
    assert words_of("a") == ["a"]
    with pytest.raises(ConfigError, match=r"^text: no words"):
        words_of(" \n")
