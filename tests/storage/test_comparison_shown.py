"""The table and the curves of several runs, at any width, without colours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import shown
from manifests import NASTY, in_part, manifest

from gpt.blocks import Block
from gpt.config import TrainConfig
from gpt.storage.comparison import Comparison, Group
from gpt.storage.curves import Curve
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.overview import Overview
from gpt.view.terminal.lines import Page


def entry(name: str, val: list[float], found: Manifest | None = None) -> Overview:
    steps, losses = np.arange(1, len(val) + 1) * 100, np.array(val)
    return Overview(name, found or manifest(), Curve(steps, losses, losses, name=name))


def comparison(*groups: Group, differs: tuple[str, ...] = ()) -> Comparison:
    return Comparison((groups,), differs)


FALLING = [4.0, 3.0, 2.5, 2.2, 2.0]
SLOWER = [4.0, 3.4, 3.0, 2.8, 2.7]


def two() -> Comparison:
    fast, slow = Group((entry("fast", FALLING),), "fast"), Group((entry("slow", SLOWER),), "slow")
    return comparison(fast, slow)


def drawing(found: Comparison) -> Block:
    return found.blocks()[-1]


@pytest.mark.parametrize("width", [40, 80, None])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_curves_have_letters_and_begin_where_a_quarter_is_over(
    width: int | None, ascii_only: bool
) -> None:
    title, *lines, _, ends, cut = shown([drawing(two())], Page(width, ascii_only))
    assert title == "validation loss, nats per character"
    assert cut == "above 3.4000 not shown"
    assert ends.split() == ["0", "step", "500"]
    edge = "|" if ascii_only else "│"
    a, b = (
        [row for row, line in enumerate(lines) if mark in line.split(edge)[-1]] for mark in "ab"
    )
    assert a[-1] == len(lines) - 1  # the best curve ends at the lowest row
    assert b[-1] < a[-1]


def test_equal_curves_stay_visible_beside_each_other() -> None:
    found = comparison(
        Group((entry("x", FALLING),), "x"),
        Group((entry("y", FALLING),), "y"),
        Group((entry("z", [2.5]),), "z"),
    )
    assert {"a", "b", "c"} <= {*"".join(shown([drawing(found)], Page(80))[1:])}


def test_a_flat_curve_and_no_curve() -> None:
    flat = comparison(Group((entry("x", [2.0, 2.0]),), "x"))
    assert any("a" in line for line in shown([drawing(flat)], Page(60))[1:])
    none = comparison(Group((entry("x", []),), "x"))
    lines = shown(none.blocks(), Page(60))
    assert lines[0].startswith("1 run")
    assert not any("loss" in line for line in lines)


def test_notes_say_what_limits_the_comparison() -> None:
    running = manifest(step=8, train=TrainConfig(steps=12), best_loss=None)
    again = [entry(name, FALLING, manifest(best_loss=2.25 + n)) for n, name in enumerate("xy")]
    found = comparison(
        Group((entry("new", [], running),), "new"),
        Group(tuple(again), "x, y"),
        Group((entry("part", FALLING, in_part()),), "part"),
    )
    text = "\n".join(shown(found.blocks(), Page()))
    assert "not finished: new, step 8 of 12" in text
    assert "not evaluated yet: new" in text
    assert "the same seed twice in x, y: y" in text
    assert "losses on 19,968 of 111,539 characters: part" in text
    assert "±: standard deviation over n seeds" in text
    assert "counting 2-grams: 2.5000 nats" in text
    alone = comparison(Group((entry("part", FALLING, in_part()),), "part"))
    title = shown(alone.blocks(), Page())[0]
    assert title.endswith("111,539 characters (on 19,968 of 111,539)")


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
        text = " ".join(shown(found.blocks(), Page(200)))
        assert f"{said} of 111,539 characters" in text
        counts = found.records().columns["val_characters"]
        assert [*counts] == [111_539, 19_968][: len(groups)]
    for same in (group("a", 19_968, part), group("a", 111_539, manifest())):
        text = " ".join(shown(comparison(same).blocks(), Page(200)))
        assert "the table's losses" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_names_and_texts_are_escaped_and_fit(width: int) -> None:
    named = replace(manifest(), corpus=CorpusId("0" * 64, 9, (NASTY, "とても長い日本語の本.txt")))
    names = [f"とても長い名前の実験-{n}" for n in range(60)]
    groups = [Group((entry(name, FALLING, named),), name, {"p": NASTY}) for name in names]
    lines = shown(comparison(*groups, differs=("p",)).blocks(), Page(width))
    assert any(line.startswith("Z ") for line in lines)
