"""Options select parts of an attention map; JSON, CSV and NPZ are strict, and exact to the last bit
of float32.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from gpt.config import DrawnStage
from gpt.config.model import HEAD_STAGES, SQUARE
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap, Selection, select_matrices
from gpt.interface.trained import TrainedGPT
from gpt.show.result import to_json
from gpt.storage.run import Checkpoint

STAGES = get_args(DrawnStage)
AWKWARD = '\n",[é\r '  # as many characters as in "the cat"


@pytest.fixture(scope="module")
def attention(tiny: Checkpoint) -> AttentionMap:
    """The numbers of "the cat", 2 layers, 2 heads of 8; the characters are awkward ones."""
    return replace(TrainedGPT(tiny.model()).attn("the cat"), text=AWKWARD)


RANGES = {"0": range(1), "6": range(6, 7), "2:5": range(2, 5), ":3": range(3), "4:": range(4, 7)}
RANGES |= dict.fromkeys((None, ":"), range(7))


@pytest.mark.parametrize(("text", "expected"), RANGES.items())
def test_ranges_are_as_in_python(
    attention: AttentionMap, text: str | None, expected: range
) -> None:
    assert select_matrices(attention, query=text).queries == expected
    assert select_matrices(attention, key=text).keys == expected


@pytest.mark.parametrize("head", ["0", "1", "all", "mean"])
@pytest.mark.parametrize("stage", STAGES)
def test_panels_contain_the_numbers_of_the_map(
    attention: AttentionMap, stage: Any, head: str
) -> None:
    matrices = select_matrices(attention, "1", head, stage, query="1:4", key="2:6").matrices()
    columns = slice(2, 6) if stage in SQUARE else slice(None)
    values = attention[stage, 1][..., 1:4, columns]
    if stage in HEAD_STAGES and head == "mean":
        values = values.mean(axis=0)
    elif stage in HEAD_STAGES and head != "all":
        values = values[int(head)]
    for expected, matrix in zip(values.reshape(-1, *values.shape[-2:]), matrices, strict=True):
        expected = expected.copy()
        if stage == "weights":
            expected[np.arange(1, 4)[:, None] < np.arange(2, 6)] = np.nan
        assert np.array_equal(matrix.values, expected, equal_nan=True)
        assert matrix.square == (stage in SQUARE)


RANGES_THAT_FAIL = ("x", "1:2:3", "7", "-1", "3:3", "2:8")
INVALID = {"layer": ("2", "-1", "mean"), "head": ("2", "²"), "query": RANGES_THAT_FAIL}


@pytest.mark.parametrize("option", INVALID)
def test_an_invalid_value_is_refused_by_the_name_of_its_option(
    attention: AttentionMap, option: str
) -> None:
    for value in INVALID[option]:
        with pytest.raises(ConfigError, match=f"^{option}: .*{value}"):
            select_matrices(attention, **{option: value})  # type: ignore[arg-type]


def selected(attention: AttentionMap, stage: str, query: str = ":", key: str = ":") -> Selection:
    return select_matrices(attention, "all", "all", stage, query=query, key=key)  # type: ignore[arg-type]


@pytest.mark.parametrize(("query", "key"), [(":", ":"), ("2:5", "1:6")])
@pytest.mark.parametrize("stage", STAGES)
def test_json_round_trips_every_number_and_has_null_for_masked(
    attention: AttentionMap, stage: str, query: str, key: str
) -> None:
    selection = selected(attention, stage, query, key)
    document = json.loads(to_json(selection, {"run": "r"}))
    assert document["panels"] == [{"layer": layer, "head": h} for layer, h in selection.panels]
    rows = slice(selection.queries.start, selection.queries.stop)
    columns = slice(selection.keys.start, selection.keys.stop) if stage in SQUARE else slice(None)
    for values, (layer, head) in zip(document["values"], selection.panels, strict=True):
        read = np.array([[-np.inf if v is None else v for v in row] for row in values], np.float32)
        expected = attention[stage, layer, None if head == "all" else head][rows, columns]  # type: ignore[index]
        assert np.array_equal(read, expected)
    assert (document["text"], document["ids"]) == (AWKWARD, attention.ids.tolist())
    assert (document["schema"], document["run"], document["stage"]) == (1, "r", stage)
    assert document["axes"][2] == ("key" if stage in SQUARE else "dimension")
    assert document["queries"] == list(selection.queries)
    assert document["keys"] == (list(selection.keys) if stage in SQUARE else None)
    assert all(check["passed"] for check in document["checks"])


@pytest.mark.parametrize("stage", STAGES)
def test_csv_has_one_line_per_number_and_loses_no_bit_and_no_character(
    attention: AttentionMap, stage: str
) -> None:
    selection = selected(attention, stage, "1:6", "2:")
    lines = list(csv.reader(io.StringIO(selection.to_csv(), newline=""), strict=True))
    square = stage in SQUARE
    name = "weight" if stage == "weights" else stage
    columns = ["q_pos", "q_char", "k_pos", "k_char"] if square else ["pos", "char", "dimension"]
    assert lines[0] == ["layer", "head", *columns, name]
    expected = []
    for (layer, head), matrix in zip(selection.panels, selection.matrices(), strict=True):
        for query, row in zip(matrix.rows, matrix.values, strict=True):
            for key, value in zip(matrix.columns, row, strict=True):
                if stage != "weights" or key <= query:
                    where = [query, AWKWARD[query], key, *([AWKWARD[key]] if square else [])]
                    expected.append(([str(cell) for cell in (layer, head, *where)], value))
    assert [line[:-1] for line in lines[1:]] == [where for where, _ in expected]
    assert [np.float32(line[-1]) for line in lines[1:]] == [value for _, value in expected]


def test_npz_contains_the_whole_map_without_pickle(attention: AttentionMap) -> None:
    data = selected(attention, "weights").to_bytes("npz", {})
    with np.load(io.BytesIO(data), allow_pickle=False) as read:
        names = vars(attention.layers[0])
        assert {*read.files} == {"text", "ids", *names}
        assert str(read["text"]) == AWKWARD
        assert np.array_equal(read["ids"], attention.ids)
        for name in names:
            assert read[name].dtype == np.float32
            assert np.array_equal(read[name], attention[name])
