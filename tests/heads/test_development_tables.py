"""Tables of measures over a training: curves, values, order, names, any width."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest
from drawn import shown as lines_of
from hand_built import SIZE, hand_built

from gpt.errors import ConfigError
from gpt.heads.survey import DEFAULT_MEASURES, Development, development, survey
from gpt.view.records import to_csv, to_record
from gpt.view.terminal.lines import Page


def grown(*backs: int, text: str = "a text") -> Development:
    """Models whose first head attends so many characters back; induction works if it is 1."""
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    steps = [100 * n for n in range(len(backs))]
    surveys = [survey(hand_built(back), ids, ablation="mean", text=text) for back in backs]
    return development(steps, surveys)


@pytest.fixture(scope="module")
def found() -> Development:
    return grown(9, 9, 1, 1)


@pytest.fixture(scope="module")
def named() -> Development:
    """Of a text with a long name."""
    return grown(9, 1, text="a text of a very long name " * 3)


def shown(found: Development, page: Page, **options: object) -> list[str]:
    return lines_of(found.blocks(**options), page)  # type: ignore[arg-type]


def table(lines: list[str], title: str) -> list[str]:
    """The rows of the table with this title."""
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{title} · uniform"))
    return lines[start + 1 : lines.index("", start)]


def test_a_jump_of_a_measure_is_seen_in_its_curve(found: Development) -> None:
    rows = table(shown(found, Page()), "induction, synthetic")
    assert rows[0].split() == ["head", "kind", "0", "100", "200", "300"]
    name, kind, curve, *numbers = rows[1].split()
    assert (name, kind) == ("L1H0", "induction")
    values = found.of("induction_synthetic")[:, 1, 0]
    assert re.fullmatch("[▁▂]{2}[▇█]{2}", curve)
    assert numbers == [f"{value:.2f}".removeprefix("0") for value in values]
    assert len(rows) == 9


def test_the_most_changed_heads_come_first(found: Development) -> None:
    for name in found.names:
        change = [found.change(name)[place] for place in found.ranking(name)]
        assert change == sorted(change, reverse=True)
    assert found.ranking("back")[0] == (0, 0)
    assert found.ranking("induction")[0] == (1, 0)
    lines = shown(found, Page(), sort="back", top=2)
    for name in ("duplicate", "induction in text"):
        rows = table(lines, name)
        assert len(rows) == 3
        assert rows[1].split()[:2] == ["L0H0", "previous"]
    with pytest.raises(ConfigError, match=r"^sort: 'size' is not one of back, previous, "):
        shown(found, Page(), sort="size")


def test_names_come_with_the_step_since_which_heads_have_them(found: Development) -> None:
    lines = shown(found, Page())
    assert lines[0] == f"heads over training · 4 steps, 0 to 300 · {found.measured}"
    assert lines[2:6] == [
        "duplicate since step 0: L0H3",
        "sink since step 0: L0H1",
        "induction since step 200: L1H0",
        "previous since step 200: L0H0",
    ]


def test_an_offset_stands_before_the_value() -> None:
    rows = table(shown(grown(2, 1), Page()), "n back")
    row = next(row for row in rows if row.startswith("L0H0 "))
    assert row.split()[-4:] == ["2:", "1.00/.13", "1:", "1.00/.16"]


def test_tables_show_the_measures_of_the_command(found: Development) -> None:
    def titles(lines: list[str]) -> list[str]:
        return [line.partition(" · uniform")[0] for line in lines if " · uniform" in line]

    first = [each.title for each in found.measures if each.name in DEFAULT_MEASURES]
    assert titles(shown(found, Page())) == first
    assert titles(shown(found, Page(), every=True)) == [each.title for each in found.measures]


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("steps", [2, 5, 60])
def test_lines_fit_the_page_with_first_and_last_step(
    named: Development, width: int, steps: int
) -> None:
    late = [named.surveys[1]] * (steps - 1)
    many = development(range(0, 10 * steps, 10), [named.surveys[0], *late])
    lines = shown(many, Page(width, ascii_only=True), every=True)
    for title in ("n back", "sink", "distance"):
        start = next(n for n, line in enumerate(lines) if line.startswith(f"{title} | uniform"))
        at = [int(word) for word in lines[start + 1].split() if word.isdecimal()]
        if "0:" not in "".join(lines[start + 1 : start + 3]) and width > 60:
            assert (at[0], at[-1]) == (0, 10 * (steps - 1))
        assert at == sorted(at)


def test_an_unknown_measure_has_an_empty_curve() -> None:
    one = survey(hand_built(), np.arange(SIZE))  # no repeated character
    rows = table(shown(development([1, 2], [one, one]), Page()), "duplicate")
    assert rows[1].split()[-2:] == ["–", "–"]


def test_json_and_csv_have_a_row_for_each_step_and_head(found: Development) -> None:
    rows = json.loads(json.dumps(to_record(found.records(), {}), allow_nan=False))["rows"]
    assert len(rows) == found.kinds.size
    for row in rows:
        place = found.steps.tolist().index(row["step"]), row["layer"], row["head"]
        assert row["kind"] == found.kinds[place]
        for number, name in enumerate(found.names):
            at = (place[0], number, *place[1:])
            numbers = [row[name], row[f"{name}_error"], row[f"{name}_uniform"]]
            expected = [each[at] for each in (found.values, found.errors, found.uniform)]
            assert numbers == pytest.approx(expected, rel=1e-8, abs=1e-12)
    lines = list(csv.DictReader(io.StringIO(to_csv(found.records()))))
    assert [{name: str(each) for name, each in row.items()} for row in rows] == lines


def test_unknown_numbers_are_null_and_empty() -> None:
    one = survey(hand_built(), np.arange(SIZE))  # one window, no repeated character
    records = development([1, 2], [one, one]).records()
    assert to_record(records, {})["rows"][0]["duplicate"] is None
    assert next(csv.DictReader(io.StringIO(to_csv(records))))["duplicate"] == ""
