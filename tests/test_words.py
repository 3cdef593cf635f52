"""Counts, times and losses in words; every character has a visible, safe label."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from gpt.words import (
    cut,
    duration,
    escape,
    in_millions,
    label,
    legend,
    pad,
    quoted_label,
)

CONTROLS = {chr(point) for point in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}
BIDIRECTIONAL = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
SURROGATES = set(map(chr, range(0xD800, 0xE000)))  # no file can store them
UNSAFE = CONTROLS | BIDIRECTIONAL | SURROGATES | {"\ufeff"}
any_character = st.integers(0, 0x10FFFF).map(chr)


@pytest.mark.parametrize(
    ("character", "shown", "in_ascii"),
    [
        ("a", "a", "a"),
        (" ", "␠", "\\s"),
        ("\n", "⏎", "\\n"),
        ("\t", "⇥", "\\t"),
        ("\x1b", "␛", "\\x1b"),
        ("\x85", "U+0085", "\\x85"),
        ("ű", "ű", "\\u0171"),
        ("👍", "👍", "\\U0001f44d"),
        ("\u0301", "◌\u0301", "\\u0301"),
        ("\u200b", "U+200B", "\\u200b"),
        ("\u202e", "U+202E", "\\u202e"),
        ("\ud800", "U+D800", "\\ud800"),
        ("\U000e0001", "U+E0001", "\\U000e0001"),
        ("\u180f", "U+180F", "\\u180f"),  # these have no ink or join their neighbours
    ],
)
def test_special_characters_have_known_labels(character: str, shown: str, in_ascii: str) -> None:
    assert label(character) == shown
    assert label(character, ascii_only=True) == in_ascii
    assert quoted_label(character) == f"'{shown}'"


def test_labels_are_visible_and_ascii_ones_identify_the_character() -> None:
    for character in map(chr, (*range(0x30000), *range(0x30000, 0x110000, 97))):
        shown, in_ascii = label(character), label(character, ascii_only=True)
        assert shown.isprintable()
        assert not shown.isspace()
        assert cell_len(shown) >= 1
        assert in_ascii.isascii()
        assert in_ascii.isprintable()
        assert character == " " or in_ascii.encode().decode("unicode_escape") == character


def test_only_characters_that_control_a_terminal_or_cannot_be_stored_are_escaped() -> None:
    escaped = {
        character for character in map(chr, range(0x110000)) if escape(character) != character
    }
    assert escaped == UNSAFE
    assert {escape(character).isprintable() for character in escaped} == {True}


@settings(deadline=None, max_examples=100)
@given(st.text(st.sampled_from("ab\n\t\\ é€👍") | any_character))
def test_escaping_keeps_harmless_text_and_is_idempotent(text: str) -> None:
    expected = "".join(ascii(each)[1:-1] if each in UNSAFE else each for each in text)
    assert escape(text) == expected == escape(expected)


def test_legend_explains_only_used_symbols() -> None:
    assert legend("abc") == []
    assert legend("b a\n") == ["␠ space", "⏎ newline"]
    assert legend("❤️") == []  # a mark without width is U+FE0F
    assert legend("\te\u0301") == ["⇥ tab", "◌ carries a combining mark"]
    assert legend("a\r\0\n") == ["⏎ newline", "␀ U+0000", "␍ U+000D"]
    assert legend("a\r\0", ascii_only=True) == []
    assert legend("b a\te\u0301", ascii_only=True) == ["\\s space", "\\t tab"]


@settings(deadline=None, max_examples=100)
@given(text=st.text("ab あ👍…", max_size=12), width=st.integers(1, 14))
def test_padding_and_cutting_give_the_exact_width(text: str, width: int) -> None:
    for right in (False, True):
        padded = pad(text, width, right)
        assert cell_len(padded) == max(width, cell_len(text))
        assert (padded.endswith if right else padded.startswith)(text)
    shortened = cut(text, width)
    assert cell_len(shortened) <= width
    assert shortened == text or (
        shortened.endswith("…") and text.startswith(shortened[:-1]) and cell_len(text) > width
    )


def test_durations_are_formatted_for_people() -> None:
    seconds = (0.4, 8, 59.4, 59.6, 130, 3599.6, 11_100, 90_000)
    expected = "0 s, 8 s, 59 s, 1 min 0 s, 2 min 10 s, 1 h 0 min, 3 h 5 min, 25 h 0 min"
    assert ", ".join(map(duration, seconds)) == expected


def test_counts_are_formatted_for_people() -> None:
    counts = [in_millions(count) for count in (812, 9_999, 10_000, 804_096, 10_646_784)]
    assert counts == ["812", "9,999", "0.01 M", "0.80 M", "10.65 M"]
