"""The losses of one run: in a line, drawn, and as rows."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import shown

from gpt.storage.curves import Curve, TrainingCurve
from gpt.view.terminal.lines import Page


def curve(*val: float, gpt: float | None = None) -> Curve:
    losses = np.array(val)
    alone = None if gpt is None else np.full(len(val), gpt)
    return Curve(100 * np.arange(1, len(val) + 1), losses + 0.1, losses, alone, "tale-1")


def test_curve_prints_its_lowest_loss() -> None:
    steps, losses = np.array([100, 1200, 1300]), np.array([2.0, 1.5, np.nan])
    curve = Curve(steps, losses, losses, name="tale-1")
    assert repr(curve) == "<Curve of tale-1: 3 evaluations, lowest 1.5000 nats at step 1,200>"
    part = Curve(steps, losses, losses, characters=np.full(3, 20_000), of=111_539)
    assert part.lowest == "1.5000 nats at step 1,200 (on 20,000 of 111,539)"
    assert repr(Curve(steps[:0], losses[:0], losses[:0])) == "<Curve: no evaluations>"


def test_curve_shows_each_loss_and_a_row_for_each_evaluation() -> None:
    lines = shown(curve(2.75, 2.25, 2.5, gpt=3.0).blocks(), Page(80))
    assert lines[0] == "loss of tale-1 · 3 evaluations · lowest 2.2500 nats at step 200"
    assert sum("●" in line for line in lines) == 2  # the mark and its explanation
    assert "val · train · gpt" in lines
    rows = [line.split() for line in lines[lines.index("evaluations") + 1 :]]
    assert rows[:2] == [["step", "val", "train", "gpt"], ["100", "2.7500", "2.8500", "3.0000"]]
    assert lines[-2].startswith("nats per character; val: on the validation text; train: on")
    assert "gpt" not in "".join(shown(curve(2.0).blocks(), Page(80)))
    assert shown(curve().blocks(), Page()) == ["loss of tale-1 · no evaluations yet"]


def test_curve_has_a_row_for_each_evaluation_for_programs() -> None:
    columns = curve(2.75, 2.25).records().columns
    assert [*columns] == ["step", "train", "val"]
    assert [*columns["val"]] == [2.75, 2.25]


@pytest.mark.parametrize("width", [40, 80])
def test_training_shows_each_quantity_and_what_its_axis_leaves_out(width: int) -> None:
    steps, loss = np.arange(10), np.array([9.0, 8.0, *np.linspace(3, 2, 8)])
    unknown = np.full(10, np.nan)
    lines = shown(TrainingCurve(steps, loss, loss, loss, unknown, "tale-1").blocks(), Page(width))
    text = " ".join(lines)
    assert text.count("above 2.8571 not shown") == 2  # the peak of the learning rate is shown
    assert "learning rate" in text
    assert "characters per second" not in text
    none = TrainingCurve(steps[:0], *[loss[:0]] * 4)
    assert shown(none.blocks(), Page(width)) == ["training · no records yet"]
