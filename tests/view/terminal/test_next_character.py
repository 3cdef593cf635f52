"""`gptx next` in the terminal: bars, notes, width, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn import drawn
from rich.cells import cell_len

from gpt.config import SampleConfig
from gpt.heads.next_character import Experts, Following
from gpt.view.terminal.lines import Page
from gpt.view.terminal.next_character import bars, following_record

CONFIG = SampleConfig(top_k=3, min_p=0.3)
CHARACTERS = " あ[x"


@pytest.fixture
def found() -> Following:
    """Probabilities 1/2, 1/4, 1/8, 1/8; top-k removes the last, min-p the third."""
    expected, filtered = np.array([0.5, 0.25, 0.125, 0.125]), np.array([2 / 3, 1 / 3, 0, 0])
    return Following(expected, filtered, np.array([-1, -1, 3, 1]))


def shown(found: Following, page: Page, most: int = 12) -> list[str]:
    return drawn(bars(found, CHARACTERS, CONFIG, most, page), page)


def test_bars_show_probabilities_and_notes_name_filters(found: Following) -> None:
    page = Page(width=48, precision=2)
    lines = shown(found, page)
    lengths = [line.count("█") for line in lines[2:6]]
    assert [lengths[0] // n for n in (1, 2, 4)] == lengths[:3]
    assert lengths[3] == lengths[2] > 0
    assert [line.split()[-1] for line in lines[2:6]] == [".67", ".33", "min-p", "top-k"]
    assert lines[0] == "after: temperature 0.8 · top-k 3 · min-p 0.3"
    assert lines[1].split() == ["expected", "after"]


def test_a_bar_of_full_width_is_a_probability_of_1(found: Following) -> None:
    for page, bar in ((Page(80), "█"), (Page(80, ascii_only=True), "#")):
        assert [line.count(bar) for line in shown(found, page)[2:6]] == [16, 8, 4, 4]
        sure = replace(found, expected=np.array([1.0, 0.0, 0.0, 0.0]))
        assert shown(sure, page)[2].count(bar) == 32
    assert shown(found, Page(40, ascii_only=True))


def test_next_output_does_not_contain_the_word_drawn(found: Following) -> None:
    lines = [*shown(found, Page()), json.dumps(following_record(found, CHARACTERS, CONFIG, {}))]
    assert not any("drawn" in line for line in lines)


def test_second_column_is_omitted_if_filters_change_nothing(found: Following) -> None:
    same = Following(found.expected, found.expected, np.full(4, -1))
    lines = [
        line.plain
        for line in bars(same, CHARACTERS, SampleConfig(temperature=1.0, top_k=9), 2, Page(60))
    ]
    assert lines[:2] == ["temperature 1 · top-k 9 · no change", "    expected"]
    assert [len(line.split()) for line in lines[2:4]] == [3, 3]  # character, chance, bar
    assert lines[4:] == [
        "rest: 2 characters .25 expected",
        "a bar of full width is 1 · 1.75 bits expected",
    ]


def test_remaining_characters_are_summed(found: Following) -> None:
    lines = shown(found, Page(precision=3), most=1)
    assert "rest: 3 characters .500 expected · .333 after" in lines
    assert lines[-1] == (
        "a bar of full width is 1 · 1.75 bits expected · 0.92 bits after · 2 of 4 characters left"
    )


def mixed(found: Following, **history: int | bool) -> Following:
    """With counting beside the GPT."""
    gpt, counting = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    used = {"lengths": 7, "totals": 1234, "kinds": 5, "pairs": False} | history
    numbers = {name: np.array(each) for name, each in used.items()}
    experts = Experts(gpt, counting, found.expected, np.array([0.3, 1.2]), **numbers)
    return replace(found, experts=experts)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [40, 48, 80, None])
def test_columns_of_the_gpt_and_counting_stand_below_their_names(
    found: Following, width: int | None, ascii_only: bool
) -> None:
    lines = shown(mixed(found), Page(width, ascii_only=ascii_only))
    first = next(n for n, line in enumerate(lines) if line.split()[:2] == ["expected", "GPT"])
    heading, rows = lines[first], lines[first + 1 : first + 5]
    for name, chances in (("GPT", ".70 .10 .10 .10"), ("counting", ".10 .20 .30 .40")):
        at = heading.index(name)
        before = [cell_len(row[: row.index(" ")]) - len(row[: row.index(" ")]) for row in rows]
        columns = [row[at - wide : at - wide + 3] for row, wide in zip(rows, before, strict=True)]
        assert columns == chances.split()
    bar = "#" if ascii_only else "█"
    lengths = [row.count(bar) for row in rows]
    assert width == 48 or (lengths[3] > lengths[2]) == (width != 40)  # counting's, if they fit


def test_lines_say_the_weights_and_what_counting_used(found: Following) -> None:
    lines = shown(mixed(found), Page())
    assert lines[1:3] == [
        "expected = GPT^.30 × counting^1.20, scaled to sum 1",
        "counting used the last 7 characters, seen 1,234 times · 5 different characters followed",
    ]
    pair = shown(mixed(found, lengths=1, totals=1, kinds=1, pairs=True), Page())
    assert pair[2] == (
        "counting used the last character, seen between 1 different pair of characters "
        "(one before, one after) · always the same character followed"
    )
    none = shown(mixed(found, lengths=0, pairs=True), Page())
    assert none[2] == "counting used no character before it: only how common each character is"
    record = following_record(mixed(found), CHARACTERS, CONFIG, {})
    assert record["history"] == {"length": 7, "counted": 1234, "kinds": 5}
    assert following_record(found, CHARACTERS, CONFIG, {})["history"] is None


def test_bars_stay_aligned_beside_a_probability_of_1() -> None:
    sure = np.array([1.0, 0.0, 0.0, 0.0])
    lines = shown(Following(sure, sure, np.full(4, -1)), Page(60))
    assert [line.split()[1] for line in lines[2:6]] == ["1.00", ".00", ".00", ".00"]
    assert [line.index(".") for line in (lines[2], lines[4])] == [5, 5]


def test_next_json_lists_every_character_likeliest_first(found: Following) -> None:
    record = following_record(found, CHARACTERS, CONFIG, {"run": "r"})
    read = json.loads(json.dumps(record))
    assert (read["run"], read["top_k"], read["top_p"]) == ("r", 3, None)
    assert [each["character"] for each in read["characters"]] == list(CHARACTERS)
    assert [each["removed_by"] for each in read["characters"]] == [None, None, "min_p", "top_k"]
    assert sum(each["after_filters"] for each in read["characters"]) == pytest.approx(1)
    assert read["bits"]["expected"] == pytest.approx(1.75)
    assert read["schema"] == 1
