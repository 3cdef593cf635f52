"""The table of heads: ranking, uniform head, width, JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from drawn import shown
from gpt.view.terminal.lines import Page
from hand_built import LETTERS, SIZE, hand_built

from gpt.config import HeadsConfig
from gpt.errors import TextError
from gpt.heads.measures import RULE, Measure
from gpt.heads.survey import DEFAULT_MEASURES, NO_INDUCTION, Survey, spread_windows, survey
from gpt.view.records import to_record


@pytest.fixture(scope="module")
def found() -> Survey:
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    return survey(hand_built(), LETTERS, ids, HeadsConfig(ablate="mean"))


def rows(found: Survey, page: Page, every: bool = False) -> list[str]:
    """The lines from the table on."""
    return shown(found.blocks(every), page)[2:]


def test_heads_whose_ablation_raises_the_loss_most_come_first(found: Survey) -> None:
    values = next(each.values for each in found.measures if each.name == "ablation")
    by_loss = [values[place] for place in found.ranking()]
    assert by_loss == sorted(by_loss, reverse=True)


def test_heads_with_names_come_first_without_ablation(found: Survey) -> None:
    assert found.measures[-1].name == "ablation"
    without = Survey(found.measures[:-1], found.windows, found.characters)
    assert set(without.ranking()[:4]) == {(0, 0), (0, 1), (0, 3), (1, 0)}


def test_table_has_a_row_per_head_and_the_uniform_head_last(found: Survey) -> None:
    lines = rows(found, Page())
    first = [measure for measure in found.measures if measure.name in DEFAULT_MEASURES]
    titles = [each.title for measure in first for each in measure.every]
    assert lines[0].split() == " ".join(["head", "kind", *titles]).split()
    assert {"induction", "synthetic", "Δloss"} < set(lines[0].split())
    assert any(re.match(r"L0H0 +previous +1: 1\.00±\.00/\.16 ", line) for line in lines)
    last = lines.index("") - 1
    assert last == 9
    uniform = next(each.uniform for each in found.measures if each.name == "duplicate")
    assert lines[last].split()[:3] == ["uniform", "/", f"{uniform:.2f}"[1:]]
    assert lines[-1] == "weights show where a head looks, not what that causes"
    looks = replace(found, measures=found.measures[:-1])
    assert rows(looks, Page())[-1].endswith("; --ablate mean measures the effect")


def test_table_explains_names_and_what_to_train_if_no_head_has_induction(
    found: Survey,
) -> None:
    lines = rows(found, Page())
    assert RULE in lines
    assert NO_INDUCTION not in lines
    uniform = replace(found, measures=tuple(m for m in found.measures if "induction" not in m.name))
    assert NO_INDUCTION in rows(uniform, Page())
    assert "gptx train repeats" in NO_INDUCTION


def test_heads_table_names_the_measured_text(found: Survey) -> None:
    measured = "<Survey of 2 layers × 4 heads on 8 windows of 16 characters of a text: "
    assert repr(found).startswith(measured)
    assert shown(found.blocks(), Page())[0] == f"heads · {found.measured}"
    one = replace(found, windows=1, characters=5, text="b.txt")
    assert one.measured == "1 window of 5 characters of b.txt"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_all_option_shows_every_measure_at_any_width(found: Survey, width: int) -> None:
    page = Page(width, ascii_only=True)
    lines = rows(replace(found, text="a text of a very long name" * 3), page, every=True)
    for measure in found.measures:
        assert any(measure.title.replace("Δ", "d") in line for line in lines)
    for every in (True, False):
        heading = rows(found, Page(), every=every)[0]
        assert re.search(r"synthetic +P=4 +P=6 ", heading)
        assert ("no sink" in heading) == every


def test_heads_json_has_every_number_and_null_for_unknown(found: Survey) -> None:
    record = to_record(found.records(), {"run": "r"})
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
    (row,) = to_record(Survey((one,), 1, 5).records(), {})["rows"]
    assert (row["sink"], row["sink_error"], row["sink_uniform"]) == (1.0, None, None)


def test_unknown_standard_error_is_not_shown() -> None:
    one = Measure("sink", "sink", "", np.ones((1, 1)), np.full((1, 1), math.nan), 0.1, 1)
    lines = rows(Survey((one,), 1, 5), Page())
    assert lines[1].split()[-1] == "1.00"


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
