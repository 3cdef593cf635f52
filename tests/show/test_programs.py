"""JSON, CSV and DataFrames have every number and no formatted text."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gpt.show.result import Result, csv_text, round_floats, to_json


@dataclass(frozen=True)
class Row:
    """A row."""

    name: str
    loss: float
    parts: list[int]


@dataclass(frozen=True, repr=False)
class Example(Result):
    """Rows and facts, or facts alone."""

    with_rows: bool = True

    @property
    def rows(self) -> Sequence[Row]:
        return (Row("a", 1 / 3, [1, 2]), Row("=b", math.nan, [])) if self.with_rows else ()

    def record(self) -> Mapping[str, Any]:
        return {"third": 1 / 3, "text": "\x1b", "array": np.array([1 / 3, np.inf])}


def test_json_has_the_record_the_origin_and_the_rows() -> None:
    text = to_json(Example(), {"run": "r"})
    assert "\x1b" not in text
    assert json.loads(text) == {
        "schema": 1,
        "run": "r",
        "third": 1 / 3,
        "text": "\x1b",
        "array": [0.333333333, None],
        "rows": [
            {"name": "a", "loss": 0.333333333, "parts": [1, 2]},
            {"name": "=b", "loss": None, "parts": []},
        ],
    }


def test_csv_has_the_rows_or_else_the_record() -> None:
    rows = list(csv.reader(io.StringIO(Example().to_csv())))
    assert rows == [["name", "loss", "parts"], ["a", "0.333333333", "1 2"], ["'=b", "", ""]]
    assert Example(False).to_csv().startswith('"third","text","array"\n0.333333333,')


def test_a_cell_that_a_spreadsheet_would_run_is_quoted() -> None:
    assert csv_text([["=1+1", "-", "@x", "1"]]) == '"\'=1+1","-","\'@x","1"\n'


def test_a_data_frame_has_the_rows() -> None:
    pytest.importorskip("pandas")
    frame = Example().to_pandas()
    assert frame.columns.tolist() == ["name", "loss", "parts"]
    assert frame.loss[0] == 1 / 3
    assert len(Example(False).to_pandas()) == 1


def test_nine_digits_give_every_float32_back() -> None:
    values = np.random.default_rng(6).integers(0, 2**32, 99, np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    assert np.array_equal(np.float32(round_floats(values)), values)
