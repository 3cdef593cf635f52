"""The table of heads: ranking, jobs, JSON, files; ablation of heads with known effects."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from drawn import shown
from hand_built import EVEN, INDUCTION, LETTERS, PREVIOUS, SIZE, hand_built

from gpt.config import Ablation, SurveyOptions
from gpt.errors import ConfigError, TextError
from gpt.heads import survey as module
from gpt.heads.measures import RULE, Measure
from gpt.heads.survey import Survey, ablate, spread_windows, survey
from gpt.interface.trained import TrainedGPT
from gpt.reading import decode
from gpt.reading import score as scoring
from gpt.reading.gpt import Reader
from gpt.show.result import to_record


@pytest.fixture(scope="module")
def heads() -> Survey:
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    return survey(hand_built(), LETTERS, ids, SurveyOptions(ablate="mean"))


def test_one_line_a_head_says_what_it_looks_at_and_what_it_is_worth(heads: Survey) -> None:
    lines = shown(heads, 80)
    named = [place for place in heads.ranking() if heads.names[place[0]][place[1]]]
    rows = [line for line in lines if re.match(r"L\dH\d ", line)]
    assert [row.split()[0] for row in rows] == [f"L{layer}H{head}" for layer, head in named]
    assert any("L0H0" in row and "the character before" in row for row in rows)
    assert any("L1H0" in row and "what followed this letter before" in row for row in rows)
    assert any(line.startswith("4 heads  everywhere") for line in lines)
    assert len(lines) <= 20


def test_heads_that_gptx_set_and_that_still_do_the_same_began_so(heads: Survey) -> None:
    began = replace(heads, set_heads=4)
    rows = {row["head"]: row["began"] for row in began.table_rows()}
    assert rows["L0H0"] == "began so"
    assert rows["L1H0"] == "(induction)"
    assert "began so: by gptx's first weights" in began.sentence()
    assert not any(row["began"] == "began so" for row in heads.table_rows())


def test_a_single_head_without_a_name_has_a_row_of_its_own(
    heads: Survey, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [["sink"] * len(row) for row in heads.names]
    names[1][0] = ""
    monkeypatch.setattr(Survey, "names", names)
    rows = [row["head"] for row in heads.table_rows()]
    assert sorted(rows) == [f"L{n}H{h}" for n, row in enumerate(names) for h in range(len(row))]


def test_a_survey_is_saved_as_a_figure(heads: Survey, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert b"<svg" in heads.save(tmp_path / "x.svg").read_bytes()
    with pytest.raises(ConfigError, match="does not end in"):
        heads.save(tmp_path / "x.doc")


def test_heads_json_has_every_number_and_null_for_unknown(heads: Survey) -> None:
    record = to_record(heads, {"run": "r"})
    read = json.loads(json.dumps(record, allow_nan=False))
    assert (read["run"], read["rule"], read["text"]) == ("r", RULE, heads.text)
    assert read["measures"]["sink"]["title"] == "sink"
    rows = {(row["layer"], row["head"]): row for row in read["rows"]}
    assert list(rows) == heads.ranking()
    assert rows[1, 0]["kind"] == "induction"
    for kind in ("induction", "previous", ""):
        assert heads.of(kind) == [place for place in rows if (rows[place]["kind"] or "") == kind]
    assert rows[0, 0]["back_offset"] == heads.measures[0].offsets[0, 0]
    for measure in heads.measures:
        for at, row in rows.items():
            numbers = [row[measure.name], row[f"{measure.name}_error"]]
            expected = [measure.values[at], measure.errors[at]]
            assert numbers == pytest.approx(expected, rel=1e-8, abs=1e-12, nan_ok=True)
            assert row[f"{measure.name}_uniform"] == pytest.approx(measure.uniform_values[at])
    nan = np.full((1, 1), math.nan)
    one = Measure("sink", "", "", np.ones((1, 1)), nan, math.nan, 1, strength=np.zeros((1, 1)))
    (row,) = to_record(Survey((one,), 1, 5))["rows"]
    assert (row["sink"], row["sink_error"], row["sink_uniform"]) == (1.0, None, None)


def test_measured_windows_are_spread_without_overlapping_targets() -> None:
    ids = np.arange(100)
    windows = spread_windows(ids, 10, 4)
    assert windows.shape == (4, 11)
    assert windows[:, 0].tolist() == [0, 29, 59, 89]
    targets = spread_windows(ids, 10, 100)[:, 1:]
    assert len(np.unique(targets)) == targets.size == 90
    assert spread_windows(ids[:7], 10, 4).tolist() == [[0, 1, 2, 3, 4, 5, 6]]
    with pytest.raises(TextError, match="too short"):
        spread_windows(ids[:2], 10, 4)


def ablated(reader: Reader, windows: np.ndarray, how: Ablation) -> Measure:  # type: ignore[type-arg]
    done: list[float] = []
    measure = ablate(reader, windows, how, done=done.append)
    heads = reader.config.n_layer * reader.config.n_head
    assert done == [(head + 1) / heads for head in range(heads)]
    return measure


@pytest.fixture(scope="module")
def repeated() -> np.ndarray:  # type: ignore[type-arg]
    """(8, 17) texts of 8 distinct characters, each written twice."""
    random = np.random.default_rng(2)
    return np.stack([np.tile(random.permutation(SIZE)[:8], 3)[: SIZE + 1] for _ in range(8)])


@pytest.mark.parametrize("how", get_args(Ablation))
def test_only_the_heads_that_complete_repetitions_change_the_loss(
    repeated: np.ndarray,  # type: ignore[type-arg]
    how: Ablation,
) -> None:
    measure = ablated(hand_built(), repeated, how)
    assert measure.values[INDUCTION] > 0.5
    assert measure.values[PREVIOUS] > 0.5
    others = np.delete(measure.values.ravel(), [0, 4])
    assert np.array_equal(others, np.zeros(6))  # rows of W_O are zero: no difference at all
    assert measure.values[EVEN] == measure.errors[EVEN] == 0
    assert (measure.errors[INDUCTION] > 0, measure.windows, measure.uniform) == (True, 8, 0.0)
    again = ablate(hand_built(), repeated, how)
    assert np.array_equal(again.values, measure.values)


def test_windows_read_at_once_and_cores_change_nothing(
    trained: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = trained.vocabulary.encode(trained.stored.excerpt)
    windows = np.stack([ids[n : n + 17] for n in range(0, 85, 17)])
    whole = ablated(trained.reader, windows, "mean")
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", 16 * 64 * 2)
    assert scoring.windows_at_once(trained.config) == 2
    parts = ablated(trained.reader, windows, "mean")
    np.testing.assert_allclose(parts.values, whole.values, rtol=0, atol=1e-6)
    monkeypatch.undo()
    for room in (module, decode):
        monkeypatch.setattr(room, "cores", lambda: 3)
    parts = ablated(trained.reader, windows, "mean")
    np.testing.assert_allclose(parts.values, whole.values, rtol=0, atol=1e-6)
    np.testing.assert_allclose(parts.errors, whole.errors, rtol=0, atol=1e-6)
