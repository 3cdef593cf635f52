"""docs/scale.md equals the output of benchmarks/scale.py."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_docs_scale_equals_the_output_of_its_script() -> None:
    scale = runpy.run_path(str(ROOT / "benchmarks/scale.py"))
    rows = scale["costs"]()
    assert scale["markdown"](rows) in (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    one, eight, *_ = rows
    flops = scale["config_of"]("10.7 M").training_flops
    assert one["one_pass"] == pytest.approx(1e12 * flops / (0.4 * 790e12))
    assert one["moved"] == 0
    assert eight["one_pass"] == pytest.approx(one["one_pass"] / 8)
    assert eight["moved"] == pytest.approx(2 * 7 / 8 * eight["state"] / 3)
