"""The losses of one run: in a line, drawn, and as rows."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import shown

from gpt.storage.curves import Curve


def curve(*val: float, gpt: float | None = None, read: int = 100) -> Curve:
    losses, steps = np.array(val), 100 * np.arange(1, len(val) + 1)
    alone = None if gpt is None else np.full(len(val), gpt)
    return Curve("tale-1", steps, losses + 0.1, losses, np.full(len(val), read), 100, alone)


def test_curve_names_its_lowest_loss_and_the_part_that_it_is_of() -> None:
    lowest = "tale-1: 3 evaluations, the lowest loss 1.5000 nats at step 200"
    assert curve(2.0, 1.5, 1.75).title == lowest
    assert curve(2.0, 1.5, 1.75, read=20).title == f"{lowest} (on 20 of 100)"
    assert curve().title == "tale-1: no evaluations yet"


def test_curve_draws_each_loss_in_ten_lines() -> None:
    lines = shown(curve(2.75, 2.25, 2.5, gpt=3.0), 80)
    assert sum("│" in line for line in lines) == 10
    assert lines[-1].strip() == "validation · training · GPT alone"
    assert lines[-2].split() == ["0", "step", "300"]
    assert "GPT" not in shown(curve(2.75, 2.25), 80)[-1]


def test_curve_has_a_row_for_each_evaluation_for_programs() -> None:
    first, second = curve(2.75, 2.25, gpt=3.0).rows
    assert first == {"step": 100, "train": 2.85, "val": 2.75, "gpt": 3.0, "val_characters": 100}
    assert second["val"] == 2.25
    assert "gpt" not in curve(2.0).rows[0]


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        curve(2.0).val[0] = 1
