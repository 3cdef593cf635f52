"""Loss curves and lists of runs print as one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from manifests import manifest

from gpt.storage.comparison import Curve, RunTable
from gpt.storage.run import Run


def test_curve_prints_its_lowest_loss() -> None:
    steps, losses = np.array([100, 1200, 1300]), np.array([2.0, 1.5, np.nan])
    curve = Curve(steps, losses, losses, name="tale-1")
    assert repr(curve) == "<Curve of tale-1: 3 evaluations, lowest 1.5000 nats at step 1,200>"
    part = Curve(steps, losses, losses, characters=np.full(3, 20_000), of=111_539)
    assert part.lowest == "1.5000 nats at step 1,200 (on 20,000 of 111,539)"
    assert repr(Curve(steps[:0], losses[:0], losses[:0])) == "<Curve: no evaluations>"


def test_list_of_runs_prints_the_newest_names() -> None:
    rows = tuple((Run(Path(f"runs/tale-{number}")), manifest()) for number in range(1, 8))
    assert repr(RunTable(rows)) == "<7 runs: … tale-3, tale-4, tale-5, tale-6, tale-7>"
    assert repr(RunTable(rows[:1])) == "<1 run: tale-1>"
    assert repr(RunTable(())) == "<no runs>"
    assert [run.name for run in RunTable(rows[:2])] == ["tale-1", "tale-2"]
