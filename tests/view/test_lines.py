"""Our own words fit any page, and none is lost."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from gpt.view.lines import Page, flow, own_words

WORDS = ["logit lens", "rows = position", "a heuristic; the last column is the model", "x"]


@pytest.mark.parametrize("width", [13, 20, 40, 80])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_sentence_too_long_for_the_page_goes_on_in_the_next_line(
    width: int, ascii_only: bool
) -> None:
    lines = own_words(WORDS, Page(width, ascii_only))
    assert max(map(cell_len, lines)) <= width
    separator = " | " if ascii_only else " · "
    assert " ".join(lines).replace(separator, " ").split() == " ".join(WORDS).split()
    assert own_words(WORDS, Page(None, ascii_only)) == [separator.join(WORDS)]


def test_data_that_is_too_wide_is_cut_with_a_mark() -> None:
    assert flow(["abc", "defgh"], 4) == ["abc", "def…"]
