"""Features of texts, against marks below each character that were set by hand."""

from __future__ import annotations

import math

import pytest

from gpt.heads.features import FEATURES, features

IN_QUOTES = [
    (
        "He said \"don't go\" and 'yes' or 'tis\nnow",
        "        #########      ####     ####    ",
    ),
    (
        'f("", x="a b")  """Do it.""" 5" x',
        "  #     ####    # ####### #      ",
    ),
    (
        "„so“ »was« “it’s ‘a’ b” ”ja” « oui »",
        "###  ####  ###########  ###  ###### ",
    ),
    (
        "「はい『い』」と（あ）",
        "######     ",
    ),
    (
        "rock 'n' roll's 'end\n",
        "     ##         #### ",
    ),
]
IN_BRACKETS = [
    (
        "a(b[c)]d) 「x」 (y【z】",
        " #####        #####",
    ),
    (
        '))(“a”)"(" ',
        "  ####  ###",
    ),
]


def marked(text: str, name: str) -> str:
    values = features(text + "\n")[name]
    assert len(values) == len(text)
    return "".join("#" if value else " " for value in values)


@pytest.mark.parametrize(("text", "marks"), IN_QUOTES)
def test_quotes_hold_from_the_opening_mark_to_the_closing_one(text: str, marks: str) -> None:
    assert marked(text, "quotes") == marks


@pytest.mark.parametrize(("text", "marks"), IN_BRACKETS)
def test_brackets_of_every_script_are_counted_and_are_no_quotes(text: str, marks: str) -> None:
    assert marked(text, "brackets") == marks


def test_places_in_lines_and_words_are_counted_from_their_begins() -> None:
    text = "ab c\n\ne\u0301vi 7x\nÁ"
    found = features(text + "B")
    assert [*found] == [*FEATURES]
    assert [*map(str, found["line"])] == [
        *("nan nan nan nan 0.0 0.0 1.0 2.0 3.0 4.0 5.0 6.0 7.0 0.0 1.0".split())
    ]
    assert found["newline"][1:] == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert math.isnan(found["newline"][0])
    assert found["word"] == [1, 2, 0, 1, 0, 0, 1, 2, 3, 4, 0, 1, 2, 0, 1]
    assert found["capital"] == [0] * 13 + [1, 1]


def test_scripts_without_capitals_have_features_too() -> None:
    for text in ("日本語。", "שלום", "👩‍🚀🇭🇺", "\0\x85\u2028", ""):
        found = features(text + "é")
        assert not any(found["capital"])
        assert all(len(values) == len(text) for values in found.values())
