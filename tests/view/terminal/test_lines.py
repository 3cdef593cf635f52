"""Sentences wrap at any width without losing a word."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from gpt.view.terminal.lines import Page, in_ascii, join_to_lines, wrap_styled

WORDS = ["logit lens", "rows = position", "a heuristic; the last column is the model", "x"]


@pytest.mark.parametrize("width", [13, 20, 40, 80])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_long_sentence_wraps_to_the_next_line(width: int, ascii_only: bool) -> None:
    lines = [line.plain for line in wrap_styled(WORDS, Page(width, ascii_only))]
    assert max(map(cell_len, lines)) <= width
    separator = " | " if ascii_only else " · "
    assert " ".join(lines).replace(separator, " ").split() == " ".join(WORDS).split()
    (whole,) = wrap_styled(WORDS, Page(None, ascii_only))
    assert whole.plain == separator.join(WORDS)


def test_too_wide_data_is_cut_with_an_ellipsis() -> None:
    assert join_to_lines(["abc", "defgh"], 4) == ["abc", "def…"]


def test_signs_are_converted_to_ascii() -> None:
    assert in_ascii("−2 … “q·k / √8” → ‖A × v‖") == '-2 .. "q*k / sqrt 8" -> |A x v|'
