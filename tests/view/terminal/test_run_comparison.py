"""The table and the curves of several runs, at any width, without colours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import drawn
from manifests import NASTY, in_part, manifest
from rich.cells import cell_len

from gpt.config import TrainConfig
from gpt.storage.comparison import Comparison, Curve, Entry, Group
from gpt.storage.manifest import CorpusId, Manifest
from gpt.view.terminal.comparison import comparison_lines, curve_lines
from gpt.view.terminal.lines import Page


def entry(name: str, val: list[float], found: Manifest | None = None) -> Entry:
    steps, losses = np.arange(1, len(val) + 1) * 100, np.array(val)
    return Entry(name, found or manifest(), Curve(steps, losses, losses, name=name))


def comparison(*groups: Group, columns: tuple[str, ...] = ()) -> Comparison:
    return Comparison((groups,), columns)


def plain(lines: list[Any]) -> list[str]:
    return [line.plain for line in lines]


FALLING = [4.0, 3.0, 2.5, 2.2, 2.0]
SLOWER = [4.0, 3.4, 3.0, 2.8, 2.7]


def two() -> Comparison:
    fast, slow = Group((entry("fast", FALLING),), "fast"), Group((entry("slow", SLOWER),), "slow")
    return comparison(fast, slow)


@pytest.mark.parametrize("width", [40, 80, None])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_curves_have_letters_and_labelled_ends(width: int | None, ascii_only: bool) -> None:
    found = two()
    page = Page(width, ascii_only)
    title, *rows, axis, ends = drawn(curve_lines(found, found.sets[0], page), page)
    edge = "|" if ascii_only else "│"
    rows = [row for row in rows if edge in row]
    assert title.startswith("validation loss, nats per character")
    assert rows[0].split()[0] == "3.40"
    assert rows[-1].split()[0] == "2.00"
    assert ends.split() == ["0", "step", "500"]
    a, b = ([row for row, line in enumerate(rows) if mark in line.split(edge)[1]] for mark in "ab")
    assert a[-1] == len(rows) - 1  # the best curve ends at the lowest row
    assert b[-1] < a[-1]
    assert all(cell_len(line) <= 100 for line in (*rows, axis, ends))


def test_early_losses_above_the_axis_are_not_drawn() -> None:
    found = two()
    text = " ".join(plain(curve_lines(found, found.sets[0], Page(200))))
    assert "above 3.4000 not shown" in text


def test_equal_curves_stay_visible_beside_each_other() -> None:
    found = comparison(
        Group((entry("x", FALLING),), "x"),
        Group((entry("y", FALLING),), "y"),
        Group((entry("z", [2.5]),), "z"),
    )
    drawn = "".join(plain(curve_lines(found, found.sets[0], Page(80)))[1:])
    assert {"a", "b", "c"} <= {*drawn}


def test_a_flat_curve_and_no_curve() -> None:
    flat = comparison(Group((entry("x", [2.0, 2.0]),), "x"))
    assert any("a" in line for line in plain(curve_lines(flat, flat.sets[0], Page(60)))[1:])
    none = comparison(Group((entry("x", []),), "x"))
    assert curve_lines(none, none.sets[0], Page(60)) == []
    assert plain(comparison_lines(none, Page(60)))[0].startswith("1 run")


def test_notes_say_what_limits_the_comparison() -> None:
    running = manifest(step=8, train=TrainConfig(steps=12), best_loss=None)
    again = [entry(name, FALLING, manifest(best_loss=2.25 + n)) for n, name in enumerate("xy")]
    found = comparison(
        Group((entry("new", [], running),), "new"),
        Group(tuple(again), "x, y"),
        Group((entry("part", FALLING, in_part()),), "part"),
    )
    text = "\n".join(plain(comparison_lines(found, Page())))
    assert "not finished: new, step 8 of 12" in text
    assert "not evaluated yet: new" in text
    assert "the same seed twice in x, y: y" in text
    assert "losses on 19,968 of 111,539 characters: part" in text
    assert "±: standard deviation over n seeds" in text
    assert "counting 2-grams: 2.5000 nats" in text
    alone = comparison(Group((entry("part", FALLING, in_part()),), "part"))
    heading = plain(comparison_lines(alone, Page()))[0]
    assert heading.endswith("111,539 characters (on 19,968 of 111,539)")


def test_curves_on_other_characters_than_the_table_say_so() -> None:
    def group(name: str, read: int, found: Manifest) -> Group:
        base = entry(name, FALLING, found)
        on = np.full(len(FALLING), read)
        return Group((replace(base, curve=replace(base.curve, characters=on, of=111_539)),), name)

    whole, part = in_part(whole_loss=2.3), in_part()
    for groups, said in (
        ([group("a", 19_968, whole)], "curves on 19,968, the table's losses on 111,539"),
        (
            [group("a", 19_968, whole), group("b", 9_984, part)],
            "curves on 9,984 to 19,968, the table's losses on 19,968 to 111,539",
        ),
    ):
        found = comparison(*groups)
        text = " ".join(plain(comparison_lines(found, Page(200))))
        assert f"{said} of 111,539 characters" in text
        counts = [record["val_characters"] for record in found.records()]
        assert counts == [111_539, 19_968][: len(groups)]
    for same in (group("a", 19_968, part), group("a", 111_539, manifest(val_characters=111_539))):
        text = " ".join(plain(comparison_lines(comparison(same), Page(200))))
        assert "the table's losses" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_names_and_texts_are_escaped_and_fit(width: int) -> None:
    named = replace(manifest(), corpus=CorpusId("0" * 64, 9, (NASTY, "とても長い日本語の本.txt")))
    groups = [
        Group(
            (entry(f"とても長い名前の実験-{n}", FALLING, named),),
            f"とても長い名前の実験-{n}",
            {"p": NASTY},
        )
        for n in range(60)
    ]
    lines = drawn(comparison_lines(comparison(*groups, columns=("p",)), Page(width)), Page(width))
    assert any(line.startswith("Z ") for line in lines)
