"""`gptx next`: bars, what filters remove, experts, width, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import shown
from gpt.view.terminal.lines import Page
from rich.cells import cell_len

from gpt.config import SampleConfig
from gpt.heads.next_character import Experts, NextCharacter
from gpt.view.records import to_record

CONFIG = SampleConfig(top_k=3, min_p=0.3)
CHARACTERS = " あ[x"


@pytest.fixture
def found() -> NextCharacter:
    """Probabilities 1/2, 1/4, 1/8, 1/8; top-k removes the last, min-p the third."""
    expected, filtered = np.array([0.5, 0.25, 0.125, 0.125]), np.array([2 / 3, 1 / 3, 0, 0])
    removed = np.array([-1, -1, 3, 1])
    return NextCharacter(expected, filtered, removed, config=CONFIG, characters=CHARACTERS)


def rows(found: NextCharacter, page: Page, most: int = 12) -> list[str]:
    """The heading and the rows of the characters."""
    lines = shown(found.blocks(most), page)
    start = lines.index("") + 1
    return lines[start : lines.index("", start)]


def test_bars_show_probabilities_and_notes_name_filters(found: NextCharacter) -> None:
    heading, *lines = rows(found, Page(width=48))
    lengths = [line.count("█") for line in lines]
    assert [lengths[0] // n for n in (1, 2, 4)] == lengths[:3]
    assert lengths[3] == lengths[2] > 0
    assert [line.split()[-1] for line in lines] == [".667", ".333", "min-p", "top-k"]
    assert heading.split() == ["expected", "after"]
    title = shown(found.blocks(), Page())[0]
    assert title == "next character · temperature 0.8 · top-k 3 · min-p 0.3"
    text = replace(found, text="b" * 50 + "\n")
    assert shown(text.blocks(), Page())[0].startswith(f"next character · after “…{'b' * 39}⏎” · t")


def test_a_bar_of_full_width_is_a_probability_of_1(found: NextCharacter) -> None:
    for page, bar in ((Page(80), "█"), (Page(80, ascii_only=True), "#")):
        assert [line.count(bar) for line in rows(found, page)[1:]] == [16, 8, 4, 4]
        sure = replace(found, expected=np.array([1.0, 0.0, 0.0, 0.0]))
        assert rows(sure, page)[1].count(bar) == 32
    assert rows(found, Page(40, ascii_only=True))[1].startswith("\\s ")


def test_next_output_does_not_contain_the_word_drawn(found: NextCharacter) -> None:
    record = json.dumps(to_record(found.records(), {}))
    assert not any("drawn" in line for line in [*shown(found.blocks(), Page()), record])


def test_second_column_is_omitted_if_filters_change_nothing(found: NextCharacter) -> None:
    config = SampleConfig(temperature=1.0, top_k=9)
    same = replace(found, filtered=found.expected, removed=np.full(4, -1), config=config)
    lines = shown(same.blocks(2), Page(60))
    assert lines[0] == "next character · temperature 1 · top-k 9 · no change"
    assert [len(line.split()) for line in rows(same, Page(60), 2)] == [1, 3, 3]
    assert lines[-3:] == [
        "rest: 2 characters .250 expected",
        "a bar of full width is 1 · 1.75 bits expected",
        "␠ space",
    ]


def test_remaining_characters_are_summed(found: NextCharacter) -> None:
    lines = shown(found.blocks(1), Page())
    assert "rest: 3 characters .500 expected · .333 after" in lines
    assert (
        "a bar of full width is 1 · 1.75 bits expected · 0.92 bits after · 2 of 4 characters left"
    ) in lines


def mixed(found: NextCharacter, **history: int | bool) -> NextCharacter:
    """With counting beside the GPT."""
    gpt, counting = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    used: dict[str, Any] = {"length": 7, "total": 1234, "kinds": 5, "pairs": False} | history
    experts = Experts(gpt, counting, found.expected, np.array([0.3, 1.2]), **used)
    return replace(found, experts=experts)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [40, 48, 80, None])
def test_columns_of_the_gpt_and_counting_stand_below_their_names(
    found: NextCharacter, width: int | None, ascii_only: bool
) -> None:
    heading, *lines = rows(mixed(found), Page(width, ascii_only=ascii_only))
    for name, chances in (
        ("GPT", [".700", ".100", ".100", ".100"]),
        ("counting", [".100", ".200", ".300", ".400"]),
    ):
        column = slice(heading.index(name), heading.index(name) + len(name))
        for line, chance in zip(lines, chances, strict=True):
            first, _, rest = line.partition(" ")
            cells = first + " " * (cell_len(first) - len(first)) + " " + rest
            assert chance in cells[column.start - 2 : column.start + 8]
    bar = "#" if ascii_only else "█"
    lengths = [line.count(bar) for line in lines]
    assert (lengths[3] > lengths[2]) == (width in (80, None))  # counting's, if they fit


def test_lines_say_the_weights_and_what_counting_used(found: NextCharacter) -> None:
    def notes(**history: int | bool) -> list[str]:
        lines = shown(mixed(found, **history).blocks(), Page())
        start = next(n for n, line in enumerate(lines) if line.startswith("expected = "))
        return lines[start : start + 2]

    assert notes() == [
        "expected = GPT^.30 × counting^1.20, scaled to sum 1",
        "counting used the last 7 characters, seen 1,234 times · 5 different characters followed",
    ]
    assert notes(length=1, total=1, kinds=1, pairs=True)[1] == (
        "counting used the last character, seen between 1 pair of characters "
        "(one before, one after) · always the same character followed"
    )
    nothing = "counting used no earlier character, only how common each character is"
    assert notes(length=0, pairs=True)[1] == nothing
    facts = mixed(found).records().facts
    assert facts["history"] == {"length": 7, "counted": 1234, "kinds": 5}
    assert found.records().facts["history"] is None


def test_bars_stay_aligned_beside_a_probability_of_1() -> None:
    sure = np.array([1.0, 0.0, 0.0, 0.0])
    lines = rows(NextCharacter(sure, sure, np.full(4, -1), characters="abcd"), Page(60))[1:]
    assert [line.split()[1] for line in lines] == ["1.000", ".000", ".000", ".000"]
    assert len({line.index(".") for line in lines}) == 1


def test_next_json_lists_every_character_likeliest_first(found: NextCharacter) -> None:
    read = json.loads(json.dumps(to_record(found.records(), {"run": "r"})))
    assert (read["run"], read["top_k"], read["top_p"], read["schema"]) == ("r", 3, None, 1)
    assert [each["character"] for each in read["rows"]] == list(CHARACTERS)
    assert [each["removed_by"] for each in read["rows"]] == [None, None, "min_p", "top_k"]
    assert sum(each["after_filters"] for each in read["rows"]) == pytest.approx(1)
    assert read["bits"]["expected"] == pytest.approx(1.75)
