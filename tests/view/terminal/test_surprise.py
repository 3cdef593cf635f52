"""Surprises in the terminal: one for each character, and the largest with context."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from rich.cells import cell_len

from gpt.reading.score import Surprises
from gpt.view.terminal.lines import Page, shade
from gpt.view.terminal.surprise import (
    coloured,
    scale,
    surprise_record,
    worst,
)

KNOWN = "\n abcé東"
TEXT = "ab c\n東é a"
BITS = [0.2, 1.0, 2.4, 8.0, 12.0, 3.0, 0.0, 30.0]


@pytest.fixture
def found() -> Surprises:
    likeliest = np.array([KNOWN.index(each) for each in "b c\n東é c"])
    return Surprises(np.array(BITS) * math.log(2), likeliest, np.linspace(0.1, 0.8, 8))


def plain(found: Surprises, page: Page, digits: bool = True) -> list[str]:
    return [line.plain for line in coloured(TEXT, found, page, digits)]


def test_surprise_digits_are_below_their_characters(found: Surprises) -> None:
    assert plain(found, Page()) == ["ab c⏎", " 0128", "東é a", "9 309"]
    assert plain(found, Page(), digits=False) == ["ab c⏎", "東é a"]
    ascii_only = plain(found, Page(ascii_only=True))
    assert ascii_only == ["ab c\\n", " 0128", "\\u6771\\xe9 a", "9     3   09"]


def test_colours_grow_with_the_surprise(found: Surprises) -> None:
    line = coloured(TEXT, found, Page(), digits=False)[0]
    styles = [str(span.style) for span in line.spans]
    assert styles[1:] == [str(shade(bits / 8)) for bits in BITS[:4]]
    assert styles[0] == "dim"
    assert str(shade(1.0)) == str(shade(3.7))


@pytest.mark.parametrize("width", [2, 3, 5, 40])
def test_surprise_lines_fit_the_page_and_keep_every_character(found: Surprises, width: int) -> None:
    lines = plain(found, Page(width), digits=False)
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines) == TEXT.replace("\n", "⏎")
    for line in (*scale(Page(40), True), *worst(TEXT, KNOWN, found, 9, Page(40))):
        assert line.cell_len <= 40


def test_largest_surprises_come_first_with_the_expected_character(found: Surprises) -> None:
    lines = [line.plain for line in worst(TEXT, KNOWN, found, 2, Page())]
    assert lines == [
        "most surprising",
        "30.00 bits · 'a' at 8 · expected 'c' .80 · ab c⏎東é [a]",
        "12.00 bits · '東' at 5 · expected '東' .50 · ab c⏎[東]é a",
    ]
    assert worst(TEXT, KNOWN, found, 0, Page()) == []


def test_surprise_json_has_every_character_after_the_first(found: Surprises) -> None:
    records = json.loads(json.dumps(surprise_record(TEXT, KNOWN, found)))
    assert "".join(each["character"] for each in records) == TEXT[1:]
    assert [each["position"] for each in records] == list(range(1, 9))
    assert [each["bits"] for each in records] == pytest.approx(BITS)
    assert records[2] == {
        "position": 3,
        "character": "c",
        "bits": pytest.approx(2.4),
        "expected": "c",
        "probability": pytest.approx(0.3),
    }
