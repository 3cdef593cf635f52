"""Options select ranges of an attention map; errors name the option."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config import DrawnStage
from gpt.config.model import HEAD_STAGES, SQUARE
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap, select
from gpt.interface.trained import TrainedGPT
from gpt.storage.run import Checkpoint


@pytest.fixture(scope="module")
def attention(tiny: Checkpoint) -> AttentionMap:
    """7 characters, 2 layers, 2 heads of 8."""
    return TrainedGPT(tiny.model()).attn("the cat")


@pytest.mark.parametrize(
    ("options", "layers", "heads"),
    [
        ({}, (0,), (0,)),
        ({"layer": "1", "head": "1"}, (1,), (1,)),
        ({"layer": "all", "head": "all"}, (0, 1), (0, 1)),
        ({"layer": "all", "head": "mean"}, (0, 1), ("mean",)),
    ],
)
def test_layer_and_head_options_select_panels(
    attention: AttentionMap, options: dict[str, str], layers: Any, heads: Any
) -> None:
    selection = select(attention, **options)
    assert (selection.layers, selection.heads) == (layers, heads)
    assert [matrix.name for matrix in selection.matrices()] == [
        f"layer {layer}, mean of heads" if head == "mean" else f"layer {layer} head {head}"
        for layer in layers
        for head in heads
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, range(7)),
        ("0", range(1)),
        ("6", range(6, 7)),
        ("2:5", range(2, 5)),
        (":3", range(3)),
        ("4:", range(4, 7)),
        (":", range(7)),
    ],
)
def test_ranges_are_as_in_python(
    attention: AttentionMap, text: str | None, expected: range
) -> None:
    assert select(attention, query=text).queries == expected
    assert select(attention, key=text).keys == expected


@pytest.mark.parametrize("head", ["0", "1", "all", "mean"])
@pytest.mark.parametrize("stage", get_args(DrawnStage))
def test_panels_contain_the_numbers_of_the_map(
    attention: AttentionMap, stage: Any, head: str
) -> None:
    selection = select(attention, layer="1", head=head, stage=stage, query="1:4", key="2:6")
    matrices = selection.matrices()
    heads = [0, 1] if head == "all" else ["mean" if head == "mean" else int(head)]
    heads = heads if stage in HEAD_STAGES else [None]
    assert len(matrices) == len(heads)
    columns = slice(2, 6) if stage in SQUARE else slice(None)
    for number, matrix in zip(heads, matrices, strict=True):
        expected = attention[stage, 1, number][1:4, columns].copy()
        if stage == "weights":
            expected[attention.forbidden[1:4, columns]] = np.nan
        assert np.array_equal(matrix.values, expected, equal_nan=True)
        assert matrix.square == (stage in SQUARE)


OF_RANGES = {
    "x": "'x' is not a position or a range A:B",
    "1:2:3": "'1:2:3' is not a position or a range A:B",
    "1.5": "'1.5' is not a position or a range A:B",
    "7": "'7' does not fit a text of 7 characters",
    "-1": "'-1': positions count from 0",
    "3:3": "'3:3' is empty: A:B ends before B",
    "5:2": "'5:2' is empty: A:B ends before B",
    "2:8": "'2:8' does not fit a text of 7 characters",
    "9:": "'9:' does not fit a text of 7 characters",
    "-3:": "'-3:': positions count from 0",
}


@pytest.mark.parametrize(
    ("option", "problems"),
    [
        (
            "layer",
            {
                "2": "2 is not in 0 … 1",
                "-1": "'-1' is not all or a number",
                "mean": "'mean' is not all or a number",
                "": "'' is not all or a number",
            },
        ),
        (
            "head",
            {
                "2": "2 is not in 0 … 1",
                "first": "'first' is not all, mean or a number",
                "²": "'²' is not all, mean or a number",
            },
        ),
        ("query", OF_RANGES),
        ("key", OF_RANGES),
    ],
)
def test_an_invalid_value_is_refused_by_the_name_of_its_option(
    attention: AttentionMap, option: str, problems: dict[str, str]
) -> None:
    for value, problem in problems.items():
        with pytest.raises(ConfigError) as error:
            select(attention, **{option: value})  # type: ignore[arg-type]
        assert str(error.value) == f"{option}: {problem}"


@settings(deadline=None, max_examples=60)
@given(text=st.text("0123456789:-+ a", max_size=6))
def test_range_is_valid_or_refused_but_never_empty(attention: AttentionMap, text: str) -> None:
    with suppress(ConfigError):
        queries = select(attention, query=text).queries
        assert 0 <= queries.start < queries.stop <= 7
