"""A score and surprisals as blocks and rows: the text in colour, the largest values, numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from drawn import shown

from gpt.blocks import Passage
from gpt.reading.score import LONGEST_HINTED, Score, Surprisals
from gpt.view.records import to_record
from gpt.view.terminal.lines import Page

KNOWN = "\n abcé東"
TEXT = "ab c\n東é a"
BITS = [0.2, 1.0, 2.4, 8.0, 12.0, 3.0, 0.0, 30.0]


@pytest.fixture
def found() -> Surprisals:
    likeliest = np.array([KNOWN.index(each) for each in "b c\n東é c"])
    chances = np.linspace(0.1, 0.8, 8)
    return Surprisals(np.array(BITS) * math.log(2), likeliest, chances, TEXT, KNOWN)


def test_a_score_has_its_numbers_in_words_and_for_programs() -> None:
    found = Score(math.log(4), 1000)
    title, _, perplexity = shown(found.blocks(), Page())
    assert title == "score · 1.3863 nats, 2.000 bits a character · 1,000 characters predicted"
    assert perplexity == "perplexity  4.000: as uncertain as among so many equal characters"
    numbers = {"nats": math.log(4), "bits": 2.0, "perplexity": 4.0, "characters": 1000}
    assert found.numbers == pytest.approx(numbers)
    counted = replace(found, gpt=1.5, counting=2.0, sum_error=1e-15)
    assert shown(counted.blocks(), Page())[-3:] == [
        "the GPT alone   1.5000 nats",
        "counting alone  2.0000 nats",
        "sum             all characters' probabilities sum to 1 within 1e-15",
    ]
    (row,) = to_record(counted.records(), {})["rows"]
    names = ("gpt_nats", "counting_nats", "sum_error")
    assert [row[name] for name in names] == [1.5, 2.0, 1e-15]


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [40, 80, None])
def test_the_text_has_the_bits_of_each_character_below_it(
    found: Surprisals, width: int | None, ascii_only: bool
) -> None:
    lines = shown(found.blocks(), Page(width, ascii_only))
    start = lines.index("") + 1
    digits = ["ab c\\n", " 0128", "\\u6771\\xe9 a", "9     3   09"]
    assert lines[start : start + 4] == (
        digits if ascii_only else ["ab c⏎", " 0128", "東é a", "9 309"]
    )


def test_the_largest_surprisals_come_first_with_the_expected_character(found: Surprisals) -> None:
    lines = shown(found.blocks(most=2), Page())
    start = lines.index("the largest surprisals")
    assert [line.split(maxsplit=4) for line in lines[start + 1 : start + 4]] == [
        ["bits", "at", "character", "expected", "in the text"],
        ["30.00", "8", "a", "c", ".80     ab c⏎東é [a]"],
        ["12.00", "5", "東", "東", ".50    ab c⏎[東]é a"],
    ]
    assert "the largest surprisals" not in shown(found.blocks(most=0), Page())
    places = replace(found, places=np.arange(9) + 100)
    assert any(line.startswith("30.00  108  a ") for line in shown(places.blocks(), Page()))


def test_a_character_says_its_surprisal_under_the_mouse(found: Surprisals) -> None:
    (passage,) = (each for each in found.blocks() if isinstance(each, Passage))
    assert passage.hints[:3:2] == [
        "the first character is not predicted",
        "1.00 bits; expected ␠ .20",
    ]
    many = LONGEST_HINTED + 1
    long = Surprisals(np.ones(many), np.zeros(many, int), np.ones(many), "a" * (many + 1), "a")
    (passage,) = (each for each in long.blocks() if isinstance(each, Passage))
    assert not passage.hints
    unknown = replace(found, text="", characters="")
    assert "made without its text" in shown(unknown.blocks(), Page())[-1]


def test_a_record_has_every_character_after_the_first(found: Surprisals) -> None:
    rows = json.loads(json.dumps(to_record(found.records(), {})))["rows"]
    assert "".join(each["character"] for each in rows) == TEXT[1:]
    assert [each["position"] for each in rows] == list(range(1, 9))
    assert [each["bits"] for each in rows] == pytest.approx(BITS)
    assert rows[2] == {
        "position": 3,
        "character": "c",
        "nats": pytest.approx(2.4 * math.log(2)),
        "bits": pytest.approx(2.4),
        "expected_character": "c",
        "expected_id": KNOWN.index("c"),
        "probability": pytest.approx(0.3),
    }
