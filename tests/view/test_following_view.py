"""The bars of the next character: lengths, notes, any width, and the same for programs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpt.config import SampleConfig
from gpt.reading.following import Following
from gpt.view.following import bars, following_record
from gpt.view.lines import Page

CONFIG = SampleConfig(top_k=3, min_p=0.3)
CHARACTERS = " あ[x"


@pytest.fixture
def found() -> Following:
    """Half, a quarter, an eighth and an eighth; top-k takes the last, min-p the third."""
    expected, drawn = np.array([0.5, 0.25, 0.125, 0.125]), np.array([2 / 3, 1 / 3, 0, 0])
    return Following(expected, drawn, np.array([-1, -1, 3, 1]))


def drawn(found: Following, page: Page, most: int = 12) -> list[str]:
    return [line.plain for line in bars(found, CHARACTERS, CONFIG, most, page)]


def test_bars_are_as_long_as_the_chances_and_notes_say_what_is_left(found: Following) -> None:
    page = Page(width=48, precision=2)
    lines = drawn(found, page)
    lengths = [line.count("█") for line in lines[2:6]]
    assert [lengths[0] // n for n in (1, 2, 4)] == lengths[:3]
    assert lengths[3] == lengths[2] > 0
    assert [line.split()[-1] for line in lines[2:6]] == [".67", ".33", "min-p", "top-k"]
    assert lines[0] == "temperature 0.8 · top-k 3 · min-p 0.3"


def test_the_rest_is_summed(found: Following) -> None:
    lines = drawn(found, Page(precision=3), most=1)
    assert "rest: 3 characters .500 expected · .333 drawn" in lines
    assert lines[-1] == "2 of 4 characters can be drawn · 1.75 bits expected · 0.92 bits drawn"


@pytest.mark.parametrize("width", [40, 80])
def test_lines_fit_the_page_in_ascii_too(found: Following, width: int) -> None:
    lines = drawn(found, Page(width, ascii_only=True))
    assert max(map(len, lines)) <= width
    assert all(line.isascii() for line in lines)
    assert "#" in lines[2]


def test_programs_get_every_character_the_likeliest_first(found: Following) -> None:
    record = following_record(found, CHARACTERS, CONFIG, {"run": "r"})
    read = json.loads(json.dumps(record))
    assert (read["run"], read["top_k"], read["top_p"]) == ("r", 3, None)
    assert [each["character"] for each in read["characters"]] == list(CHARACTERS)
    assert [each["removed_by"] for each in read["characters"]] == [None, None, "min_p", "top_k"]
    assert sum(each["drawn"] for each in read["characters"]) == pytest.approx(1)
    assert read["bits"]["expected"] == pytest.approx(1.75)
