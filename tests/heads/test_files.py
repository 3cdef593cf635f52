"""JSON, CSV and NPZ are strict, complete, and exact to the last bit of float32."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import pytest

from gpt.checks import Check
from gpt.config import DrawnStage
from gpt.config.model import HEAD_STAGES, SQUARE
from gpt.heads.attention_map import AttentionMap, Selection, select
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Stages
from gpt.show.programs import to_json
from gpt.storage.run import Checkpoint

STAGES = get_args(DrawnStage)
AWKWARD = '\n",[é\r '  # as many characters as in "the cat"


@pytest.fixture(scope="module")
def attention(tiny: Checkpoint) -> AttentionMap:
    """The numbers of "the cat"; the characters are replaced by awkward ones."""
    return replace(TrainedGPT(tiny.model()).attn("the cat"), text=AWKWARD)


def selected(attention: AttentionMap, stage: str, query: str = ":", key: str = ":") -> Selection:
    return select(attention, "all", "all", stage, query, key)  # type: ignore[arg-type]


def strict(text: str) -> dict[str, Any]:
    """Parses strict JSON: no NaN, no Infinity, no duplicate key."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    document: dict[str, Any] = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    return document


@pytest.mark.parametrize(("query", "key"), [(":", ":"), ("2:5", "1:6")])
@pytest.mark.parametrize("stage", STAGES)
def test_json_round_trips_every_number_and_has_null_for_masked(
    attention: AttentionMap, stage: str, query: str, key: str
) -> None:
    selection = selected(attention, stage, query, key)
    document = strict(to_json(selection))
    places = [(layer, head) for layer in (0, 1) for head in (0, 1)]
    if stage not in HEAD_STAGES:
        places = [(0, "all"), (1, "all")]
    assert document["panels"] == [{"layer": layer, "head": head} for layer, head in places]
    rows = slice(selection.queries.start, selection.queries.stop)
    columns = slice(selection.keys.start, selection.keys.stop) if stage in SQUARE else slice(None)
    for values, (layer, head) in zip(document["values"], places, strict=True):
        read = np.array([[-np.inf if v is None else v for v in row] for row in values], np.float32)
        expected = attention[stage, layer, None if head == "all" else head][rows, columns]
        assert np.array_equal(read, expected)
    nulls = {
        (q, k)
        for q, row in enumerate(document["values"][0])
        for k, v in enumerate(row)
        if v is None
    }
    future = {
        (row, column)
        for row, q in enumerate(selection.queries)
        for column, k in enumerate(selection.keys)
        if k > q
    }
    assert nulls == (future if stage == "masked" else set())


def test_json_names_its_source(attention: AttentionMap) -> None:
    origin = {"run": "tiny", "step": 12, "checkpoint": "ab" * 32}
    document = strict(to_json(selected(attention, "weights", "3:5", "1:"), origin))
    assert {name: document[name] for name in origin} == origin
    assert document["schema"] == 1
    assert document["text"] == AWKWARD
    assert document["ids"] == attention.ids.tolist()
    assert (document["stage"], document["axes"]) == ("weights", ["panel", "query", "key"])
    assert (document["queries"], document["keys"]) == ([3, 4], [1, 2, 3, 4, 5, 6])
    checks = attention.checks_of("weights")
    assert [check["name"] for check in document["checks"]] == [check.name for check in checks]
    assert all(check["passed"] for check in document["checks"])
    context = strict(to_json(selected(attention, "context"), origin))
    assert (context["axes"][2], context["keys"]) == ("dimension", None)


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
    heads = (0, 1) if stage in HEAD_STAGES else ("all",)
    places = [(layer, head) for layer in (0, 1) for head in heads]
    for (layer, head), matrix in zip(places, selection.matrices(), strict=True):
        for query, row in zip(matrix.rows, matrix.values, strict=True):
            for key, value in zip(matrix.columns, row, strict=True):
                if stage != "weights" or key <= query:
                    where = [query, AWKWARD[query], key, *([AWKWARD[key]] if square else [])]
                    expected.append(([str(cell) for cell in (layer, head, *where)], value))
    assert [line[:-1] for line in lines[1:]] == [where for where, _ in expected]
    assert [np.float32(line[-1]) for line in lines[1:]] == [value for _, value in expected]


def test_npz_contains_the_whole_map_without_pickle(attention: AttentionMap) -> None:
    with np.load(
        io.BytesIO(selected(attention, "weights").to_bytes("npz", {})[0]), allow_pickle=False
    ) as read:
        names = [field.name for field in fields(Stages)]
        assert sorted(read.files) == sorted(["text", "codes", "ids", *names])
        assert "".join(map(chr, read["codes"])) == AWKWARD
        assert str(read["text"]) == AWKWARD
        assert np.array_equal(read["ids"], attention.ids)
        for name in names:
            assert read[name].dtype == np.float32
            for layer, stages in enumerate(attention.layers):
                assert np.array_equal(read[name][layer], getattr(stages, name))


def test_non_finite_error_of_a_check_is_null(attention: AttentionMap) -> None:
    failed = replace(attention, checks=(Check("odd", float("nan"), 1e-6),))
    document = strict(to_json(selected(failed, "scores")))
    expected = {"name": "odd", "error": None, "bound": 1e-6, "passed": False}
    assert document["checks"][0] == expected
    measured = {"name": "the same in float64", "bound": None, "passed": True}
    assert measured.items() <= document["checks"][1].items()


def test_nine_digits_round_trip_every_float32(attention: AttentionMap) -> None:
    random = np.random.default_rng(6).integers(0, 2**32, size=(2, 7, 7), dtype=np.uint32)
    values = np.where(np.isfinite(random.view(np.float32)), random.view(np.float32), np.float32(1))
    layer = replace(attention.layers[0], scores=values)
    odd = replace(attention, layers=(layer,))
    read = np.array(strict(to_json(selected(odd, "scores")))["values"], np.float32)
    assert np.array_equal(read.view(np.uint32), values.view(np.uint32))
    lines = csv.reader(io.StringIO(selected(odd, "scores").to_csv(), newline=""))
    column = np.array([line[-1] for line in lines][1:], np.float32)
    assert np.array_equal(column.view(np.uint32), values.view(np.uint32).ravel())
