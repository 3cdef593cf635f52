"""Measures over a training as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from hand_built import SIZE, hand_built

from gpt.heads.survey import Development, development, survey
from gpt.view.records import COLUMNS, development_csv, development_record


@pytest.fixture(scope="module")
def found() -> Development:
    ids = np.random.default_rng(0).integers(0, 6, 4 * SIZE + 1)
    return development([5, 10], [survey(hand_built(back), ids) for back in (1, 2)])


def test_json_has_every_number_by_step_layer_and_head(found: Development) -> None:
    read = json.loads(json.dumps(development_record(found, "a-run"), allow_nan=False))
    assert (read["run"], read["steps"], read["windows"]) == ("a-run", [5, 10], 4)
    assert read["kinds"] == found.kinds.tolist()
    assert [each["name"] for each in read["measures"]] == list(found.names)
    for number, each in enumerate(read["measures"]):
        np.testing.assert_allclose(each["values"], found.values[:, number], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(each["errors"], found.errors[:, number], rtol=1e-8, atol=1e-12)
        even = found.uniform[:, number]
        np.testing.assert_allclose(np.broadcast_to(each["uniform"], even.shape), even, rtol=1e-8)
        assert ("offsets" in each) == (each["name"] == "back")
    assert [step[0][0] for step in read["measures"][0]["offsets"]] == [1, 2]


def test_csv_has_a_line_for_each_step_head_and_measure(found: Development) -> None:
    rows = list(csv.DictReader(io.StringIO(development_csv(found))))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == found.values.size
    for row in rows:
        step = [5, 10].index(int(row["step"]))
        place = int(row["layer"]), int(row["head"])
        number = found.names.index(row["measure"])
        assert float(row["value"]) == pytest.approx(found.values[(step, number, *place)], abs=1e-8)
        even = found.uniform[(step, number, *place)]
        assert float(row["uniform"]) == pytest.approx(even, abs=1e-8)
        assert row["kind"] == found.kinds[(step, *place)]
        assert bool(row["offset"]) == (row["measure"] == "back")


def test_unknown_numbers_are_null_and_empty() -> None:
    one = survey(hand_built(), np.arange(SIZE))  # one window, no repeated character
    found = development([1, 2], [one, one])
    read = json.loads(json.dumps(development_record(found, ""), allow_nan=False))
    assert next(m for m in read["measures"] if m["name"] == "duplicate")["values"][0][0][0] is None
    rows = list(csv.DictReader(io.StringIO(development_csv(found))))
    assert next(row for row in rows if row["measure"] == "duplicate")["value"] == ""
