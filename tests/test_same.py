"""benchmarks/same.py finds every number that differs, whatever its key is called."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

same = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks/same.py"))


def test_numbers_have_the_key_that_leads_to_them() -> None:
    record = {
        "a": 1,
        "b": {"c": [-0.0, 2.5]},
        "rows": [{"d": [[3]]}, {"d": 4, "e": "5"}],
        "f": True,
    }
    found = [("a", "1"), ("b.c", "0"), ("b.c", "2.5"), ("rows.d", "3"), ("rows.d", "4")]
    assert list(same["numbers"](record)) == found


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        ({"a": ["1", "2"], "b": ["3"]}, []),
        ({"a": ["1", "2"], "c": ["3"]}, []),
        ({"a": ["2", "1"], "b": ["3"]}, ["in another order: a"]),
        (
            {"a": ["1", "3"], "b": ["2"]},  # no name is new, so both keys have changed
            [
                *("only in OLD: a: 2 (1 in all)", "only in NEW: a: 3 (1 in all)"),
                *("only in OLD: b: 3 (1 in all)", "only in NEW: b: 2 (1 in all)"),
            ],
        ),
        ({"c": ["1"], "d": ["2", "3", "3"]}, ["only in NEW: d: 3 (1 in all)"]),
        ({"a": ["1", "2"]}, ["only in OLD: b: 3 (1 in all)"]),
    ],
)
def test_every_number_of_a_command_is_compared(new: dict[str, list[str]], lines: list[str]) -> None:
    assert same["differences"]({"a": ["1", "2"], "b": ["3"]}, new) == lines


def test_a_command_that_fails_is_a_difference() -> None:
    good, bad = {"command": ["succeeds"], "a": ["1"]}, {"command": ["fails with exit code 2"]}
    for old, new in ((good, bad), (bad, good), (bad, bad)):
        where = ("classic", "why")
        found = same["compare"]({where: old}, {where: new}, [])
        assert found["differing"] == ["classic · why"]
        excuse = same["Excuse"]("why left", command="why")
        assert not same["compare"]({where: old}, {where: new}, [excuse])["differing"]
