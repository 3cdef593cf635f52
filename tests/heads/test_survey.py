"""The table of heads: ranking, jobs, JSON, files."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import shown
from hand_built import LETTERS, SIZE, hand_built

from gpt.config import HeadsConfig
from gpt.errors import ConfigError, TextError
from gpt.heads.measures import RULE, Measure
from gpt.heads.survey import Survey, spread_windows, survey
from gpt.show.programs import to_record


@pytest.fixture(scope="module")
def found() -> Survey:
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    return survey(hand_built(), LETTERS, ids, HeadsConfig(ablate="mean"))


def test_heads_whose_ablation_raises_the_loss_most_come_first(found: Survey) -> None:
    values = next(each.values for each in found.measures if each.name == "ablation")
    by_loss = [values[place] for place in found.ranking()]
    assert by_loss == sorted(by_loss, reverse=True)


def test_heads_with_names_come_first_without_ablation(found: Survey) -> None:
    assert found.measures[-1].name == "ablation"
    without = Survey(found.measures[:-1], found.windows, found.characters)
    assert set(without.ranking()[:4]) == {(0, 0), (0, 1), (0, 3), (1, 0)}


def test_one_line_a_head_says_what_it_looks_at_and_what_it_is_worth(found: Survey) -> None:
    lines = shown(found, 80)
    named = [place for place in found.ranking() if found.names[place[0]][place[1]]]
    rows = [line for line in lines if re.match(r"L\dH\d ", line)]
    assert [row.split()[0] for row in rows] == [f"L{layer}H{head}" for layer, head in named]
    assert any("L0H0" in row and "the character before" in row for row in rows)
    assert any("L1H0" in row and "what followed this letter before" in row for row in rows)
    assert any(line.startswith("4 heads  everywhere") for line in lines)
    assert len(lines) <= 20


def test_heads_that_gptx_set_and_that_still_do_the_same_began_so(found: Survey) -> None:
    began = replace(found, set_heads=4)
    rows = {row.head: row.began for row in began.shown()}
    assert rows["L0H0"] == "began so"
    assert rows["L1H0"] == ""
    assert not any(row.began == "began so" for row in found.shown())


def test_heads_of_a_name(found: Survey) -> None:
    assert found.of("induction") == [(1, 0)]
    assert (0, 0) in found.of("previous")
    assert sum(len(found.of(name)) for name in {n for row in found.names for n in row}) == 8


def test_the_long_form_has_every_measure_of_every_head_and_what_names_mean(found: Survey) -> None:
    text = "\n".join(shown(found, None, all=True))
    assert RULE in text
    assert len(found.shown(all=True)) == 8 * sum(len(m.every) for m in found.measures)
    for measure in found.measures:
        assert measure.explained in text


def test_the_measured_text_is_named(found: Survey) -> None:
    measured = "<Survey of 2 layers × 4 heads on 8 windows of 16 characters of a text: "
    assert repr(found).startswith(measured)
    one = replace(found, windows=1, characters=5, text="b.txt")
    assert one.measured == "1 window of 5 characters of b.txt"
    assert shown(one)[-1].startswith("1 window of b.txt · loss in nats · see one: gptx attn")


def test_a_survey_is_saved_as_a_figure_or_as_rows(found: Survey, tmp_path: Path) -> None:
    for name, begin in (("x.csv", b'"layer"'), ("x.json", b'{"schema"')):
        assert found.save(tmp_path / name).read_bytes().startswith(begin)
    pytest.importorskip("matplotlib")
    assert b"<svg" in found.save(tmp_path / "x.svg").read_bytes()
    with pytest.raises(ConfigError, match="does not end in"):
        found.save(tmp_path / "x.doc")


def test_heads_json_has_every_number_and_null_for_unknown(found: Survey) -> None:
    record = to_record(found, {"run": "r"})
    read = json.loads(json.dumps(record, allow_nan=False))
    assert (read["run"], read["rule"], read["text"]) == ("r", RULE, found.text)
    assert read["measures"]["sink"]["title"] == "sink"
    rows = {(row["layer"], row["head"]): row for row in read["rows"]}
    assert list(rows) == found.ranking()
    assert rows[1, 0]["kind"] == "induction"
    assert rows[0, 0]["back_offset"] == found.measures[0].offsets[0, 0]
    assert {"period_4", "period_6_error", "period_6_uniform"} < rows[0, 0].keys()
    for measure in found.measures:
        for at, row in rows.items():
            numbers = [row[measure.name], row[f"{measure.name}_error"]]
            expected = [measure.values[at], measure.errors[at]]
            assert numbers == pytest.approx(expected, rel=1e-8, abs=1e-12, nan_ok=True)
            assert row[f"{measure.name}_uniform"] == pytest.approx(measure.uniform_value(*at))
    one = Measure("sink", "", "", np.ones((1, 1)), np.full((1, 1), math.nan), math.nan, 1)
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
