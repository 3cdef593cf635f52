"""`gptx next`: bars, what filters remove, experts, width, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn import shown

from gpt.config import SampleConfig
from gpt.heads.next_character import Experts, NextCharacter
from gpt.show.programs import to_record

CONFIG = SampleConfig(top_k=3, min_p=0.3)
CHARACTERS = " あ[x"


@pytest.fixture
def found() -> NextCharacter:
    """Probabilities 1/2, 1/4, 1/8, 1/8; top-k removes the last, min-p the third."""
    expected, filtered = np.array([0.5, 0.25, 0.125, 0.125]), np.array([2 / 3, 1 / 3, 0, 0])
    removed = np.array([-1, -1, 3, 1])
    return NextCharacter(expected, filtered, removed, config=CONFIG, characters=CHARACTERS)


DRAWN = """\
after “ab” follows

         expected    after temperature 0.8, top-k 3, min-p 0.3
␠ space  .500 ▇▇▇▇▇  .667
あ       .250 ▇▇     .333
[        .125 ▇      removed by min-p
x        .125 ▇      removed by top-k

as uncertain as among 3.4 equal characters, then 1.9 · every one: --all"""


def test_bars_show_probabilities_and_what_filters_remove(found: NextCharacter) -> None:
    assert "\n".join(shown(replace(found, text="ab"), 80)) == DRAWN


def test_the_column_of_filters_is_left_out_if_they_change_nothing(found: NextCharacter) -> None:
    config = SampleConfig(temperature=1.0, top_k=9)
    same = replace(found, filtered=found.expected, removed=np.full(4, -1), config=config)
    assert "after" not in shown(same)[2]


def test_other_characters_are_summed(found: NextCharacter) -> None:
    many = np.full(20, 0.05)
    lines = shown(NextCharacter(many, many, np.full(20, -1), characters="abcdefghijklmnopqrst"), 80)
    assert lines[-3].split()[:3] == ["12", "others", ".600"]
    assert len(lines) <= 14


@pytest.mark.parametrize("width", [20, 40, 80, None])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_long_form_has_both_experts_at_any_width(
    found: NextCharacter, width: int | None, ascii_only: bool
) -> None:
    gpt, counting = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    experts = Experts(gpt, counting, found.expected, np.array([0.3, 1.2]), 7, 1234, 5, False)
    mixed = replace(found, experts=experts)
    text = " ".join(" ".join(shown(mixed, width, ascii_only, all=True)).split())
    for number in (".700", ".400", "1,234"):
        assert number in text
    assert mixed.facts(all=True)["counting"] == (
        "used the last 7 characters, seen 1,234 times; 5 different characters followed"
    )
    assert mixed.record()["history"] == {"length": 7, "counted": 1234, "kinds": 5}
    assert found.record()["history"] is None


def test_next_json_lists_every_character_likeliest_first(found: NextCharacter) -> None:
    read = json.loads(json.dumps(to_record(found, {"run": "r"})))
    assert (read["run"], read["top_k"], read["top_p"], read["schema"]) == ("r", 3, None, 1)
    assert [each["character"] for each in read["rows"]] == list(CHARACTERS)
    assert [each["removed_by"] for each in read["rows"]] == [None, None, "min_p", "top_k"]
    assert sum(each["after_filters"] for each in read["rows"]) == pytest.approx(1)
    assert read["bits"]["expected"] == pytest.approx(1.75)
