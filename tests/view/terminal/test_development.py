"""Tables of measures over a training: curves, values, order, names, any width."""

from __future__ import annotations

import re

import numpy as np
import pytest
from drawn import drawn
from hand_built import SIZE, hand_built

from gpt.errors import ConfigError
from gpt.heads.survey import Development, development, survey
from gpt.view.terminal.heads import FIRST, by_change, development_lines
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


def shown(found: Development, page: Page, **options: object) -> list[str]:
    return drawn(development_lines(found, page, **options), page)  # type: ignore[arg-type]


def table(lines: list[str], title: str) -> list[str]:
    """The rows of the table with this title."""
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{title} · uniform"))
    return lines[start + 1 : lines.index("", start)]


def test_a_jump_of_a_measure_is_seen_in_its_curve(found: Development) -> None:
    rows = table(shown(found, Page()), "induction, synthetic")
    assert rows[0].split() == ["0", "100", "200", "300"]
    assert rows[1].startswith("layer 1 head 0  induction ")
    curve, *numbers = rows[1].removeprefix("layer 1 head 0  induction ").split()
    values = found.of("induction_synthetic")[:, 1, 0]
    assert re.fullmatch("[▁▂]{2}[▇█]{2}", curve)
    assert numbers == [f"{value:.2f}".removeprefix("0") for value in values]
    assert len(rows) == 9


def test_the_most_changed_heads_come_first(found: Development) -> None:
    for name in found.names:
        change = [found.change(name)[place] for place in by_change(found, name)]
        assert change == sorted(change, reverse=True)
    assert by_change(found, "back")[0] == (0, 0)
    assert by_change(found, "induction")[0] == (1, 0)
    lines = shown(found, Page(), sort="back", top=2)
    for name in ("duplicate", "induction in text"):
        rows = table(lines, name)
        assert len(rows) == 3
        assert rows[1].startswith("layer 0 head 0  previous ")
    with pytest.raises(ConfigError, match=r"^sort: 'size' is not one of back, previous, "):
        shown(found, Page(), sort="size")


def test_names_come_with_the_step_since_which_heads_have_them(found: Development) -> None:
    lines = shown(found, Page())
    assert lines[0] == f"heads over training · 4 steps, 0 to 300 · {found.measured}"
    assert lines[2] == (
        "duplicate since step 0: L0H3 · sink since step 0: L0H1 · induction since step 200: L1H0 · "
        "previous since step 200: L0H0"
    )


def test_an_offset_stands_before_the_value() -> None:
    rows = table(shown(grown(2, 1), Page()), "n back")
    row = next(row for row in rows if row.startswith("layer 0 head 0 "))
    assert row.split()[-2:] == ["2:1.00/.13", "1:1.00/.16"]


def test_tables_show_the_measures_of_the_command(found: Development) -> None:
    def titles(lines: list[str]) -> list[str]:
        return [line.partition(" · uniform")[0] for line in lines if " · uniform" in line]

    first = [each.title for each in found.measures if each.name in FIRST]
    assert titles(shown(found, Page())) == first
    assert titles(shown(found, Page(), every=True)) == [each.title for each in found.measures]


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("steps", [2, 5, 60])
def test_lines_fit_the_page_with_first_and_last_step(width: int, steps: int) -> None:
    few = grown(9, 1, text="a text of a very long name " * 3)
    late = [few.surveys[1]] * (steps - 1)
    many = development(range(0, 10 * steps, 10), [few.surveys[0], *late])
    lines = shown(many, Page(width, ascii_only=True), every=True)
    for title in ("n back", "sink", "distance"):
        start = next(n for n, line in enumerate(lines) if line.startswith(f"{title} | uniform"))
        at = lines[start + 1].split()
        assert (at[0], at[-1]) == ("0", str(10 * (steps - 1)))
        assert at == sorted(at, key=int)


def test_an_unknown_measure_has_an_empty_curve() -> None:
    one = survey(hand_built(), np.arange(SIZE))  # no repeated character
    rows = table(shown(development([1, 2], [one, one]), Page()), "duplicate")
    assert rows[1].split()[-2:] == ["-", "-"]
