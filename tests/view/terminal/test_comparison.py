"""Two checkpoints side by side, at any width."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from drawn import drawn, random_map

from gpt.config import Drawing
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.view.selection import Selection, select
from gpt.view.terminal.attention import compare
from gpt.view.terminal.lines import Page

TEXT = "the cat\n"


def looks(first: AttentionMap, second: AttentionMap, **options: Any) -> list[Selection]:
    return [
        select(first, **options, name="step 5"),
        select(second, **options, name="step 1,000"),
    ]


def shown(sides: list[Selection], page: Page, view: Drawing = "auto") -> list[str]:
    return drawn(compare(sides, view, page), page)


def test_comparison_is_side_by_side_if_it_fits() -> None:
    sides = looks(random_map(TEXT), random_map(TEXT, 2))
    lines = shown(sides, Page(width=140))
    assert lines[2].split(" │ ")[0].rstrip() == "step 5"
    assert lines[2].split(" │ ")[1] == "step 1,000"
    for row in range(8):
        left, right = lines[5 + row].split(" │ ")
        for side, part in ((sides[0], left), (sides[1], right)):
            weights = [float(number) for number in re.findall(r"\d?\.\d\d", part)]
            expected = side.attention["weights", 0, 0][row, : row + 1]
            np.testing.assert_allclose(weights, expected, atol=0.0051)


def test_more_checkpoints_than_fit_side_by_side_continue_below() -> None:
    steps = [select(random_map(TEXT, n), name=f"step {n}") for n in range(1, 5)]
    wide = shown(steps, Page(width=140))
    assert wide[2].split(" │ ")[0].rstrip() == "step 1"
    assert [part.strip() for part in wide[2].split("│")] == [f"step {n}" for n in range(1, 5)]
    narrow = shown(steps, Page(width=40))
    rows = [line for line in narrow if line.startswith("step") and "│" in line]
    assert [[part.strip() for part in row.split("│")] for row in rows] == [
        ["step 1", "step 2"],
        ["step 3", "step 4"],
    ]
    changes = [line.split(" · ")[0] for line in shown(steps, Page()) if " to step " in line]
    assert changes == ["step 1 to step 2", "step 2 to step 3", "step 3 to step 4"]


def test_comparison_on_a_narrow_page_is_stacked() -> None:
    lines = shown(looks(random_map(TEXT), random_map(TEXT, 2)), Page(width=40), "numbers")
    assert lines.index("step 5") < lines.index("step 1,000")
    assert not any("│" in line for line in lines)


def test_largest_change_is_named_with_its_sign() -> None:
    first, second = random_map(TEXT), random_map(TEXT, 2)
    difference = second["weights", 0, 0] - first["weights", 0, 0]
    row, column = np.unravel_index(np.abs(difference).argmax(), (8, 8))
    lines = " ".join(shown(looks(first, second), Page()))
    found = re.search(
        r"mean change (\.\d+) · largest ([+−])(\d?\.\d+) at query (\d) '.', key (\d)", lines
    )
    assert found
    mean = np.abs(difference[np.tri(8, dtype=bool)]).mean()
    assert float(found[1]) == pytest.approx(mean, abs=0.0051)
    assert (found[2] == "+") == (difference[row, column] > 0)
    assert float(found[3]) == pytest.approx(abs(difference[row, column]), abs=0.0051)
    assert (int(found[4]), int(found[5])) == (row, column)


@pytest.mark.parametrize("stage", ["masked", "context", "resid_mid"])
@pytest.mark.parametrize("view", get_args(Drawing))
@pytest.mark.parametrize("width", [40, 80, None])
def test_every_stage_and_view_fits_any_page(stage: str, view: Drawing, width: int | None) -> None:
    page = Page(width, ascii_only=True)
    assert shown(looks(random_map(TEXT), random_map(TEXT, 2), stage=stage, head="all"), page, view)


def test_checkpoints_of_different_shapes_compare_common_heads() -> None:
    lines = shown(looks(random_map(TEXT), random_map(TEXT, 2, heads=4), head="all"), Page())
    assert sum(line.startswith("layer 0 head") for line in lines) == 2
    context = shown(looks(random_map(TEXT), random_map(TEXT, 2, heads=4), stage="context"), Page())
    assert "change: the matrices differ in shape" in context


def test_comparison_without_a_common_head_is_refused() -> None:
    first, second = random_map(TEXT), random_map(TEXT, 2)
    sides = [*looks(first, first, head="0")[:1], *looks(second, second, head="1")[1:]]
    with pytest.raises(ConfigError, match="share no such head"):
        compare(sides, "auto", Page())


def test_comparison_shows_the_checks_of_both_sides() -> None:
    first, second = random_map(TEXT), random_map(TEXT, 2)
    failed = replace(second.checks[0], error=1.0)
    second = replace(second, checks=(failed, *second.checks[1:]))
    lines = shown(looks(first, second), Page())
    assert [line[-1] for line in lines if line.startswith("checks:")] == ["✓", "D"]
