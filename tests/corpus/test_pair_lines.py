"""Lines of pairs and of sources for a trained model; an error names its line."""

from __future__ import annotations

import pytest

from gpt.corpus.pair_lines import Window, pair_lines, source_lines
from gpt.errors import TextError
from gpt.vocabulary import Vocabulary

KNOWN = Vocabulary.from_text("abc\t\n")
LAYOUT = "each line is SOURCE, one TAB, TARGET"


def read(text: str, window: Window) -> list[tuple[int, str, str]]:
    lines = pair_lines(text, KNOWN, window)
    return [(line.number, KNOWN.decode(line.source), KNOWN.decode(line.target)) for line in lines]


def test_pairs_have_the_numbers_of_their_lines() -> None:
    text = "ab\tc\n\nabc\tab\r\n\r\nc\tcc"
    assert read(text, Window(3)) == [(1, "ab", "c"), (3, "abc", "ab"), (5, "c", "cc")]
    assert read(text, Window(7, joined=True)) == read(text, Window(3))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\tb\nab\n", rf"line 2 has no TAB: 'ab'; {LAYOUT}"),
        ("a\tb\n\na\tb\tc\n", rf"line 3 has several TABs: 'a\\tb\\tc'; {LAYOUT}"),
        ("\tb\n", "line 1 has an empty source"),
        ("a\t\r\n", "line 1 has an empty target"),
        ("a\tb\na\tx\n", r"line 2: 'x' \(U\+0078 LATIN SMALL LETTER X\) at position 2 is not"),
        ("abca\tb\n", "line 1 has a source of 4 characters, the model takes 3; shorten"),
        ("a\tabc\n", "line 1 has a target of 3 characters, the model takes 2; shorten"),
        ("\n\r\n", "only blank lines"),
        ("a" * 50, r"'a{40}'…; each"),
    ],
)
def test_errors_name_the_line(text: str, problem: str) -> None:
    with pytest.raises(TextError, match=problem):
        read(text, Window(3))


def test_both_sides_share_the_window_of_a_decoder_only_model() -> None:
    assert read("abc\tab\n", Window(7, joined=True)) == [(1, "abc", "ab")]
    with pytest.raises(TextError, match="line 1 has 7 characters, the model takes 6"):
        read("abc\tab\n", Window(6, joined=True))


def test_sources_have_the_numbers_of_their_lines() -> None:
    found = source_lines(["ab", "c\r"], KNOWN, Window(2))
    assert [KNOWN.decode(source) for source in found] == ["ab", "c"]
    for source, problem in (
        ("", "line 8 is empty; give at least one character"),
        ("a\tb", "line 8 has a TAB; give the source alone"),
        ("x", "line 8: 'x'"),
        ("abc", "line 8 has a source of 3 characters, the model takes 2; shorten it"),
    ):
        with pytest.raises(TextError, match=problem):
            source_lines(["a", source], KNOWN, Window(2), start=7)
