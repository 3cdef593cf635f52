"""`gptx next`: the distribution, and what the filters remove."""

from __future__ import annotations

import json

import pytest
from program import Gptx


def test_next_shows_candidates_and_what_filters_remove(gptx: Gptx) -> None:
    answer = gptx("next", "the c", "--top-k", "2")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "after “the c” follows"
    assert lines[2].endswith("after temperature 0.8, top-k 2")
    assert lines[5].endswith("removed by top-k")
    assert len(lines) <= 14
    assert "removed by min-p" in gptx("next", "the c", "--min-p", "0.9").out
    record = json.loads(gptx("next", "the c", "--json").out)
    assert sum(each["expected"] for each in record["rows"]) == pytest.approx(1)
    assert gptx("next").err.startswith("no TEXT given; this one is from the validation")


def test_next_shows_the_likeliest_characters_or_all(gptx: Gptx) -> None:
    count = len(json.loads(gptx("next", "the c", "--json").out)["rows"])
    assert f"\n{count - 8} others" in gptx("next", "the c").out
    shown = gptx("next", "the c", "--all").out
    assert " others" not in shown
    assert len(shown.splitlines()) > count
