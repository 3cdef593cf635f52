"""The page's JavaScript computes the map's stages from the data of the page."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from javascript import JavaScript
from pages import payload_of, random_subject

from gpt.config import DrawnStage
from gpt.config.model import HEAD_STAGES, SQUARE
from gpt.heads.attention_map import AttentionMap
from gpt.view.page.page import StartHead, build_page

TEXT = "the cat"


@pytest.fixture(scope="module")
def shown() -> tuple[AttentionMap, Any]:
    """A map, and the data of its page."""
    subject = random_subject(TEXT)
    return subject.attention, payload_of(build_page(subject, StartHead()))


@pytest.mark.parametrize("stage", get_args(DrawnStage))
def test_the_page_has_every_stage(
    script: JavaScript, shown: tuple[AttentionMap, Any], stage: str
) -> None:
    found, page = shown
    for layer, head in ((0, 0), (1, 1)):
        read = script("matrix", page, {"stage": stage, "layer": layer, "head": head})
        expected = found[stage, layer, head if stage in HEAD_STAGES else None]
        assert (read["rows"], read["columns"]) == expected.shape
        values = read["values"].reshape(expected.shape)
        np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5)
        assert read["causal"] == (stage in ("weights", "masked"))
        assert read["keys"] == (stage in SQUARE)


def test_the_terms_of_a_cell_sum_to_it(script: JavaScript, shown: tuple[AttentionMap, Any]) -> None:
    found, page = shown
    context = script("sum", page, {"stage": "context"}, 3, 5)
    assert context["value"] == pytest.approx(found["context", 0, 0][3, 5], abs=1e-5)
    assert context["names"] == ["t", "h", "e", "␣"]
    score = script("sum", page, {"stage": "weights"}, 2, 1)
    assert score["value"] == pytest.approx(found["scores", 0, 0][2, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("cell", "stage", "kept"),
    [
        ([1, 1], "weights", True),
        ([1, 3], "weights", False),  # a later character
        ([1, 3], "scores", True),
        ([7, 0], "weights", False),  # the text has 7 characters
    ],
)
def test_a_pinned_cell_lies_within_the_text_and_the_mask(
    script: JavaScript,
    shown: tuple[AttentionMap, Any],
    cell: list[int],
    stage: str,
    kept: bool,
) -> None:
    assert script("pinned", shown[1], {"cell": cell, "stage": stage}) == (cell if kept else None)
