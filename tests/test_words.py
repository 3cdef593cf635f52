"""Counts, times and losses in words."""

from __future__ import annotations

from typing import Any

from gpt.words import counted, duration, layers_and_heads, millions, short_repr


def test_durations_are_formatted_for_people() -> None:
    seconds = (0.4, 8, 59.4, 59.6, 130, 3599.6, 11_100, 90_000)
    expected = "0 s, 8 s, 59 s, 1 min 0 s, 2 min 10 s, 1 h 0 min, 3 h 5 min, 25 h 0 min"
    assert ", ".join(map(duration, seconds)) == expected


def test_counts_are_formatted_for_people() -> None:
    counts = [millions(count) for count in (812, 9_999, 10_000, 804_096, 10_646_784)]
    assert counts == ["812", "9,999", "0.01 M", "0.80 M", "10.65 M"]


def test_one_thing_has_no_plural() -> None:
    assert [counted(count, "run") for count in (0, 1, 2, 1_000, "all")] == [
        *("0 runs", "1 run", "2 runs", "1,000 runs", "all runs")
    ]
    assert layers_and_heads(1, 4) == "1 layer × 4 heads"


def test_any_value_is_shown_in_one_short_text() -> None:
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep] * 9
    values: list[Any] = ["x" * 10**7, b"x" * 10**6, 10**5000, -(10**400), [10**5000], None, deep]
    assert all(0 < len(short_repr(value)) <= 60 for value in values)
    assert [short_repr(value) for value in ("é", 5, [1, "a"])] == ["'é'", "5", "[1, 'a']"]
    assert short_repr(10**400) == "a number of 1,329 bits"
