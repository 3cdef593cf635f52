"""Two models compared, in words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from gpt.reading.paired import paired
from gpt.view.terminal.scores import paired_line, paired_record


def test_a_comparison_shows_its_interval_and_warns_about_recipes() -> None:
    random = np.random.default_rng(1)
    a = random.random(1000)
    recipes = " · this compares two models; to compare recipes, train several seeds of each"
    better = paired(a, a + 0.1 + 0.01 * random.random(1000))
    assert better.interval
    low, high = better.interval
    line = paired_line("a", "b", better)
    shown = f"difference {better.difference:+.4f} (95 % interval {low:+.4f} to {high:+.4f})"
    assert line.endswith(f"{shown} · a predicts better{recipes}")
    assert "(95 % interval +0.1" in line
    other = paired_line("a", "b", paired(a, a - 0.1 - 0.01 * random.random(1000)))
    assert other.endswith(f" · b predicts better{recipes}")
    unsure = paired_line("a", "b", paired(a, random.permutation(a)))
    assert " (95 % interval -0.1" in unsure
    half = paired(a, np.random.default_rng(1).permutation(a)).detectable
    assert half
    assert re.search(
        r"\) · too close to tell: this text shows differences from 0\.\d{4} nats on · ", unsure
    )
    short = paired_line("a", "b", paired(a[:9], a[:9] + 1))
    rests = "difference +1.0000 (the text is too short for an interval) · too close to tell"
    assert short.endswith(rests + recipes)


def test_eval_json_has_the_interval_or_null() -> None:
    a = np.random.default_rng(2).random(500)
    record = json.loads(json.dumps(paired_record(paired(a, a[::-1] + 0.5))))
    assert list(record) == (
        "first second difference error freedom interval detectable sure characters".split()
    )
    low, high = record["interval"]
    assert low < record["difference"] < high
    assert record["sure"] is True
    assert record["detectable"] == pytest.approx((high - low) / 2)
    assert record["characters"] == 500
    short = json.loads(json.dumps(paired_record(paired(a[:5], a[5:10])), allow_nan=False))
    assert (short["error"], short["interval"], short["detectable"]) == (None, None, None)
