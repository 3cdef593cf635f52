"""The figure of several runs: lines, marks, legend, fonts, files."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from manifests import manifest

from gpt.config import TrainConfig
from gpt.storage.comparison import Comparison, Group
from gpt.storage.curves import Curve
from gpt.storage.overview import Overview
from gpt.view.figure.curves import draw
from gpt.view.figure.sheet import to_bytes


def entry(name: str, seed: int, *val: float) -> Overview:
    steps, losses = np.arange(1, len(val) + 1) * 100, np.array(val)
    found = manifest(train=TrainConfig(seed=seed), best_loss=min(val))
    return Overview(name, found, Curve(steps, losses, losses, name=name))


@pytest.fixture
def found() -> Comparison:
    first = Group((entry("a-1", 1, 4, 3, 2), entry("a-2", 2, 4, 3, 2.5)), "a-*", {"n_layer": 2})
    second = Group((entry("日本-b", 1, 4, 3.5, 3),), "日本-b", {"n_layer": 1})
    third = Group((entry("c\ue000", 1, 4, 3.5, 3),), "c\ue000", {"n_layer": 1})
    return Comparison(((first, second), (third,)), ("n_layer",))


def test_each_validation_text_has_a_panel_with_its_curves(found: Comparison) -> None:
    one, other = draw(found).axes
    thin, thick = [], []
    for line in one.lines:
        (thick if line.get_marker() != "None" else thin).append(line)
    assert [line.get_ydata().tolist() for line in thin] == [[4, 3, 2], [4, 3, 2.5], [4, 3.5, 3]]
    assert [line.get_ydata().tolist() for line in thick] == [[4, 3, 2.25], [4, 3.5, 3]]
    assert len({line.get_marker() for line in thick}) == 2
    low, high = one.get_ylim()
    assert low < 2
    assert high == pytest.approx(4.1)
    assert len(other.lines) == 2


def test_legend_names_recipes_with_their_losses(found: Comparison) -> None:
    one, other = (axes.get_legend() for axes in draw(found).axes)
    texts = [text.get_text() for text in one.get_texts()]
    assert texts[0] == "a-* · n_layer=2 · 2.2500 ± 0.3536 (n = 2)"
    assert texts[1].endswith("3.0000")
    assert "n_layer=1" in texts[1]
    assert "\\ue000" in other.get_texts()[0].get_text()  # no font has it


def test_texts_stay_within_the_figure_and_the_same_runs_give_the_same_file(
    found: Comparison,
) -> None:
    figure = draw(found)
    figure.draw_without_rendering()
    boxes = []
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        boxes.append(box)
    assert not boxes[0].overlaps(boxes[1])
    assert to_bytes(draw(found), "svg") == to_bytes(draw(found), "svg")
